"""DeepSpeed ZeRO checkpoints, written by DeepSpeed, against its own zero_to_fp32."""

import contextlib
import io
import json
import pathlib
import shutil

import pytest
import torch
from fixtures import deepspeed_checkpoints
from test_checkpoints import assert_same, check_hashes, inspect, load_folder, run, tool  # noqa: F401  (tool: a fixture)

RUNS = {
    "stage1": {"stage": 1},
    "stage1-bf16": {"stage": 1, "bf16": True},
    "stage2": {"stage": 2},
    "stage2-bf16": {"stage": 2, "bf16": True},
    "stage3": {"stage": 3},
    "stage3-bf16": {"stage": 3, "bf16": True},
    "stage3-groups": {"stage": 3, "bf16": True, "zero": {"sub_group_size": 20}},
}


WITHOUT_ZERO = {"stage0": {"stage": 0}}


@pytest.fixture(scope="module", params=[2, pytest.param(1, marks=pytest.mark.full), pytest.param(3, marks=pytest.mark.full)])
def written(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("deepspeed")
    deepspeed_checkpoints.write(folder, request.param, RUNS | WITHOUT_ZERO)
    for name in RUNS:  # as the Hugging Face Trainer leaves them
        (folder / name / "config.json").write_text("{}")
        (folder / name / "trainer_state.json").write_text('{"global_step": 2}')
    return folder, request.param


def by_deepspeed(folder):
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    with contextlib.redirect_stdout(io.StringIO()):
        return {name: tensor.contiguous() for name, tensor in get_fp32_state_dict_from_zero_checkpoint(str(folder)).items()}


def with_rest(expected, folder):
    """What zero_to_fp32 leaves out under stage 1, though it is in the files: the frozen parameters."""
    state = pathlib.Path(folder) / "global_step2" / "mp_rank_00_model_states.pt"
    if state.exists():
        for name, tensor in torch.load(state, weights_only=False)["module"].items():
            expected.setdefault(name, tensor)
    return expected


@pytest.mark.parametrize("name", RUNS)
def test_partitions_are_put_together_as_zero_to_fp32_does(tool, written, tmp_path, name):  # noqa: F811
    folder, world_size = written[0] / name, written[1]
    expected = by_deepspeed(folder)
    assert {"first.weight", "cube", "scale", "steps", "table", "tied.weight"} <= set(expected)
    expected = with_rest(expected, folder)
    assert {"frozen.weight", "frozen.bias"} <= set(expected)

    report = check_hashes(tool, folder, expected, "deepspeed_zero")
    assert report["world_size"] == world_size and report["step"] == 2
    assert {t["name"]: t["tied_to"] for t in report["tensors"] if "tied_to" in t} == {"tied.weight": "second.weight"}
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out")
    assert_same(load_folder(tmp_path / "out"), expected)


@pytest.mark.parametrize("name", ["stage2", "stage3", pytest.param("stage3-groups", marks=pytest.mark.full)])
def test_experts_that_lie_together_are_rows_of_the_partitions(tool, written, tmp_path, name):  # noqa: F811
    folder = shutil.copytree(written[0] / name, tmp_path / "checkpoint-2")
    (folder / "config.json").write_text('{"model_type": "qwen3_moe"}')
    expected = with_rest(by_deepspeed(folder), folder)
    gate_up, down = (expected.pop(f"mlp.experts.{part}_proj") for part in ("gate_up", "down"))
    for expert in range(3):
        for part, value in (("gate", gate_up[expert, :5]), ("up", gate_up[expert, 5:]), ("down", down[expert])):
            expected[f"mlp.experts.{expert}.{part}_proj.weight"] = value

    check_hashes(tool, folder, expected, "deepspeed_zero")
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out")
    assert_same(load_folder(tmp_path / "out"), expected)


def test_the_folder_of_a_tag_is_a_checkpoint_too(tool, written):  # noqa: F811
    folder = written[0] / "stage2"
    shutil.copy(folder / "config.json", folder / "global_step2")
    check_hashes(tool, folder / "global_step2", with_rest(by_deepspeed(folder), folder), "deepspeed_zero")


def test_a_tied_name_that_older_releases_do_not_list_is_found_by_its_storage(tool, written, tmp_path):  # noqa: F811
    folder = shutil.copytree(written[0] / "stage2-bf16", tmp_path / "checkpoint-2")
    file = folder / "global_step2" / "mp_rank_00_model_states.pt"
    expected = with_rest(by_deepspeed(folder), folder)
    state = torch.load(file, weights_only=False)
    for shared, tied_by_storage in ((list(state["shared_params"].items()), False), ({}, True)):
        state["shared_params"] = shared
        module = dict(state["module"])
        if tied_by_storage:
            module["tied.weight"] = module["second.weight"]
        torch.save({**state, "module": module}, file)
        check_hashes(tool, folder, expected, "deepspeed_zero")


def test_whole_weights_beside_the_partitions_win(tool, written, tmp_path):  # noqa: F811
    from safetensors.torch import save_file

    folder = shutil.copytree(written[0] / "stage3-bf16", tmp_path / "checkpoint-2")
    weights = {"a": torch.arange(6.0).bfloat16()}
    save_file(weights, folder / "model.safetensors")
    check_hashes(tool, folder, weights, "hugging_face")


def test_a_checkpoint_without_zero_is_refused_by_its_name_not_waited_for(tool, written, tmp_path):  # noqa: F811
    done = run(tool, "merge", "--input_dir", written[0] / "stage0", "--output_dir", tmp_path / "out", code=1)
    assert "is of DeepSpeed without ZeRO (stage 0" in done.stderr, done.stderr


def test_a_missing_or_torn_rank_is_incomplete_and_a_foreign_one_is_refused(tool, written, tmp_path):  # noqa: F811
    source, world_size = written[0] / "stage3", written[1]
    for kind in ("optim", "model"):
        folder = shutil.copytree(source, tmp_path / f"{kind}-missing")
        last = folder / "global_step2" / f"zero_pp_rank_{world_size - 1}_mp_rank_00_{kind}_states.pt"
        content = last.read_bytes()
        last.unlink()
        assert not inspect_incomplete(tool, folder)["complete"]
        last.write_bytes(content[:-100])
        assert "states.pt" in inspect_incomplete(tool, folder)["reason"]
        last.write_bytes(content)
        assert inspect(tool, folder)["complete"]
        # One rank more than the files say there are.
        (last.parent / f"zero_pp_rank_{world_size}_mp_rank_00_{kind}_states.pt").write_bytes(content)
        assert "states" in inspect_incomplete(tool, folder)["reason"]
    folder = shutil.copytree(source, tmp_path / "latest")
    (folder / "latest").write_text("../stage3/global_step2")
    assert "expected a folder beside it" in inspect_incomplete(tool, folder)["reason"]
    (folder / "latest").unlink()
    assert "latest" in inspect_incomplete(tool, folder)["reason"]


def inspect_incomplete(tool, folder):  # noqa: F811
    from test_checkpoints import subprocess

    done = subprocess.run([str(tool), "inspect", str(folder), "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 3), done.stderr
    return json.loads(done.stdout)
