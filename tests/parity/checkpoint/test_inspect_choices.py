"""Which weights and which step `evalcar inspect` and `merge` mean by a path and flags: never others than were asked for, and the way
to them is told."""

import json

import pytest
from test_checkpoints import inspect, run, tool  # noqa: F401  (tool: a fixture)
from test_inputs import merged_below, write_safetensors
from test_merge_choices import EMA_SHARDS, SHARDS, value, write


def write_both_kinds(folder):
    """Regular weights of 1 and EMA weights of 2."""
    write(folder, 1.0)
    ema = write(folder.parent / "ema", 2.0, kinds=(EMA_SHARDS,))
    (ema / EMA_SHARDS).rename(folder / EMA_SHARDS)
    (ema / "config.json").unlink()
    ema.rmdir()
    return folder


def test_regular_weights_are_never_called_ema(tool, tmp_path):  # noqa: F811
    folder = write_both_kinds(tmp_path / "checkpoint-5")

    for flags in (["--state_dict_dirname", SHARDS], []):
        place = folder if flags else folder / SHARDS
        done = run(tool, "inspect", place, "--weights", "ema", "--hash", "--json", *flags, code=2)
        assert "has the regular weights, not those of --weights ema" in done.stderr

    ema = inspect(tool, folder / EMA_SHARDS, "--hash")
    assert ema["checkpoint_type"] == "ema"
    assert ema["weights_sha256"] == inspect(tool, folder, "--weights", "ema", "--hash")["weights_sha256"]
    assert ema["weights_sha256"] == inspect(tool, folder, "--state_dict_dirname", EMA_SHARDS, "--hash")["weights_sha256"]
    assert ema["weights_sha256"] != inspect(tool, folder, "--hash")["weights_sha256"]


def test_ema_weights_are_compared_with_what_they_were_merged_into(tool, tmp_path):  # noqa: F811
    folder = write_both_kinds(tmp_path / "checkpoint-5")
    run(tool, "merge", "--input_dir", folder, "--weights", "ema", "--output_dir", tmp_path / "merged")

    for flags in ([folder, "--weights", "ema"], [folder / EMA_SHARDS]):
        assert inspect(tool, *flags, "--diff", tmp_path / "merged")["diff"]["equal"] is True
    run(tool, "inspect", folder, "--diff", tmp_path / "merged", code=1)
    # A checkpoint that could have EMA weights, and has none, is no stand-in for them.
    run(tool, "inspect", folder, "--weights", "ema", "--diff", write(tmp_path / "other", 2.0), code=3)


def test_a_folder_without_a_configuration_is_no_model(tool, tmp_path):  # noqa: F811
    folder = write(tmp_path / "run" / "checkpoint-5")
    (folder / "config.json").unlink()
    (tmp_path / "empty").mkdir()

    for command in (["merge", "--input_dir"], ["inspect"]):
        for model in (tmp_path / "empty", tmp_path / "run"):
            done = run(tool, *command, folder, "--model_name_or_class", model, code=2)
            assert f"--model_name_or_class {model}: holds no config.json" in done.stderr
    assert merged_below(tmp_path) == []


def test_the_mean_of_one_checkpoint_is_that_checkpoint_and_called_so(tool, tmp_path):  # noqa: F811
    for step in (1, 3):
        write(tmp_path / f"checkpoint-{step}", float(step))
    run(tool, "merge", "--input_dir", tmp_path, "--merge")
    mean = tmp_path / "_evalcar/merged/3/average"
    assert value(mean) == 2.0

    done = run(tool, "merge", "--input_dir", tmp_path, "--merge", "--step", "3")  # lmms-engine's page has it

    assert "one checkpoint alone" in done.stderr and value(tmp_path / "_evalcar/merged/3/regular") == 3.0
    assert value(mean) == 2.0


@pytest.mark.parametrize("flag", ["--output_dir", "--state_dict_dirname", "--pattern", "--model_name_or_class"])
def test_an_empty_word_is_not_taken_for_no_flag(tool, tmp_path, flag):  # noqa: F811
    write(tmp_path / "checkpoint-5")
    done = run(tool, "merge", "--input_dir", tmp_path, flag, "", code=2)
    assert flag in done.stderr and "empty" in done.stderr
    assert merged_below(tmp_path) == []


def test_shards_in_a_folder_of_another_name_are_found_by_it(tool, tmp_path):  # noqa: F811
    """verl's global_step_40/actor, beside its critic."""
    for kind in ("actor", "critic"):
        write(tmp_path / "global_step_40", 4.0 if kind == "actor" else 5.0, ranks=1, kinds=(kind,))

    actor = inspect(tool, tmp_path / "global_step_40" / "actor", "--hash")
    assert actor["complete"] and actor["layout"] == "lmms_engine_fsdp2" and actor["checkpoint_type"] == "regular"
    for flags in (["--state_dict_dirname", "actor"], ["--state_dict_dirname", "actor", "--pattern", "global_step_{step}"]):
        place = tmp_path if "--pattern" in flags else tmp_path / "global_step_40"
        assert inspect(tool, place, "--hash", *flags)["weights_sha256"] == actor["weights_sha256"]
    done = run(tool, "inspect", tmp_path / "global_step_40" / "critic", "--state_dict_dirname", "actor", code=2)
    assert "--state_dict_dirname actor: CHECKPOINT names critic" in done.stderr

    run(tool, "merge", "--input_dir", tmp_path / "global_step_40" / "critic", "--output_dir", tmp_path / "merged")
    assert value(tmp_path / "merged") == 5.0


def test_the_way_to_checkpoints_of_other_names_is_told(tool, tmp_path):  # noqa: F811
    for epoch in (1, 2):
        write_safetensors(tmp_path / f"epoch_{epoch}", epoch)
    for command in (["merge", "--input_dir", tmp_path], ["merge", "--input_dir", tmp_path, "--merge"]):
        done = run(tool, *command, code=3)
        assert 'are chosen by --pattern "epoch_{step}"' in done.stderr
    found = inspect(tool, tmp_path, "--pattern", "epoch_{step}")
    assert found["steps"] == [1, 2] and found["step"] == 2


def test_a_step_is_that_of_the_name_and_a_contradiction_is_told(tool, tmp_path):  # noqa: F811
    folder = write(tmp_path / "checkpoint-8")
    (folder / "trainer_state.json").write_text('{"global_step": 10}')
    done = run(tool, "inspect", folder, "--json")
    assert json.loads(done.stdout)["step"] == 8
    assert "is of step 8 by its name, but of step 10 by its trainer_state.json" in done.stderr

    write(tmp_path / "proj" / "checkpoints" / "checkpoint_1")
    assert inspect(tool, tmp_path / "proj" / "checkpoints")["step"] == 1


def test_a_folder_within_a_checkpoint_is_of_its_step(tool, tmp_path):  # noqa: F811
    inner = write_safetensors(tmp_path / "checkpoint-5" / "math", 1)
    write(tmp_path / "checkpoint-6")

    run(tool, "merge", "--input_dir", inner, "--step", "5")
    assert merged_below(tmp_path) == ["_evalcar/merged/5/math_regular"]
    done = run(tool, "merge", "--input_dir", inner, "--step", "6", code=2)
    assert "of step 5" in done.stderr


def test_adapters_of_names_of_their_own_are_told_where_none_lies_in_the_checkpoint_itself(tool, tmp_path):  # noqa: F811
    for name in ("math", "code"):
        write_safetensors(tmp_path / "checkpoint-5" / name, 1).joinpath("adapter_config.json").write_text("{}")
    for command in (["merge", "--input_dir"], ["inspect"]):
        done = run(tool, *command, tmp_path / "checkpoint-5", code=1)
        assert "adapters lie in its folders (" in done.stderr and "code" in done.stderr and "math" in done.stderr


def test_a_pattern_that_nothing_fits_and_a_folder_of_shards_that_cannot_be_are_told_alike(tool, tmp_path):  # noqa: F811
    folder = write_safetensors(tmp_path / "checkpoint-5", 5)
    for command in (["merge", "--input_dir"], ["inspect"]):
        for place in (folder, tmp_path):
            done = run(tool, *command, place, "--pattern", "epoch_{step}", code=3)
            assert f"{place}: is neither a checkpoint nor a run folder with epoch_{{step}} in it" in done.stderr
        done = run(tool, *command, folder, "--state_dict_dirname", "shards", code=2)
        assert "--state_dict_dirname: " in done.stderr and "whose weights lie in no such folder" in done.stderr
    assert inspect(tool, folder, "--pattern", "checkpoint-{step}")["step"] == 5
    assert merged_below(tmp_path) == []
