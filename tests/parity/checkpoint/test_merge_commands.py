"""`evalcar merge` in place of lmms-engine's tools: the commands of its merging page as they stand there, and its own merger's
tensors."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from fixtures import small_models
from safetensors.torch import save_file
from test_checkpoints import assert_same, inspect, load_folder, run, tool  # noqa: F401  (tool: a fixture)
from torch.distributed import checkpoint as dcp


def command(tool, folder, text, code=0, **environment):  # noqa: F811
    """Runs `evalcar merge <text>` in a folder, with no hub cache but the one that is given."""
    environment = {"HF_HUB_CACHE": str(folder / "no-cache"), **{k: str(v) for k, v in environment.items()}}
    done = subprocess.run([str(tool), "merge", *text.split()], cwd=folder, env={**os.environ, **environment}, capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def expected(small_model, step, kind="regular"):
    return torch.load(small_model / "expected" / f"{step}-{kind}.pt")


def put_side_files(hub, folder):
    folder.mkdir(parents=True)
    for file in hub.iterdir():
        if file.suffix in (".json", ".jinja", ".txt") and not file.name.endswith("index.json"):
            shutil.copyfile(file, folder / file.name)


@pytest.fixture
def checkpoints(small_model, tmp_path):
    """A scratch folder with the run as ./checkpoints."""
    shutil.copytree(small_model / "run", tmp_path / "checkpoints")
    return tmp_path


@pytest.fixture(scope="module")
def dcp_run(small_model, tmp_path_factory):
    """A run as accelerate writes it: checkpoint-*/pytorch_model_fsdp_0 is a DCP of {"model": ...}, with no configuration."""
    folder = tmp_path_factory.mktemp("dcp") / "checkpoints"
    for step in (3, 10):
        dcp.save({"model": expected(small_model, step)}, checkpoint_id=folder / f"checkpoint-{step}" / "pytorch_model_fsdp_0",
                 no_dist=True)
        (folder / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return folder


def test_hugging_face_fsdp_checkpoints_by_the_page(tool, small_model, dcp_run, tmp_path):  # noqa: F811
    from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration

    shutil.copytree(dcp_run, tmp_path / "checkpoints")
    line = "--input_dir ./checkpoints --model_name_or_class Qwen/Qwen2.5-VL-7B-Instruct --type hf --output_dir ./merged_checkpoint"

    refused = command(tool, tmp_path, line, code=2)
    assert "hf download Qwen/Qwen2.5-VL-7B-Instruct" in refused.stderr
    assert not (tmp_path / "merged_checkpoint").exists()

    cached = tmp_path / "cache" / "models--Qwen--Qwen2.5-VL-7B-Instruct"
    put_side_files(small_model / "hub", cached / "snapshots" / "cc594898137f")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("cc594898137f")
    command(tool, tmp_path, line, HF_HUB_CACHE=tmp_path / "cache")

    wanted = expected(small_model, 10)
    assert_same(load_folder(tmp_path / "merged_checkpoint"), wanted)
    model, info = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path / "merged_checkpoint", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    assert_same(dict(model.state_dict()), wanted)
    AutoProcessor.from_pretrained(tmp_path / "merged_checkpoint")


def test_a_model_under_the_data_folder_has_the_configuration_too(tool, small_model, dcp_run, tmp_path):  # noqa: F811
    shutil.copytree(dcp_run, tmp_path / "checkpoints")
    put_side_files(small_model / "hub", tmp_path / "data" / "Qwen" / "Qwen2.5-VL-7B-Instruct")

    command(tool, tmp_path, "--input_dir ./checkpoints --model_name_or_class Qwen/Qwen2.5-VL-7B-Instruct --step 3 --data data")

    merged = tmp_path / "checkpoints" / "_evalcar" / "merged" / "3" / "regular"
    assert_same(load_folder(merged), expected(small_model, 3))
    assert (merged / "tokenizer.json").read_bytes() == (small_model / "hub" / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("line, place, kind", [
    ("--input_dir ./checkpoints --type fsdp2", "10/regular", "regular"),
    ("--input_dir ./checkpoints --type fsdp2 --state_dict_dirname pytorch_ema_model_fsdp_0", "10/ema", "ema")])
def test_fsdp2_checkpoints_by_the_page(tool, small_model, checkpoints, line, place, kind):  # noqa: F811
    command(tool, checkpoints, line)

    merged = checkpoints / "checkpoints" / "_evalcar" / "merged"
    assert [str(p.parent.relative_to(merged)) for p in merged.rglob("model.safetensors")] == [place]
    assert_same(load_folder(merged / place), expected(small_model, 10, kind))


def test_every_argument_of_the_page_at_once(tool, small_model, checkpoints):  # noqa: F811
    """--input_dir --model_name_or_class --type [--output_dir] [--step] [--state_dict_dirname] [--merge], the model by its class."""
    line = ("--input_dir ./checkpoints --model_name_or_class Qwen2_5_VLForConditionalGeneration --type fsdp2 --output_dir ./merged "
            "--state_dict_dirname pytorch_ema_model_fsdp_0")

    done = command(tool, checkpoints, f"{line} --merge")
    assert "names another class" not in done.stderr
    both = [expected(small_model, step, "ema") for step in (3, 10)]
    assert_same(load_folder(checkpoints / "merged"),
                {name: ((both[0][name].double() + both[1][name].double()) / 2).float() for name in both[0]})

    shutil.rmtree(checkpoints / "merged")
    command(tool, checkpoints, f"{line} --step 3 --merge")
    assert_same(load_folder(checkpoints / "merged"), both[0])

    other = command(tool, checkpoints, "--input_dir ./checkpoints --model_name_or_class Qwen3ForCausalLM --type fsdp2")
    assert "names another class than Qwen3ForCausalLM" in other.stderr


def test_a_class_has_no_configuration_to_give(tool, dcp_run, tmp_path):  # noqa: F811
    shutil.copytree(dcp_run, tmp_path / "checkpoints")

    done = command(tool, tmp_path, "--input_dir ./checkpoints --model_name_or_class Qwen2_5_VLForConditionalGeneration --type hf", code=2)
    assert "a class holds no configuration" in done.stderr
    done = command(tool, tmp_path, "--input_dir ./checkpoints --model_name_or_class ./nowhere --type hf", code=2)
    assert "neither a folder nor a model's id" in done.stderr


def test_weights_without_a_configuration_are_merged_and_inspected_as_they_are(tool, small_model, dcp_run, tmp_path):  # noqa: F811
    shutil.copytree(dcp_run, tmp_path / "checkpoints")

    done = command(tool, tmp_path, "--input_dir ./checkpoints --output_dir merged")

    assert "has no config.json" in done.stderr
    assert sorted(os.listdir(tmp_path / "merged")) == ["model.safetensors"]
    assert_same(load_folder(tmp_path / "merged"), expected(small_model, 10))

    # A state dict of no known architecture, in a folder of any name.
    tensors = {"encoder/kernel:0": torch.randn(3, 2), "step": torch.tensor(5), "ünïcode \"name\"": torch.ones(2, dtype=torch.bool)}
    (tmp_path / "odd").mkdir()
    save_file(tensors, tmp_path / "odd" / "model.safetensors")
    document = inspect(tool, tmp_path / "odd", "--hash")
    assert document["complete"] and document["reason"] is None and not document["has_config"]
    assert document["kinds"] == [{"checkpoint_type": "regular", "state": "complete", "reason": None}]
    assert "complete    yes (weights alone, no config.json)" in run(tool, "inspect", tmp_path / "odd").stdout
    assert sorted(t["name"] for t in document["tensors"]) == sorted(tensors) and document["weights_sha256"]
    command(tool, tmp_path, "--input_dir odd --output_dir odd-merged")
    assert_same(load_folder(tmp_path / "odd-merged"), tensors)


def test_two_merges_of_the_same_checkpoint_are_the_same_bytes(tool, checkpoints):  # noqa: F811
    for name in ("one", "two"):
        command(tool, checkpoints, f"--input_dir ./checkpoints --dtype bfloat16 --max-shard-size 100KB --output_dir {name}")

    files = sorted(os.listdir(checkpoints / "one"))
    assert files == sorted(os.listdir(checkpoints / "two")) and "model.safetensors.index.json" in files
    for file in files:
        assert (checkpoints / "one" / file).read_bytes() == (checkpoints / "two" / file).read_bytes(), file


@pytest.mark.parametrize("kind", ["regular", pytest.param("ema", marks=pytest.mark.full)])
def test_lmms_engines_own_merger_gives_the_same_tensors(tool, small_model, tmp_path, kind):  # noqa: F811
    """In bfloat16, its only dtype. The model has no integer buffer, which it would cast too (reference 2.2)."""
    folder = small_model / "run" / "checkpoint-10"
    done = subprocess.run([sys.executable, "-m", "lmms_engine.merger", "--checkpoint_path", folder, "--output_path", tmp_path / "theirs",
                           "--checkpoint_type", kind], capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stderr[-2000:]

    run(tool, "merge", "--input_dir", folder, "--weights", kind, "--dtype", "bfloat16", "--output_dir", tmp_path / "ours")

    # save_pretrained writes the hub's names, a merge the module's own, which transformers takes as well.
    theirs = {small_models.native_name(name): tensor for name, tensor in load_folder(tmp_path / "theirs").items()}
    assert_same(load_folder(tmp_path / "ours"), theirs)
    assert inspect(tool, tmp_path / "ours")["complete"]
