"""Checkpoints of DCP under the sidecar and for transformers: weights alone, everything else from the base model."""

import json
import pathlib
import shutil
import subprocess
import sys

import dcp_checkpoints
import lessons
import pytest
import small_models
import torch
import torch.distributed.checkpoint as dcp
from huggingface_hub import save_torch_state_dict
from test_checkpoints import assert_same, check_hashes, load_folder, run, tool  # noqa: F401  (tool: a fixture)


@pytest.fixture(scope="module")
def hub(tmp_path_factory, cache_dir):
    folder = tmp_path_factory.mktemp("dcp_runs") / "hub"
    model, _ = small_models.write_model(folder, cache_dir=cache_dir, layers=2)
    return folder, model.state_dict()


def save(state, folder):
    folder.mkdir(parents=True)
    dcp.save(state, checkpoint_id=str(folder), no_dist=True)


def write_accelerate(folder, state):
    """As the Hugging Face Trainer under FSDP leaves it."""
    save({"model": state}, folder / "pytorch_model_fsdp_0")
    save({"optimizer": {"state": {name: value * 0 for name, value in state.items()}}}, folder / "optimizer_0")
    (folder / "trainer_state.json").write_text('{"global_step": 5}')


def write_titan(folder, state):
    save({**state, "optimizer": {"lr": 0.1}, "train_state": {"step": 5}}, folder)


LAYOUTS = {"accelerate": ("checkpoint-5", write_accelerate), "titan": ("step-5", write_titan)}


def write_by_storage_writer(save):
    """HuggingFaceStorageWriter, by two ranks; the Trainer's last file beside it."""

    def write(folder, state):
        folder.parent.mkdir(parents=True)
        torch.save(dict(state), folder.parent / "state.pt")
        saves = dcp_checkpoints.write_saves(folder.parent / "saves", [save], world_size=2, state=folder.parent / "state.pt")
        shutil.move(saves / save, folder)
        shutil.rmtree(folder.parent / "saves")
        (folder.parent / "state.pt").unlink()
        (folder / "config.json").unlink()
        (folder / "trainer_state.json").write_text('{"global_step": 5}')

    return write


SAFETENSORS = {save: ("checkpoint-5", write_by_storage_writer(save)) for save in ("safetensors", "safetensors_files", "consolidated")}


def write_full_state_dict(folder, state):
    """As accelerate's save_state leaves FSDP's full state dict: beside it neither whole weights nor a configuration."""
    folder.mkdir(parents=True)
    torch.save(dict(state), folder / "pytorch_model_fsdp.bin")
    (folder / "trainer_state.json").write_text('{"global_step": 5}')


@pytest.mark.parametrize("layout", LAYOUTS)
def test_transformers_loads_what_is_merged_with_the_base_models_files(tool, hub, tmp_path, layout):  # noqa: F811
    from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration

    name, write = LAYOUTS[layout]
    write(tmp_path / "run" / name, hub[1])

    run(tool, "merge", "--input_dir", tmp_path / "run" / name, "--type", "dcp", "--model_name_or_class", hub[0], "--output_dir", tmp_path / "out")

    assert_same(load_folder(tmp_path / "out"), hub[1])
    _, info = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    assert AutoProcessor.from_pretrained(tmp_path / "out").tokenizer
    (tmp_path / "run" / name / "config.json").write_text("{}")
    check_hashes(tool, tmp_path / "run" / name, hub[1], "dcp")


@pytest.mark.full
def test_merge_weights_of_accelerate_gives_the_same_tensors(tool, hub, tmp_path):  # noqa: F811
    torch.save(dict(hub[1]), tmp_path / "state.pt")
    folder = dcp_checkpoints.write_saves(tmp_path / "saves", ["async"], world_size=2, state=tmp_path / "state.pt") / "async"

    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "merge-weights", folder, tmp_path / "theirs"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "ours")

    ours, theirs = load_folder(tmp_path / "ours"), load_folder(tmp_path / "theirs")
    assert set(ours) - set(theirs) <= {"lm_head.weight"}  # tied, of which safetensors of theirs keeps one
    assert_same({name: ours[name] for name in theirs}, theirs)
    assert_same(ours, hub[1])


@pytest.mark.parametrize("kind", ["regular", "ema"])
def test_weights_that_accelerate_merged_into_the_checkpoint_do_not_take_the_place_of_its_shards(tool, hub, tmp_path, kind):  # noqa: F811
    """model.safetensors is the name of all that is merged: the EMA would be measured as the weights, or there would be no EMA any more."""
    from accelerate.utils.fsdp_utils import merge_fsdp_weights

    folder = tmp_path / "checkpoint-5"
    ema = {name: value * 2 for name, value in hub[1].items()}
    write_accelerate(folder, hub[1])
    save({"model": ema}, folder / "pytorch_ema_model_fsdp_0")
    (folder / "config.json").write_text("{}")

    merge_fsdp_weights(folder / {"regular": "pytorch_model_fsdp_0", "ema": "pytorch_ema_model_fsdp_0"}[kind], folder, safe_serialization=True)

    assert (folder / "model.safetensors").exists()
    check_hashes(tool, folder, hub[1], "dcp")
    check_hashes(tool, folder, ema, "dcp", "--weights", "ema")


def run_once(bin_dir, home, run_dir, data, *arguments):
    """`evalcar run --once`; the line of metrics.jsonl."""
    command = [bin_dir / "evalcar", "run", run_dir, "--once", "--tasks", "docvqa_val", "--data", data, "--device", "cpu",
               "--set", "evaluate.max_new_tokens=6", "--set", "evaluate.min_pixels=3136", "--set", "watch.settle_time=1s",
               "--set", f"store.path={home / run_dir.name}.db", *arguments]  # fmt: skip
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads((run_dir / "_evalcar" / "metrics.jsonl").read_text())


def answers_of(run_dir):
    [file] = pathlib.Path(run_dir / "_evalcar" / "results").rglob("*_samples_*.jsonl")
    return [json.loads(line)["filtered_resps"] for line in file.read_text().splitlines()]


def test_the_sidecar_evaluates_weights_alone_with_the_base_models_files(bin_dir, hub, tmp_path):
    if not (bin_dir / "evalcar-evaluator").exists():
        pytest.skip("evalcar-evaluator is not built (EVALCAR_EVALUATOR=OFF)")
    data = lessons.write_data(tmp_path / "data", docvqa=2, mmmu=1)
    whole = tmp_path / "whole" / "checkpoint-5"
    shutil.copytree(hub[0], whole, ignore=shutil.ignore_patterns("*.safetensors*"))
    save_torch_state_dict({name: value.clone() for name, value in hub[1].items()}, whole)
    (whole / "trainer_state.json").write_text('{"global_step": 5}')
    expected = run_once(bin_dir, tmp_path, whole.parent, data)

    for layout, (name, write) in {**LAYOUTS, **SAFETENSORS, "full state dict": ("checkpoint-5", write_full_state_dict)}.items():
        write(tmp_path / layout / name, hub[1])
        pattern = name.replace("5", "{step}")
        line = run_once(bin_dir, tmp_path, tmp_path / layout, data, "--set", f"evaluate.base_model={hub[0]}",
                        "--set", f"watch.pattern={pattern}")
        assert line["global_step"] == 5
        assert line["weights_sha256"] == expected["weights_sha256"]
        assert line["metrics"] == expected["metrics"]
        assert answers_of(tmp_path / layout) == answers_of(whole.parent) != []
