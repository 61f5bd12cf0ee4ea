import pathlib
import sys

import pytest

SOURCE_DIR = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE_DIR / "tests" / "e2e"), str(SOURCE_DIR / "agent" / "trainer")]

from harness import Bench  # noqa: E402


@pytest.fixture
def bench(bin_dir, tmp_path):
    """An output directory, the scripted evaluator and the real agent."""
    made = Bench(bin_dir, tmp_path)
    made.run.mkdir()
    yield made
    for sidecar in made.sidecars:
        if sidecar.process and sidecar.process.poll() is None:
            sidecar.kill()
