"""Which weights a path means to `evalcar merge` and `inspect`: run folders, folders within a checkpoint, links, folders of shards by
their names; and where what is merged of them goes by default."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import save_file
from test_checkpoints import inspect, run, tool  # noqa: F401  (tool: a fixture)
from test_merge_choices import EMA_SHARDS, SHARDS, value, write
from torch.distributed import checkpoint as dcp


def write_safetensors(folder, number):
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"w": torch.full((4,), float(number))}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    return folder


def write_dcp(folder, number):
    dcp.save({"model": {"w": torch.full((4,), float(number))}}, checkpoint_id=folder, no_dist=True)
    return folder


def write_zero(folder, tag="global_step5"):
    """One rank of ZeRO-3 by hand, as reference and tests of DeepSpeed have it: only its place matters here."""
    (folder / tag).mkdir(parents=True)
    shape = {"w": torch.Size([4])}
    flat = torch.full((4,), 7.0)
    torch.save({"module": {}, "buffer_names": [], "param_shapes": [shape], "shared_params": {}, "frozen_param_shapes": None,
                "frozen_param_fragments": None, "ds_version": "0.19.8"}, folder / tag / "zero_pp_rank_0_mp_rank_00_model_states.pt")
    torch.save({"optimizer_state_dict": {"zero_stage": 3, "partition_count": 1, "fp32_flat_groups": [flat]}},
               folder / tag / "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    (folder / "latest").write_text(tag)
    return folder


def names_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def merged_below(folder):
    return sorted(str(path.parent.relative_to(folder)) for path in folder.rglob("_evalcar/merged/**/model.safetensors"))


# ---- --state_dict_dirname


@pytest.mark.parametrize("name", ["other_shards", EMA_SHARDS, SHARDS, "other_shards/"])
def test_a_folder_of_shards_that_is_not_there_is_never_replaced_by_other_weights(tool, tmp_path, name):  # noqa: F811
    folder = write_safetensors(tmp_path / "run" / "checkpoint-5", 1)

    for place in (folder, tmp_path / "run"):
        done = run(tool, "merge", "--input_dir", place, "--state_dict_dirname", name, code=2)
        assert "--state_dict_dirname" in done.stderr and "hugging_face" in done.stderr and str(folder) in done.stderr
    assert names_below(tmp_path) == sorted(["run", "run/checkpoint-5", "run/checkpoint-5/config.json", "run/checkpoint-5/model.safetensors"])


@pytest.mark.parametrize("name", [".", "..", "a/b", "../checkpoint-4", "/etc"])
def test_only_a_folder_within_the_checkpoint_may_be_named(tool, tmp_path, name):  # noqa: F811
    folder = write(tmp_path / "checkpoint-5")
    done = run(tool, "merge", "--input_dir", folder, "--state_dict_dirname", name, "--output_dir", tmp_path / "out", code=2)
    assert "expected the name of a folder" in done.stderr and not (tmp_path / "out").exists()


def test_the_folder_that_is_named_comes_before_whole_weights_beside_it(tool, tmp_path):  # noqa: F811
    folder = write_safetensors(tmp_path / "checkpoint-5", 1)
    write_dcp(folder / "other_shards", 2)
    write(tmp_path / "more" / "checkpoint-6", 3.0, kinds=("third_shards",))
    shutil.move(tmp_path / "more" / "checkpoint-6" / "third_shards", folder)

    for name in ("other_shards", "third_shards"):
        run(tool, "merge", "--input_dir", folder, "--state_dict_dirname", name)
    run(tool, "merge", "--input_dir", folder)

    merged = tmp_path / "_evalcar" / "merged" / "5"
    assert {each.name: value(each) for each in merged.iterdir()} == {"regular": 1, "other_shards": 2, "third_shards": 3}


def test_a_folder_of_another_name_may_be_named_twice_but_not_two_of_them(tool, tmp_path):  # noqa: F811
    folder = write(tmp_path / "checkpoint-5", 1.0, kinds=(SHARDS, "third_shards"))

    run(tool, "merge", "--input_dir", folder / "third_shards", "--state_dict_dirname", "third_shards")
    other = run(tool, "merge", "--input_dir", folder / SHARDS, "--state_dict_dirname", "third_shards", code=2)

    assert merged_below(tmp_path) == ["_evalcar/merged/5/third_shards"] and f"--input_dir names {SHARDS}" in other.stderr


def test_a_slash_behind_the_name_makes_no_other_weights_of_them(tool, tmp_path):  # noqa: F811
    folder = write(tmp_path / "checkpoint-5", 1.0)
    write(tmp_path / "ema" / "checkpoint-5", 2.0, kinds=(EMA_SHARDS,))
    shutil.move(tmp_path / "ema" / "checkpoint-5" / EMA_SHARDS, folder)

    run(tool, "merge", "--input_dir", f"{folder}/", "--state_dict_dirname", EMA_SHARDS + "/")
    run(tool, "merge", "--input_dir", folder, "--state_dict_dirname", SHARDS)
    contradiction = run(tool, "merge", "--input_dir", folder, "--weights", "ema", "--state_dict_dirname", SHARDS, code=2)

    merged = tmp_path / "_evalcar" / "merged" / "5"
    assert {each.name: value(each) for each in merged.iterdir()} == {"regular": 1, "ema": 2}
    assert "regular weights" in contradiction.stderr


# ---- folders within a checkpoint


@pytest.mark.parametrize("inner, kind", [(SHARDS, "regular"), (EMA_SHARDS, "ema"), (EMA_SHARDS + "/", "ema"), (SHARDS + "/.", "regular"),
                                         (f"{EMA_SHARDS}/../{SHARDS}", "regular")])
@pytest.mark.parametrize("layout", ["fsdp2", "dcp"])
def test_shards_that_are_named_themselves_are_those_of_their_checkpoint(tool, tmp_path, inner, kind, layout):  # noqa: F811
    folder = tmp_path / "run" / "checkpoint-5"
    folder.mkdir(parents=True)
    for name, number in ((SHARDS, 1), (EMA_SHARDS, 2)):
        if layout == "dcp":
            write_dcp(folder / name, number)
        else:
            write(tmp_path / name, float(number), kinds=(name,))
            shutil.move(tmp_path / name / name, folder)
    (folder / "config.json").write_text("{}")
    before = names_below(folder)

    run(tool, "merge", "--input_dir", f"{folder}/{inner}")
    seen = inspect(tool, f"{folder}/{inner}")

    assert merged_below(tmp_path) == [f"run/_evalcar/merged/5/{kind}"]
    merged = tmp_path / "run" / "_evalcar" / "merged" / "5" / kind
    assert value(merged) == (2 if kind == "ema" else 1) and (merged / "config.json").exists()
    assert seen["complete"] and seen["checkpoint_type"] == kind and seen["step"] == 5
    assert names_below(folder) == before


def test_partitions_of_deepspeed_that_are_named_themselves_go_to_the_runs_place(tool, tmp_path):  # noqa: F811
    folder = write_zero(tmp_path / "run" / "checkpoint-5")
    before = names_below(folder)

    run(tool, "merge", "--input_dir", folder / "global_step5")

    assert merged_below(tmp_path) == ["run/_evalcar/merged/5/regular"]
    assert value(tmp_path / "run" / "_evalcar" / "merged" / "5" / "regular") == 7 and names_below(folder) == before


def test_partitions_beside_others_without_a_checkpoint_around_them_keep_their_step(tool, tmp_path):  # noqa: F811
    """DeepSpeed's own save_checkpoint: the folder with `latest` is by its content a checkpoint, so nothing is put into it."""
    folder = write_zero(tmp_path / "saves", "global_step10")
    write_zero(tmp_path / "saves", "global_step20")

    run(tool, "merge", "--input_dir", folder / "global_step10")

    assert merged_below(tmp_path) == ["_evalcar/merged/10/regular"]


def test_adapters_within_a_checkpoint_do_not_take_each_others_place(tool, tmp_path):  # noqa: F811
    for name, number in (("one", 1), ("two", 2)):
        write_safetensors(tmp_path / "run" / "checkpoint-5" / name, number)

    for name in ("one", "two"):
        run(tool, "merge", "--input_dir", tmp_path / "run" / "checkpoint-5" / name)

    assert merged_below(tmp_path) == ["run/_evalcar/merged/5/one_regular", "run/_evalcar/merged/5/two_regular"]


def test_a_checkpoint_of_any_name_is_not_written_into_from_within(tool, tmp_path):  # noqa: F811
    folder = write(tmp_path / "final", 3.0)

    run(tool, "merge", "--input_dir", folder / SHARDS)

    assert merged_below(tmp_path) == ["_evalcar/merged/final/regular"]


def test_two_folders_of_shards_are_averaged_if_they_are_of_one_name(tool, tmp_path):  # noqa: F811
    folders = [write(tmp_path / f"checkpoint-{step}", float(step), kinds=(EMA_SHARDS,)) / EMA_SHARDS for step in (1, 3)]

    run(tool, "merge", "--input_dir", f"{folders[0]},{folders[1]}", "--merge")
    done = run(tool, "merge", "--input_dir", f"{folders[0]},{tmp_path / 'checkpoint-3'}", "--merge", code=2)

    assert merged_below(tmp_path) == ["_evalcar/merged/3/average_ema"] and "not of the same folder of shards" in done.stderr
    assert value(tmp_path / "_evalcar" / "merged" / "3" / "average_ema") == 2


# ---- links


def test_a_link_to_a_checkpoint_means_the_checkpoint_and_its_run(tool, tmp_path):  # noqa: F811
    write(tmp_path / "run" / "checkpoint-5", 1.0)
    (tmp_path / "home").mkdir()
    for link in (tmp_path / "home" / "mine", tmp_path / "run" / "latest", tmp_path / "home" / "checkpoint-9"):
        link.symlink_to(tmp_path / "run" / "checkpoint-5")
        run(tool, "merge", "--input_dir", link)
        run(tool, "merge", "--input_dir", f"{link}/{SHARDS}")
        assert inspect(tool, link)["step"] == 5

    assert merged_below(tmp_path) == ["run/_evalcar/merged/5/regular"]
    assert sorted(os.listdir(tmp_path / "home")) == ["checkpoint-9", "mine"]


def test_a_checkpoint_that_is_a_link_to_other_storage_is_of_the_run_that_links_it(tool, tmp_path):  # noqa: F811
    write(tmp_path / "storage" / "a1b2", 1.0)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint-5").symlink_to(tmp_path / "storage" / "a1b2")

    for place in (tmp_path / "run" / "checkpoint-5", f"{tmp_path}/run/checkpoint-5/", tmp_path / "run"):
        run(tool, "merge", "--input_dir", place)
        assert inspect(tool, place)["step"] == 5
        assert merged_below(tmp_path) == ["run/_evalcar/merged/5/regular"]
        shutil.rmtree(tmp_path / "run" / "_evalcar")
    assert names_below(tmp_path / "storage") == ["a1b2", "a1b2/config.json", f"a1b2/{SHARDS}",
                                                 f"a1b2/{SHARDS}/model_world_size_1_rank_0.pt"]


def test_paths_of_dots_mean_what_they_lead_to(tool, tmp_path, monkeypatch):  # noqa: F811
    folder = write(tmp_path / "run" / "checkpoint-5", 1.0)
    for place, path in ((folder, "."), (folder / SHARDS, ".."), (folder / SHARDS, "."), (tmp_path / "run", "./checkpoint-5/."),
                        (folder, "../../run"), (folder, "../../run/")):
        monkeypatch.chdir(place)
        run(tool, "merge", "--input_dir", path)
        assert inspect(tool, path)["step"] == 5
        assert merged_below(tmp_path) == ["run/_evalcar/merged/5/regular"], path
        shutil.rmtree(tmp_path / "run" / "_evalcar")


# ---- run folders


def test_inspect_of_a_run_folder_looks_at_its_newest_complete_checkpoint_and_says_so(tool, tmp_path):  # noqa: F811
    for step in (5, 10, 900, 1000):
        write(tmp_path / f"checkpoint-{step}", float(step), ranks=2)
    (tmp_path / "checkpoint-1000" / SHARDS / "model_world_size_2_rank_1.pt").unlink()

    done = run(tool, "inspect", f"{tmp_path}/", "--json")

    found = json.loads(done.stdout)
    newest = f"{tmp_path}/checkpoint-900"
    assert (found["step"], found["steps"], found["run"], found["checkpoint"]) == (900, [5, 10, 900, 1000], str(tmp_path), newest)
    assert found["complete"] and f"{newest} is looked at" in done.stderr
    assert "left out" in done.stderr and "checkpoint-1000" in done.stderr
    people = run(tool, "inspect", tmp_path).stdout
    assert f"run         {tmp_path} with 4 checkpoints, of the steps [5,10,900,1000]" in people

    alone = inspect(tool, tmp_path / "checkpoint-10")
    assert (alone["run"], alone["steps"], alone["step"]) == (None, [], 10)
    assert alone["checkpoint"] == str(tmp_path / "checkpoint-10")


def test_inspect_of_a_run_without_a_complete_checkpoint_says_why_the_newest_is_none(tool, tmp_path):  # noqa: F811
    for step in (5, 10):
        write(tmp_path / f"checkpoint-{step}", ranks=2)
        (tmp_path / f"checkpoint-{step}" / SHARDS / "model_world_size_2_rank_1.pt").unlink()

    found = json.loads(run(tool, "inspect", tmp_path, "--json", code=3).stdout)

    assert not found["complete"] and found["step"] == 10
    assert found["reason"].endswith(f"checkpoint-10/{SHARDS}/model_world_size_2_rank_1.pt: is missing")


def test_two_runs_are_compared_by_their_newest_checkpoints(tool, tmp_path):  # noqa: F811
    for name, number in (("one", 1.0), ("two", 2.0)):
        write(tmp_path / name / "checkpoint-5", 9.0)
        write(tmp_path / name / "step-7", 5.0)  # of no pattern that counts, beside the others
        write(tmp_path / name / "checkpoint-6", number)

    done = run(tool, "inspect", tmp_path / "one", "--diff", tmp_path / "two", "--json", code=1)

    [entry] = json.loads(done.stdout)["diff"]["different"]
    assert entry["name"] == "w" and entry["max_abs"] == 1


# ---- exit codes


@pytest.mark.parametrize("begin", ["nothing", "config", "folders", "temporary", "adapter"])
def test_a_checkpoint_that_was_just_begun_is_not_ready(tool, tmp_path, begin):  # noqa: F811
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    if begin != "nothing":
        (folder / "config.json").write_text("{}")
        (folder / "generation_config.json").write_text("{}")
    if begin == "folders":
        for name in (SHARDS, EMA_SHARDS, "optimizer", "extra_state", "dataloader_state"):
            (folder / name).mkdir()
    elif begin == "temporary":
        (folder / ".tmpAbCdEf").write_text("half of the weights")
    elif begin == "adapter":
        (folder / "README.md").write_text("# An adapter")

    for arguments in (["inspect", folder], ["inspect", tmp_path], ["merge", "--input_dir", folder], ["merge", "--input_dir", tmp_path]):
        done = run(tool, *arguments, code=3)
        assert "no weights yet" in done.stderr and str(folder) in done.stderr
    done = run(tool, "eval", folder, "--tasks", "docvqa_val", "--data", tmp_path, "--device", "cpu", code=3)
    assert "no weights yet" in done.stderr
    assert names_below(tmp_path)[0] == "checkpoint-5" and not (tmp_path / "_evalcar").exists()


def test_what_will_never_be_a_checkpoint_is_a_failure(tool, tmp_path):  # noqa: F811
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    (folder / "weights.gguf").write_text("something else")
    for arguments in (["inspect", folder], ["merge", "--input_dir", folder]):
        assert "holds no checkpoint" in run(tool, *arguments, code=1).stderr

    (folder / "weights.gguf").unlink()
    (folder / "config.json").symlink_to("/etc/hostname")
    run(tool, "inspect", folder, code=1)
    (folder / "config.json").unlink()

    (folder / "model.safetensors").write_bytes(b"\xff" * 100)  # a header of 2^64 bytes
    for arguments in (["inspect", folder], ["merge", "--input_dir", folder]):
        assert "at byte 0" in run(tool, *arguments, code=1).stderr
