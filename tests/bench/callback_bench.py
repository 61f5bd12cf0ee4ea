"""What EvalcarCallback costs a training of the Hugging Face Trainer: its own time a step, and the steps with and without it, side by side.

    EVALCAR_BUILD_DIR=build/dev build/venv/bin/python -m pytest -s tests/bench/test_callback_bench.py"""

import json
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "pickup"), str(HERE.parents[1] / "agent" / "trainer")]

import training  # noqa: E402
from evalcar_trainer import EvalcarCallback  # noqa: E402
from transformers import TrainerCallback  # noqa: E402

STEPS = 200
ROUNDS = 3
RESULTS = 200  # that lie in metrics.jsonl when training begins


class Clock(TrainerCallback):
    """The seconds from the beginning of each step to that of the next."""

    def __init__(self):
        self.times = []

    def on_step_begin(self, *_, **__):
        self.times.append(time.perf_counter())

    def steps(self):
        return [after - before for before, after in zip(self.times[10:], self.times[11:])]


class Timed(EvalcarCallback):
    """Also how long it takes itself, at each step."""

    def on_step_end(self, *arguments, **parts):
        start = time.perf_counter()
        super().on_step_end(*arguments, **parts)
        self.spent.append(time.perf_counter() - start)


def train(run, callback):
    clock = Clock()
    training.trainer(run, [clock, *([callback] if callback else [])], max_steps=STEPS, save_strategy="no", logging_strategy="no").train()
    return clock.steps()


def prepare(run):
    """An agent's files, with a heartbeat and results of long ago."""
    folder = run / "_evalcar"
    folder.mkdir(parents=True)
    rows = ({"seq": n, "run": "r", "evaluation": f"e{n}", "global_step": n, "checkpoint_type": "regular", "final": True,
             "metrics": {"eval/docvqa_val/anls": 0.5}} for n in range(1, RESULTS + 1))  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "status.json").write_text(json.dumps({"agent": {"pid": 1, "state": "running"}, "evaluations": []}))


def measure(home):
    """Prints the figures; gives the median milliseconds of the callback a step."""
    without, with_it, spent = [], [], []
    for number in range(ROUNDS):
        run = pathlib.Path(home) / str(number)
        prepare(run)
        callback = Timed(poll_interval=0.5, stale_after=0.1)
        callback.spent = spent
        without += train(run, None)
        with_it += train(run, callback)
    own = sorted(value * 1e3 for value in spent)
    plain, beside = statistics.median(without) * 1e3, statistics.median(with_it) * 1e3
    weights = sum(each.numel() for each in training.small_model().parameters())
    print(f"EvalcarCallback   median {statistics.median(own):.4f} ms a step, p99 {own[int(len(own) * 0.99)]:.4f} ms, mean {statistics.fmean(own):.4f} ms"
          f" ({len(own)} steps, it looks at its files twice a second)")  # fmt: skip
    print(f"a training step   median {plain:.3f} ms without it, {beside:.3f} ms with it (a model of {weights} parameters): ratio {beside / plain:.3f}")
    return statistics.median(own)
