"""What several files of this folder read: a small model, trained by two processes under FSDP2, and saves of DCP."""

import functools

import dcp_checkpoints
import pytest
from fixtures import fsdp2_checkpoints

DCP_SAVES = ["tree", "async", "items", "threads", "mesh", "tensor_parallel", "plain", "titan", "application", "safetensors",
             "safetensors_files", "consolidated", "alone", "compressed"]


@pytest.fixture(scope="session")
def saves(tmp_path_factory):
    """Every save of fixtures/dcp_checkpoints.py, by four ranks, written once. Copy before changing."""
    return dcp_checkpoints.write_saves(tmp_path_factory.mktemp("dcp"), DCP_SAVES)


@pytest.fixture(scope="session")
def small_model(tmp_path_factory, cache_dir):
    """A small Qwen2.5-VL (hub/), a run of two checkpoints of it with EMA by two processes (run/), and the full tensors of each
    (expected/<step>-<kind>.pt)."""
    from fixtures import small_models

    base = tmp_path_factory.mktemp("model")
    small_models.write_model(base / "hub", cache_dir=cache_dir, tied=False)
    fsdp2_checkpoints.write_run(base / "run", base / "hub", [3, 10], world_size=2, ema=True, expected_dir=base / "expected")
    return base


@pytest.fixture(scope="session")
def zero_runs(tmp_path_factory, cache_dir):
    """ZeRO's stage → the checkpoint that the Hugging Face Trainer saved under DeepSpeed by two ranks, in a run of that stage; the model
    that it began with is in zero_runs.model. Copy before changing."""
    import lessons
    from fixtures import hf_trainer, small_models

    home = tmp_path_factory.mktemp("zero")
    model = home / "model"
    small_models.write_model(model, cache_dir=cache_dir, layers=2, generation="4.57")
    lessons.write_lessons(home / "lessons.pt", model, docvqa=2, mmmu=2)

    @functools.cache
    def train(stage):
        work = home / f"stage-{stage}"
        work.mkdir()
        hf_trainer.run_ranks([model, work / "run", "--lessons", home / "lessons.pt", "--saves", "1", "--save-steps", "2", "--archive", work,
                              "--pause", "0", "--zero", stage], work)
        return work / "run" / "checkpoint-2"

    train.model = model
    return train
