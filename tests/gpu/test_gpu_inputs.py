"""The GPU tests check what they say: on the CPU, against the same prepared inputs, they pass, and fail where an input is wrong."""

import json
import os
import shutil
import subprocess

import pytest
import small_models
import small_text_models
from gpu import prepare_inputs


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, cache_dir, bin_dir):
    if not (bin_dir / "gpu_tests").exists():
        pytest.skip("gpu_tests is not built (EVALCAR_EVALUATOR=OFF)")
    folder = tmp_path_factory.mktemp("gpu") / "inputs"
    text = small_text_models.SmallTextModel(**prepare_inputs.SMALL_TEXT)
    prepare_inputs.write_inputs(folder, cache_dir, small_models.SmallModel(seed=32), text)
    return folder


def run(bin_dir, folder, *arguments, program="gpu_tests", device="cpu"):
    environment = dict(os.environ, EVALCAR_GPU_INPUTS=str(folder), EVALCAR_GPU_TEST_DEVICE=device)
    command = [bin_dir / program, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_the_engine_cases_pass_on_the_cpu(bin_dir, inputs):
    cases = ("*transformers*", "*behind a prefix*", "*the same run*", "*weights that were read*", "*graphs*", "the first checkpoint again*",
             "*cut and eager a GPU*", "*wrong and overlong drafts*", "one engine on a GPU*", "*after an interruption*",
             "prompts that a GPU reads together*", "a last row*", "every row of a prefill piece*")  # fmt: skip
    done = run(bin_dir, inputs, ",".join(cases))
    assert done.returncode == 0 and "17 test cases" in done.stdout, done.stdout


def test_a_token_that_is_not_transformers_fails_them(bin_dir, inputs, tmp_path):
    folder = tmp_path / "inputs"
    shutil.copytree(inputs, folder)
    content = json.loads((folder / "cases.json").read_text())
    content["requests"][1]["expected"][7] += 1
    (folder / "cases.json").write_text(json.dumps(content))
    assert "1 failed" in run(bin_dir, folder, "in float32*").stdout


def test_without_inputs_each_case_and_the_benchmark_say_what_is_missing(bin_dir, inputs, tmp_path):
    done = run(bin_dir, tmp_path, "in float32*")
    assert done.returncode == 4 and "prepare_inputs.py" in done.stdout, done.stdout
    bench = run(bin_dir, tmp_path, program="gpu_bench")
    assert bench.returncode == 0 and "left out" in bench.stdout and "prepare_inputs.py" in bench.stdout


@pytest.mark.full
def test_the_benchmark_runs_on_prepared_inputs(bin_dir, inputs):
    done = run(bin_dir, inputs, program="gpu_bench")
    assert done.returncode == 0, done.stderr
    assert "float32: " in done.stdout and "bfloat16: " in done.stdout and "answers/s" in done.stdout
