"""Two trainings under torchrun: ranks_program.py RUN OTHER_RUN MEMORY TOLD. Each rank writes TOLD.<rank>, what it saw.

The first has an agent beside it, and is to stop early and to load its best checkpoint; the second starts its own agent, on its first rank
alone, and writes snapshots to MEMORY."""

import json
import os
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[2] / "agent" / "trainer")]

import torch
import training
from evalcar_trainer import EvalcarCallback
from transformers import TrainerCallback

run, other, memory, told = sys.argv[1:]
rank = int(os.environ["RANK"])


class Saves(TrainerCallback):
    def __init__(self):
        self.steps = []

    def on_save(self, args, state, control, **_):
        self.steps.append(state.global_step)


class AsksAll(TrainerCallback):
    """The Trainer calls on_log on all ranks."""

    def on_log(self, args, state, control, **_):
        torch.distributed.all_reduce(torch.ones(1))


class Alone(TrainerCallback):
    logs_on_first_rank = True

    def __init__(self):
        self.steps = []

    def on_log(self, args, state, control, logs=None, **_):
        if any(name.startswith("eval/") for name in logs):
            self.steps.append(state.global_step)
            control.should_training_stop = True  # on this rank alone: nothing comes of it


def train(folder, callback, *more, **settings):
    saves, alone = Saves(), Alone()
    trained = training.trainer(folder, [callback, saves, AsksAll(), alone, *more], ddp_backend="gloo", **settings)
    trained.train()
    weights = {name: value.double().sum().item() for name, value in trained.model.state_dict().items()}
    return {"step": trained.state.global_step, "best": trained.state.best_global_step, "place": trained.state.best_model_checkpoint,
            "saves": saves.steps, "logged": sorted(step for step, _ in training.logged(trained)), "alone": sorted(alone.steps), "weights": weights}  # fmt: skip


callback = EvalcarCallback(poll_interval=0.1, early_stopping_patience=2)
# Each save waits until the first rank has its score: what is decided at the next one does not hang on who is faster.
first_only = [training.AtSave(pick_up=callback)] if rank == 0 else []
best = train(run, callback, *first_only, max_steps=40, save_steps=4, save_total_limit=1, **training.best_by("docvqa_val/anls"))
own = EvalcarCallback(start=True, tasks=["docvqa_val"], eval_device="cpu", eval_steps=2, poll_interval=0.1, snapshot_dir=memory)
snapshots = train(other, own, max_steps=6, save_steps=6)
pathlib.Path(f"{told}.{rank}").write_text(json.dumps({"best": best, "snapshots": snapshots}))
