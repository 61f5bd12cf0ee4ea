"""Fixtures of the fault tests: the sidecar of tests/e2e with its scripted evaluator, and the means of tools.py."""

import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import checkpoints  # noqa: E402
import tools  # noqa: E402
from harness import Bench  # noqa: E402

STEPS = (5, 10, 15, 20, 25, 30, tools.CANARY_STEP)


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    """Folder of ready shards for checkpoints.write_fsdp2: steps 5 to 30, and the canary's."""
    folder = tmp_path_factory.mktemp("shards")
    checkpoints.make_shards(folder, STEPS)
    return folder


@pytest.fixture
def bench(bin_dir, tmp_path):
    """An output directory, a scripted evaluator, sidecars on it; what still runs in the end is killed."""
    with Bench(bin_dir, tmp_path) as made:
        yield made


@pytest.fixture
def namespace():
    """A mount namespace of its own (tools.MountNamespace); the test is skipped where none can be made."""
    made = tools.MountNamespace.make()
    if isinstance(made, str):
        pytest.skip(made)
    yield made
    made.close()


@pytest.fixture
def notify(tmp_path):
    """What a service manager hears (tools.NotifySocket)."""
    with tools.NotifySocket(tmp_path / "notify.sock") as made:
        yield made


@pytest.fixture(scope="session")
def preload(tmp_path_factory):
    """A function: C source → path of a library for LD_PRELOAD, compiled once a session. Skips where there is no compiler."""
    return tools.ShimBuilder(tmp_path_factory.mktemp("shims")).build
