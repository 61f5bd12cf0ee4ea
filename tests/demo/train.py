"""Trains the demo's model for real and saves `checkpoint-N` exactly as lmms-engine's FSDP2 trainer does.

    torchrun --nproc-per-node 2 train.py OUTPUT_DIR [--steps N] [--save-steps N] …

Fully sharded (FSDP2) over gloo processes on the CPU, AdamW, an exponential moving average of the weights, fresh pictures at
every step, loss on the answers only. What it writes, in which order, and how it prunes is lmms-engine's: per-rank files of
DTensors, then rank 0's processor and config.json, then the rotation; no temporary names, no mark at the end.
"""

import argparse
import json
import math
import os
import pathlib
import random
import re
import shutil
import sys
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1])]

import numpy
import pictures
import small_vlm
import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output_dir", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--save-steps", type=int, default=24)
    parser.add_argument("--save-total-limit", type=int, default=2, help="0: keep all")
    parser.add_argument("--batch-size", type=int, default=32, help="samples a step on each process")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--ema-decay", type=float, default=0.97)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cache-dir", type=pathlib.Path, default=pathlib.Path("build/fixtures"))
    parser.add_argument("--hidden", type=int, default=128)
    return parser.parse_args()


class Batches:
    """An endless stream of batches; every process draws its own."""

    def __init__(self, processor, batch_size, seed):
        self.processor, self.batch_size = processor, batch_size
        self.rng = numpy.random.default_rng(seed)

    def next(self):
        """(model inputs, labels (B, K) of the last K tokens; -100 where there is nothing to learn)."""
        shots, texts, answers = [], [], []
        for _ in range(self.batch_size):
            scene = pictures.random_scene(self.rng)
            task, question = pictures.random_question(scene, self.rng)
            shots.append(pictures.draw(scene, self.rng))
            texts.append(small_vlm.chat(self.processor, pictures.prompt(task, question)) + question.answer + "<|im_end|>")
            answers.append(self.processor.tokenizer(question.answer + "<|im_end|>")["input_ids"])
        inputs = self.processor(text=texts, images=shots, padding=True, padding_side="left", return_tensors="pt")
        labels = torch.full((self.batch_size, max(map(len, answers))), -100)
        for row, answer in zip(labels, answers):
            row[-len(answer) :] = torch.tensor(answer)
        return inputs, labels


class MovingAverage:
    """The exponential moving average of every trained tensor, shard by shard, as lmms-engine keeps it."""

    def __init__(self, model, decay):
        self.model, self.decay = model, decay
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def update(self):
        for name, parameter in self.model.named_parameters():
            if name in self.shadow:
                self.shadow[name].lerp_(parameter.detach(), 1 - self.decay)

    def state_dict(self):
        """The model's state dict with the averaged tensors in place of the trained ones (tied names stay tied)."""
        averaged = {id(p): self.shadow[name] for name, p in self.model.named_parameters() if name in self.shadow}
        return type(state := self.model.state_dict(keep_vars=True))(
            (name, averaged.get(id(tensor), tensor.detach())) for name, tensor in state.items()
        )


class Saver:
    """Writes checkpoints and prunes the old ones."""

    def __init__(self, output_dir, total_limit, processor, config):
        self.output_dir, self.total_limit = output_dir, total_limit
        self.processor, self.config = processor, config
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def save(self, step, model, ema, optimizer, scheduler, batches):
        folder = self.output_dir / f"checkpoint-{step}"
        parts = {
            "pytorch_model_fsdp_0": ("model", model.state_dict()),
            "pytorch_ema_model_fsdp_0": ("model", ema.state_dict()),
            "optimizer": ("optimizer", optimizer.state_dict()),
            "extra_state": ("extra_state", self._extra_state(step, scheduler)),
            "dataloader_state": ("dataloader_state", {"random": batches.rng.bit_generator.state, "step": step}),
        }
        dist.barrier()
        for name in parts:
            (folder / name).mkdir(parents=True, exist_ok=True)
        dist.barrier()
        for name, (stem, value) in parts.items():
            torch.save(value, folder / name / f"{stem}_world_size_{self.world}_rank_{self.rank}.pt")
        if self.rank == 0:
            self.processor.save_pretrained(folder)
            self.config.save_pretrained(folder)
            self._rotate()
        dist.barrier()

    def _extra_state(self, step, scheduler):
        return {
            "lr_scheduler_state_dict": scheduler.state_dict(),
            "rng": {"cpu": torch.get_rng_state(), "numpy": numpy.random.get_state(), "random": random.getstate()},
            "global_step": step,
        }  # fmt: skip

    def _rotate(self):
        if not self.total_limit:
            return
        names = [name for name in os.listdir(self.output_dir) if name.startswith("checkpoint")]
        names.sort(key=lambda name: int(re.search(r"\d+", name).group()))
        for name in names[: -self.total_limit]:
            shutil.rmtree(self.output_dir / name)


def sharded(model):
    """The model under FSDP2 as lmms-engine lays it out: one unit a block, on the flattened (dp, cp) slice of the mesh."""
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (world, 1, 1, 1), mesh_dim_names=("dp", "pp", "cp", "tp"))
    mesh = mesh["dp", "cp"]._flatten("fsdp")
    for block in [*model.model.visual.blocks, *model.model.language_model.layers]:
        fully_shard(block, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return model


def loss_of(model, inputs, labels):
    logits = model(**inputs, logits_to_keep=labels.shape[1] + 1, use_cache=False).logits  # (B, K+1, V)
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels.flatten(), ignore_index=-100)


def main():
    args = parse_arguments()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank != 0:
        dist.barrier()  # rank 0 writes the processor's files first
    processor = small_vlm.load_processor(args.cache_dir)
    if rank == 0:
        dist.barrier()
    torch.manual_seed(args.seed)
    model = small_vlm.make_model(processor.tokenizer, args.hidden)
    config = model.config
    model = sharded(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1, (s + 1) / 20) * (0.55 + 0.45 * math.cos(math.pi * s / args.steps))
    )
    ema = MovingAverage(model, args.ema_decay)
    batches = Batches(processor, args.batch_size, seed=[args.seed, rank])
    args.output_dir.mkdir(parents=True, exist_ok=True)
    if rank == 0:
        settings = {"trainer_type": "fsdp2_trainer", "max_steps": args.steps, "save_steps": args.save_steps,
                    "save_total_limit": args.save_total_limit, "ema_enabled": True, "ema_decay": args.ema_decay}  # fmt: skip
        lines = [f"  {key}: {json.dumps(value)}\n" for key, value in settings.items()]
        (args.output_dir / "config.yaml").write_text("trainer_args:\n" + "".join(lines))
    saver = Saver(args.output_dir, args.save_total_limit, processor, config)
    started = time.monotonic()
    for step in range(1, args.steps + 1):
        loss = loss_of(model, *batches.next())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        ema.update()
        if rank == 0 and step % 8 == 0:
            print(f"step {step:4d} of {args.steps}  loss {loss.item():.3f}  {time.monotonic() - started:5.1f} s", flush=True)
        if step % args.save_steps == 0 or step == args.steps:
            saver.save(step, model, ema, optimizer, scheduler, batches)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
