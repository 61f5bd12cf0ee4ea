"""Small checkpoints in the two layouts, written as the trainers write them, without training anything."""

import hashlib
import json
import pathlib
import shutil
import struct
import time

TOKENIZER = {"tokenizer.json": "{}", "tokenizer_config.json": "{}", "preprocessor_config.json": "{}"}


def write_safetensors(path, seed, rows=64):
    data = b"".join(hashlib.sha256(f"{seed} {row}".encode()).digest() for row in range(rows))
    header = json.dumps({"model.w": {"dtype": "F32", "shape": [rows, 8], "data_offsets": [0, len(data)]}}).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(header)) + header + data)


def write_hugging_face(run, step, seed=None, pause=0.0, rows=64, **state):
    """checkpoint-<step> in the order of files of the Hugging Face Trainer: trainer_state.json, with `state`, comes last."""
    folder = pathlib.Path(run) / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl", "architectures": ["X"]}))
    time.sleep(pause)
    write_safetensors(folder / "model.safetensors", seed if seed is not None else f"{run} {step}", rows)
    for name, content in TOKENIZER.items():
        (folder / name).write_text(content)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, **state}))
    return folder


def make_shards(template, steps, world_size=2):
    """Shards of real torch.save, once a test session: <template>/<step>-<kind>-<rank>.pt"""
    import torch

    template.mkdir(parents=True, exist_ok=True)
    for step in steps:
        for kind in ("regular", "ema"):
            generator = torch.Generator().manual_seed(step * 2 + (kind == "ema"))
            state = {"model.w": torch.randn(8, 8, generator=generator), "model.b": torch.randn(8, generator=generator)}
            for rank in range(world_size):
                torch.save(state, template / f"{step}-{kind}-{rank}.pt")


def write_fsdp2(run, step, template, world_size=2, ema=True, pause=0.0):
    """checkpoint-<step> in the order of files of lmms-engine's fsdp2_trainer."""
    folder = pathlib.Path(run) / f"checkpoint-{step}"
    kinds = [("pytorch_model_fsdp_0", "regular")] + ([("pytorch_ema_model_fsdp_0", "ema")] if ema else [])
    for name in [kind[0] for kind in kinds] + ["optimizer", "extra_state", "dataloader_state"]:
        (folder / name).mkdir(parents=True)
    for rank in range(world_size):
        for name, kind in kinds:
            shutil.copyfile(template / f"{step}-{kind}-{rank}.pt", folder / name / f"model_world_size_{world_size}_rank_{rank}.pt")
            time.sleep(pause)
        for name in ("optimizer", "extra_state", "dataloader_state"):
            shutil.copyfile(template / f"{step}-regular-{rank}.pt", folder / name / f"{name}_world_size_{world_size}_rank_{rank}.pt")
    for name, content in TOKENIZER.items():
        (folder / name).write_text(content)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl", "architectures": ["X"]}))
    return folder


def prune_lmms_engine(run, limit):
    """lmms-engine's own rule: everything that starts with "checkpoint", by number, strict removal. A name it cannot parse,
    or a folder that will not empty, raises here as it would there. Returns the names removed."""
    run = pathlib.Path(run)
    names = sorted((p.name for p in run.iterdir() if p.name.startswith("checkpoint")), key=lambda n: int(n.split("-")[1]))
    removed = names[:-limit] if limit else []
    for name in removed:
        shutil.rmtree(run / name)
    return removed


def prune_hugging_face(run, limit):
    """The Hugging Face Trainer's rotation (transformers 5): checkpoint-* folders by mtime, oldest first."""
    folders = sorted(pathlib.Path(run).glob("checkpoint-*"), key=lambda p: p.stat().st_mtime)
    removed = folders[:-limit]
    for folder in removed:
        shutil.rmtree(folder, ignore_errors=True)
        assert not folder.exists()
    return [folder.name for folder in removed]
