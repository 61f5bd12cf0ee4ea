import dcp_checkpoints
import pytest

DCP_SAVES = ["tree", "async", "items", "threads", "mesh", "tensor_parallel", "plain", "titan", "application", "safetensors",
             "safetensors_files", "consolidated", "alone", "compressed"]


@pytest.fixture(scope="session")
def saves(tmp_path_factory):
    """Every save of fixtures/dcp_checkpoints.py, by four ranks, written once. Copy before changing."""
    return dcp_checkpoints.write_saves(tmp_path_factory.mktemp("dcp"), DCP_SAVES)
