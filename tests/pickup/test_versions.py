"""The callback under transformers 4.57, which is installed into build/fixtures once (PyPI is needed for that)."""

import os
import subprocess
import sys

import make_saved_by_4x
import pytest
import training
from training import results_in

ANLS = "eval/docvqa_val/anls"


@pytest.fixture
def packages(cache_dir):
    folder = cache_dir / make_saved_by_4x.REQUIREMENTS["4.57"][0].replace("==", "-")
    if not folder.exists():
        scratch = cache_dir / f"{folder.name}.{os.getpid()}"
        try:
            make_saved_by_4x.install("4.57", scratch)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"transformers 4.57 cannot be installed here: {error}")
        scratch.rename(folder)
    return folder


@pytest.mark.full
def test_transformers_4_57_logs_each_result_once_at_its_own_step(bench, packages):
    sidecar = bench.sidecar().start()
    program = training.__file__.replace("training.py", "trainer_program.py")
    environment = dict(os.environ, PYTHONPATH=str(packages))
    # `datasets` of this environment needs a newer huggingface_hub than that transformers; the Trainer does without it.
    start = ("import runpy, sys; sys.modules['datasets'] = None; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__');"
             "import transformers; print(transformers.__version__)")  # fmt: skip

    done = subprocess.run([sys.executable, "-c", start, program, str(bench.run), str(bench.home / "logged"), "--max-steps", "6"], env=environment,
                          capture_output=True, text=True, timeout=600)  # fmt: skip

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].startswith("4.57.")
    assert sidecar.stop() == 0
    told = [tuple(map(float, line.split())) for line in (bench.home / "logged").read_text().splitlines()]
    assert sorted(told) == sorted((float(row["global_step"]), row["metrics"][ANLS]) for row in results_in(bench.run))
    assert len(told) == 3
