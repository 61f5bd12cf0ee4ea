"""Where the numbers go: real TensorBoard and W&B show each at its own step and under its own name, and a logger in trouble
neither ends the training nor gets anything twice."""

import json
import logging

import pytest
import training
from evalcar_trainer import EvalcarCallback
from training import has, logged, results_in, trainer
from transformers import TrainerCallback

ANLS = "eval/docvqa_val/anls"


@pytest.fixture(autouse=True)
def log(caplog):
    caplog.set_level(logging.INFO, logger="evalcar")
    return caplog


class Recorder(TrainerCallback):
    """A logger of the user's; `trouble` is how many times it refuses a score."""

    def __init__(self, trouble=0):
        self.trouble = trouble
        self.told = []

    def on_log(self, args, state, control, logs=None, **_):
        if ANLS not in logs:
            return
        if self.trouble:
            self.trouble -= 1
            raise ConnectionError("made up")
        self.told.append((state.global_step, logs[ANLS]))


def train_with(bench, *callbacks, **settings):
    sidecar = bench.sidecar().start()
    trained = trainer(bench.run, [*callbacks, EvalcarCallback(poll_interval=0.1)], **settings)
    trained.train()
    assert sidecar.stop() == 0
    return trained, [(row["global_step"], row["metrics"][ANLS]) for row in results_in(bench.run)]


def marks(run):
    """What was logged where; without the line that tells the loggers' places."""
    lines = [json.loads(line) for line in (run / "_evalcar" / "logged.jsonl").read_text().splitlines()]
    return [line for line in lines if "places" not in line]


def test_tensorboard_reads_each_score_at_its_own_step(bench):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    bench.tell(delay=0.05)
    events = bench.home / "events"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSORBOARD_LOGGING_DIR", str(events))
        _, expected = train_with(bench, report_to=["tensorboard"])

    seen = EventAccumulator(str(events))
    seen.Reload()
    assert [(event.step, event.value) for event in seen.Scalars(ANLS)] == [(step, pytest.approx(value)) for step, value in expected]
    assert ANLS + "_stderr" in seen.Tags()["scalars"]
    assert "train/loss" in seen.Tags()["scalars"]
    assert not [tag for tag in seen.Tags()["scalars"] if "docvqa" in tag and not tag.startswith("eval/")]
    assert all({"trainer", "tensorboard"} <= set(mark["to"]) for mark in marks(bench.run))


@pytest.mark.skipif(not has("wandb"), reason="wandb is not installed")
def test_wandb_has_each_score_on_an_axis_of_its_own_steps(bench):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("MODE", "offline"), ("DIR", str(bench.home)), ("SILENT", "true"), ("PROJECT", "evalcar-test")):
            patch.setenv("WANDB_" + name, value)
        _, expected = train_with(bench, report_to=["wandb"])
        import wandb

        wandb.finish()
    history, axes = training.wandb_run(bench.home)

    rows = [row for row in history if ANLS in row]
    assert [(row["evalcar/global_step"], row[ANLS]) for row in rows] == expected
    assert axes[ANLS] == "evalcar/global_step"
    assert any("train/loss" in row for row in history)


def test_a_logger_that_fails_for_a_moment_gets_each_score_once_all_the_same(bench, log):
    bench.tell(delay=0.05)
    recorder, other = Recorder(trouble=2), Other()
    trained, expected = train_with(bench, other, recorder)

    assert sorted(recorder.told) == sorted(other.told) == sorted(expected)
    assert sorted(step for step, _ in logged(trained)) == [2, 4, 6]
    assert log.text.count("Recorder: ConnectionError: made up") == 1


class Other(Recorder):
    pass


def test_a_logger_that_always_fails_is_left_alone_and_the_training_goes_on(bench, log):
    recorder, other = Recorder(trouble=1000), Other()
    trained, expected = train_with(bench, recorder, other)

    assert trained.state.global_step == 6
    assert recorder.told == [] and sorted(other.told) == sorted(expected)
    assert log.text.count("Recorder is given no more results; they can be sent later: evalcar push --output-dir") == 1
    assert all("Recorder" not in mark["to"] and "Other" in mark["to"] for mark in marks(bench.run))


def test_files_that_cannot_be_read_for_a_moment_are_read_later_and_for_good_switch_it_off(bench, log):
    """`status.json` is a folder: reading it fails, however privileged the reader."""
    status = bench.run / "_evalcar" / "status.json"
    status.mkdir(parents=True)
    callback = EvalcarCallback(poll_interval=0.1, timeout=120)
    watch = training.trainer(bench.run, [callback], max_steps=2)
    watch.train()

    assert log.text.count("no more results are taken up; they can be sent later: evalcar push --output-dir") == 1
    assert log.text.count("it is tried again in") == 1
    assert watch.state.global_step == 2
