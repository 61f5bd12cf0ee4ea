import checkpoints
import pytest
from harness import Bench

STEPS = (5, 10, 15, 20, 25, 30)


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    """Folder of ready shards for checkpoints.write_fsdp2, steps 5 to 30."""
    folder = tmp_path_factory.mktemp("shards")
    checkpoints.make_shards(folder, STEPS)
    return folder


@pytest.fixture
def bench(bin_dir, tmp_path):
    with Bench(bin_dir, tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def needs_the_evaluator(bin_dir):
    """Before all else: `pytestmark = pytest.mark.usefixtures("needs_the_evaluator")`."""
    if not (bin_dir / "evalcar-evaluator").exists():
        pytest.skip("evalcar-evaluator is not built (EVALCAR_EVALUATOR=OFF)")
