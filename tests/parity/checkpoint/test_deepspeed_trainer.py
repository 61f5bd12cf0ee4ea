"""Checkpoints that the real Hugging Face Trainer saves under real DeepSpeed, against the zero_to_fp32.py that lies in them."""

import shutil
import subprocess
import sys

import lessons
import pytest
import small_models
import torch
from test_checkpoints import assert_same, check_hashes, inspect, load_folder, run, tool  # noqa: F401  (tool: a fixture)
from test_dcp_runs import answers_of, run_once

pytestmark = pytest.mark.full


def by_its_own_script(folder, scratch):
    """The checkpoint's own zero_to_fp32.py, as its first lines tell to run it."""
    done = subprocess.run([sys.executable, "zero_to_fp32.py", ".", scratch], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return torch.load(scratch / "pytorch_model.bin")


def with_hub_names(state):
    """As save_pretrained writes the modules' names."""
    names = {small_models.hub_name(name): value for name, value in state.items()}
    assert names.keys() != state.keys()
    return names


@pytest.mark.parametrize("stage", [2, 3])
def test_the_trainers_checkpoint_merges_to_what_its_own_script_makes_of_it(tool, zero_runs, tmp_path, stage):  # noqa: F811
    folder = shutil.copytree(zero_runs(stage), tmp_path / "checkpoint-2")
    expected = by_its_own_script(folder, tmp_path / "script")
    start = {small_models.native_name(name): value for name, value in load_folder(zero_runs.model).items()}
    assert start.keys() < expected.keys()  # and the tied head
    assert all(not torch.equal(expected[name], value) for name, value in start.items()), "every tensor was trained"
    assert (folder / "latest").read_text() == "global_step2"

    if stage == 2:  # the whole weights are beside the partitions, and win
        weights = load_folder(folder)
        assert_same(weights, {name: value for name, value in with_hub_names(expected).items() if name in weights})
        assert expected.keys() - {small_models.native_name(name) for name in weights} <= {"lm_head.weight"}
        check_hashes(tool, folder, weights, "hugging_face")
        (folder / "model.safetensors").unlink()
    report = check_hashes(tool, folder, expected, "deepspeed_zero")
    assert report["step"] == 2 and report["world_size"] == 2
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out")
    assert_same(load_folder(tmp_path / "out"), expected)
    assert inspect(tool, tmp_path / "out")["complete"]


def test_the_sidecar_evaluates_it_as_the_folder_that_merge_writes(bin_dir, tool, zero_runs, tmp_path):  # noqa: F811
    if not (bin_dir / "evalcar-evaluator").exists():
        pytest.skip("evalcar-evaluator is not built (EVALCAR_EVALUATOR=OFF)")
    data = lessons.write_data(tmp_path / "data", docvqa=2, mmmu=1)
    folder = shutil.copytree(zero_runs(3), tmp_path / "zero" / "checkpoint-2")
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out")
    merged = shutil.copytree(tmp_path / "out", tmp_path / "merged" / "checkpoint-2")
    shutil.copy(folder / "trainer_state.json", merged)

    lines = [run_once(bin_dir, tmp_path, path.parent, data) for path in (folder, merged)]

    assert lines[0]["global_step"] == 2
    for key in ("weights_sha256", "metrics"):
        assert lines[0][key] == lines[1][key]
    assert answers_of(folder.parent) == answers_of(merged.parent) != []
