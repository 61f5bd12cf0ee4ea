"""Links in a checkpoint lead to files and folders inside of it, or nowhere."""

import json
import os
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from test_checkpoints import run, tool  # noqa: F401  (tool: a fixture)

SHARDS = "pytorch_model_fsdp_0"
WEIGHTS = {"w": torch.arange(8.0)}


def fsdp2(folder):
    (folder / SHARDS).mkdir(parents=True)
    torch.save(WEIGHTS, folder / SHARDS / "model_world_size_1_rank_0.pt")
    return folder / SHARDS


def accelerate_dcp(folder):
    dcp.save({"model": WEIGHTS}, checkpoint_id=folder / SHARDS, no_dist=True)
    return folder / SHARDS


def sharded(folder):
    """DCP in safetensors, before its consolidation."""
    (folder / "sharded").mkdir(parents=True)
    save_file(WEIGHTS, folder / "sharded" / "shard-00001-model-00001-of-00001.safetensors",
              metadata={"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps({"w": {"saved_offsets": [0]}})})
    return folder / "sharded"


@pytest.mark.parametrize("write", [fsdp2, accelerate_dcp, sharded], ids=lambda write: write.__name__)
def test_a_folder_that_is_a_link_is_followed_only_inside_the_checkpoint(tool, tmp_path, write):  # noqa: F811
    checkpoint = tmp_path / "checkpoint-5"
    linked = write(checkpoint)
    (checkpoint / "config.json").write_text("{}")

    inside = checkpoint / "elsewhere"
    linked.rename(inside)
    linked.symlink_to(os.path.relpath(inside, linked.parent))
    run(tool, "merge", "--input_dir", checkpoint, "--output_dir", tmp_path / "inside")
    assert torch.equal(load_file(tmp_path / "inside" / "model.safetensors")["w"], WEIGHTS["w"])

    outside = tmp_path / "outside"
    shutil.move(inside, outside)
    linked.unlink()
    linked.symlink_to(outside)
    for command in (["inspect", checkpoint], ["merge", "--input_dir", checkpoint, "--output_dir", tmp_path / "outside-merged"]):
        done = run(tool, *command, code=1)
        reason = "holds no checkpoint" if write is sharded else "a link out of the checkpoint's folder"
        assert reason in done.stderr, done.stderr


def test_the_checkpoint_itself_may_be_a_link(tool, tmp_path):  # noqa: F811
    fsdp2(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "config.json").write_text("{}")
    (tmp_path / "checkpoint-5").symlink_to("elsewhere")

    run(tool, "merge", "--input_dir", tmp_path / "checkpoint-5", "--output_dir", tmp_path / "out")

    assert torch.equal(load_file(tmp_path / "out" / "model.safetensors")["w"], WEIGHTS["w"])
