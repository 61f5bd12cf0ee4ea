"""Fixtures and marks that every Python test may use.

`tests/` and `tests/fixtures/` are importable: `from fixtures import qwen_tokenizer` or `import qwen_tokenizer`.
Cases marked `full` run only with `--all` (`./dev test --all`): the CI tier has at least one smaller case for each.
"""

import contextlib
import io
import os
import pathlib
import signal
import sys

import pytest

TESTS_DIR = pathlib.Path(__file__).resolve().parent
SOURCE_DIR = TESTS_DIR.parent
sys.path[:0] = [str(TESTS_DIR), str(TESTS_DIR / "fixtures")]

# What these assert says what it saw, as a test does: a failure far away may be the only one.
pytest.register_assert_rewrite("harness", "sidecar", "tools", "state_tools", "watching_tools", "worker_tools", "torture_trainer")

# Nothing is fetched while testing; a library that tries is told so at once instead of waiting for a time-out.
for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Programs under test begin with a terminal's SIGHUP, even where the tests run under nohup: what is ignored stays so in a child, a
# handler does not.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", default=False, help="run the cases marked `full` too")


def pytest_configure(config):
    config.addinivalue_line("markers", "full: full size; runs only with --all")
    config.addinivalue_line("markers", "gpu: needs a CUDA device; skipped, saying so, where there is none")


def _has_gpu():
    return os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/nvidia0")


def pytest_collection_modifyitems(config, items):
    full = pytest.mark.skip(reason="full size: runs with --all")
    gpu = pytest.mark.skip(reason="no GPU on this machine")
    for item in items:
        if "full" in item.keywords and not config.getoption("--all"):
            item.add_marker(full)
        if item.get_closest_marker("gpu") and not _has_gpu():  # not keywords: those hold folder names, too
            item.add_marker(gpu)


@pytest.fixture(scope="session")
def source_dir():
    """The root of the source tree."""
    return SOURCE_DIR


@pytest.fixture(scope="session")
def build_dir():
    """The CMake build folder: EVALCAR_BUILD_DIR, by default build/dev."""
    folder = pathlib.Path(os.environ.get("EVALCAR_BUILD_DIR", SOURCE_DIR / "build" / "dev")).resolve()
    if not (folder / "CMakeCache.txt").exists():
        pytest.fail(f"{folder} is not a CMake build folder: run ./dev build, or set EVALCAR_BUILD_DIR")
    return folder


@pytest.fixture(scope="session")
def bin_dir(build_dir):
    """Where that build put its programs."""
    for line in (build_dir / "CMakeCache.txt").read_text().splitlines():
        name, _, value = line.partition("=")
        if name.startswith("CMAKE_RUNTIME_OUTPUT_DIRECTORY:") and value:
            return pathlib.Path(value)
    return build_dir / "bin"


@pytest.fixture(scope="session")
def cache_dir():
    """build/fixtures: what tests generate once and share. Write a temporary name there and rename it: runs may overlap."""
    folder = SOURCE_DIR / "build" / "fixtures"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def figures(record_property, capfd):
    """A function that shows a measured figure even when all is well, and leaves it for tests/RESULTS.md."""

    def show(text):
        record_property("figures", text)
        with capfd.disabled():
            print("\n" + text.strip("\n"), end="", flush=True)

    return show


@pytest.fixture
def figures_printed_by(figures):
    """Calls a function and takes what it prints as figures; gives what it returns."""

    def call(function, *arguments):
        text = io.StringIO()
        try:
            with contextlib.redirect_stdout(text):
                return function(*arguments)
        finally:
            figures(text.getvalue())

    return call


@pytest.fixture(autouse=True)
def pillow_as_it_comes():
    """Modules of lmms-eval make Pillow read truncated files for the whole process; no other test shall see that."""
    if "PIL.ImageFile" in sys.modules:
        sys.modules["PIL.ImageFile"].LOAD_TRUNCATED_IMAGES = False
