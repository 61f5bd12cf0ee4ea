import pathlib
import sys

import pytest

SOURCE_DIR = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE_DIR / "tests" / "e2e"), str(SOURCE_DIR / "agent" / "trainer")]

from harness import Bench  # noqa: E402


@pytest.fixture
def bench(bin_dir, tmp_path):
    """An output directory, the scripted evaluator and the real agent."""
    with Bench(bin_dir, tmp_path) as made:
        yield made
