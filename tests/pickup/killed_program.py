"""A training that starts its agent and is killed: killed_program.py RUN before|after|in

before: its first checkpoint; after: the save of step 4; in: in the middle of that save."""

import os
import pathlib
import signal
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[2] / "agent" / "trainer")]

import training
from evalcar_trainer import EvalcarCallback
from transformers import TrainerCallback

run, moment = sys.argv[1:]


class Killed(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if moment == "before" and state.global_step == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_save(self, args, state, control, **_):
        known = lambda: state.global_step in training.steps_in_status(run)  # noqa: E731
        training.wait_until(known, what="the checkpoint in the status")
        if moment == "after" and state.global_step == 4:
            os.kill(os.getpid(), signal.SIGKILL)


own = EvalcarCallback(start=True, tasks=["docvqa_val"], eval_device="cpu", poll_interval=0.1,
                      settings={"watch.poll_interval": "200ms", "watch.settle_time": "1s"})  # fmt: skip
trained = training.trainer(run, [own, Killed()], max_steps=40)
save_optimizer = trained._save_optimizer_and_scheduler


def save_or_die(folder):
    if moment == "in" and trained.state.global_step == 4:
        os.kill(os.getpid(), signal.SIGKILL)  # its weights are there, trainer_state.json is not
    save_optimizer(folder)


trained._save_optimizer_and_scheduler = save_or_die
trained.train()
