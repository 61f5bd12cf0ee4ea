"""A training in a process of its own, that can be killed: trainer_program.py RUN LOGGED --max-steps N [--resume] [--die-after STEP]

LOGGED gets a line "step value" for each score that a logger is given. --die-after: the process kills itself once the score of that step, and all that
it told, was remembered."""

import argparse
import json
import os
import pathlib
import signal
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[2] / "agent" / "trainer")]

import training
from evalcar_trainer import EvalcarCallback
from transformers import TrainerCallback

parser = argparse.ArgumentParser()
parser.add_argument("run", type=pathlib.Path)
parser.add_argument("logged", type=pathlib.Path)
parser.add_argument("--max-steps", type=int)
parser.add_argument("--resume", action="store_true")
parser.add_argument("--die-after", type=int, default=0)
arguments = parser.parse_args()


class Logger(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        if "eval/docvqa_val/anls" in logs:
            with arguments.logged.open("a") as file:
                file.write(f"{state.global_step} {logs['eval/docvqa_val/anls']}\n")

    def on_step_end(self, args, state, control, **_):
        marks = arguments.run / "_evalcar" / "logged.jsonl"
        lines = [json.loads(line) for line in marks.read_text().splitlines()] if marks.exists() else []
        remembered = {mark.get("global_step") for mark in lines}
        told = {int(line.split()[0]) for line in arguments.logged.read_text().splitlines()} if arguments.logged.exists() else set()
        # Not between a score and its mark, which another thread writes: that score would rightly be told again.
        if arguments.die_after in remembered and told <= remembered:
            os.kill(os.getpid(), signal.SIGKILL)
        if arguments.die_after and state.global_step > arguments.die_after:
            training.time.sleep(0.2)  # the score may take its time


pick_up = EvalcarCallback(poll_interval=0.1)
training.trainer(arguments.run, [pick_up, Logger()], max_steps=arguments.max_steps).train(resume_from_checkpoint=arguments.resume or None)
