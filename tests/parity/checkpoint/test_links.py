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


def test_files_of_a_named_model_may_be_links_to_a_hub_cache_those_of_a_checkpoint_not(tool, tmp_path):  # noqa: F811
    blobs = tmp_path / "hub" / "models--org--name" / "blobs"
    blobs.mkdir(parents=True)
    model = tmp_path / "model"
    model.mkdir()
    save_file(WEIGHTS, blobs / "0a")
    for blob, name, text in (("0b", "config.json", '{"model_type": "x"}'), ("0c", "tokenizer.json", '{"tok": 1}')):
        (blobs / blob).write_text(text)
        (model / name).symlink_to(blobs / blob)
    checkpoint = tmp_path / "checkpoint-5"
    accelerate_dcp(checkpoint)
    run(tool, "merge", "--input_dir", checkpoint, "--model_name_or_class", model, "--output_dir", tmp_path / "out")
    assert (tmp_path / "out" / "tokenizer.json").read_text() == '{"tok": 1}' and (tmp_path / "out" / "config.json").exists()

    (model / "chat_template.json").symlink_to(checkpoint / SHARDS / ".metadata")  # no blob
    done = run(tool, "merge", "--input_dir", checkpoint, "--model_name_or_class", model, "--output_dir", tmp_path / "out2", code=1)
    assert "chat_template.json: a link out of" in done.stderr and not (tmp_path / "out2").exists()
    (model / "chat_template.json").unlink()

    (model / "model.safetensors").symlink_to(blobs / "0a")
    adapter = tmp_path / "adapter" / "checkpoint-5"
    adapter.mkdir(parents=True)
    save_file({"base_model.model.w": 2 * WEIGHTS["w"]}, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "base_model_name_or_path": str(model)}))
    run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "merged")
    assert torch.equal(load_file(tmp_path / "merged" / "model.safetensors")["w"], 2 * WEIGHTS["w"])

    copied = tmp_path / "checkpoint-6"  # the same links, in what a trainer wrote
    shutil.copytree(model, copied, symlinks=True)
    done = run(tool, "merge", "--input_dir", copied, "--output_dir", tmp_path / "refused", code=1)
    assert "a link out of the checkpoint's folder" in done.stderr


def test_the_checkpoint_itself_may_be_a_link(tool, tmp_path):  # noqa: F811
    fsdp2(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "config.json").write_text("{}")
    (tmp_path / "checkpoint-5").symlink_to("elsewhere")

    run(tool, "merge", "--input_dir", tmp_path / "checkpoint-5", "--output_dir", tmp_path / "out")

    assert torch.equal(load_file(tmp_path / "out" / "model.safetensors")["w"], WEIGHTS["w"])
