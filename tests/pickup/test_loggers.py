"""Where the numbers go: real TensorBoard and W&B show each at its own step and under its own name, and a logger in trouble
neither ends the training nor gets anything twice."""

import json
import logging
import os
import re
import threading
import time

import evalcar_trainer
import pytest
import training
from evalcar_trainer import EvalcarCallback
from scripted import ScriptedAgent
from training import AtSave, has, logged, results_in, trainer
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


class Slow(TrainerCallback):
    """Steps that take a while."""

    def on_step_begin(self, *_, **__):
        time.sleep(0.2)


@pytest.fixture
def unreadable(tmp_path):
    """`status.json` is a folder: reading it fails, however privileged the reader."""
    status = tmp_path / "out" / "_evalcar" / "status.json"
    status.mkdir(parents=True)
    return status


def test_files_that_cannot_be_read_for_many_minutes_switch_it_off(tmp_path, unreadable, log, monkeypatch):
    assert evalcar_trainer._PATIENCE >= 600
    monkeypatch.setattr(evalcar_trainer, "_PATIENCE", 0.6)
    callback = EvalcarCallback(poll_interval=0.1, timeout=120)
    watch = training.trainer(tmp_path / "out", [callback, Slow()], max_steps=8)
    watch.train()

    assert log.text.count("no more results are taken up; they can be sent later: evalcar push --output-dir") == 1
    assert log.text.count("it is tried again in") == 1
    assert watch.state.global_step == 8


def test_files_that_cannot_be_read_for_a_moment_are_read_later_also_while_the_end_waits(tmp_path, unreadable, log):
    callback = EvalcarCallback(poll_interval=0.1)
    trained = training.trainer(tmp_path / "out", [callback], max_steps=2)
    agent = ScriptedAgent(tmp_path / "out")

    def mend():
        training.wait_until(lambda: "training is over" in log.text)
        looks = callback._training.watch.looks
        training.wait_until(lambda: callback._training.watch.looks >= looks + 7)
        unreadable.rmdir()
        agent.publish(2, 0.5)
        agent.beat()

    mender = threading.Thread(target=mend)
    mender.start()
    trained.train()
    mender.join()

    assert logged(trained) == [(2, {ANLS: 0.5})]
    assert log.text.count("it is tried again in") == 1
    assert "no more results" not in log.text


def test_the_end_does_not_wait_for_files_that_cannot_be_read_and_tells_why(tmp_path, unreadable, log, monkeypatch):
    monkeypatch.setattr(evalcar_trainer, "_PATIENCE", 1.0)  # an error is given up by the wait, not by this
    training.trainer(tmp_path / "out", [EvalcarCallback(poll_interval=0.1, stale_after=3)], max_steps=2).train()

    assert re.search(r"IsADirectoryError: .*: no result of step 2 \(.*\); they can be sent later: evalcar push", log.text)
    assert "no more results" not in log.text


@pytest.mark.parametrize("heals", [True, False])
def test_what_cannot_be_remembered_keeps_no_result_back(tmp_path, log, heals):
    """As where logged.jsonl is another user's, or the disk is full."""
    run, elsewhere = tmp_path / "out", tmp_path / "nowhere"
    callback = EvalcarCallback(poll_interval=0.1)
    with ScriptedAgent(run) as agent:
        agent.folder.mkdir(parents=True)
        (agent.folder / "logged.jsonl").symlink_to(elsewhere / "logged.jsonl")

        def publish(step):
            agent.publish(step, step / 10)
            if step == 6 and heals:
                training.wait_until(lambda: "cannot be remembered now" in log.text)
                elsewhere.mkdir()

        trained = training.trainer(run, [callback, AtSave(pick_up=callback, then=publish)])
        trained.train()

    assert logged(trained) == [(step, {ANLS: step / 10}) for step in (2, 4, 6)]
    assert log.text.count("what was logged cannot be remembered now") == 1
    assert ("could not be remembered" in log.text) == (not heals)
    if heals:
        assert sorted(mark["global_step"] for mark in marks(run)) == [2, 4, 6]


def test_a_torn_mark_is_written_again(tmp_path, monkeypatch):
    marks = evalcar_trainer._Marks(str(tmp_path))
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:20]))  # as where the disk is full
    with pytest.raises(OSError, match="No space left"):
        marks.append([{"evaluation": "a", "to": ["trainer"]}])
    monkeypatch.undo()

    marks.append([{"evaluation": "a", "to": ["trainer"]}])

    assert marks.read() == {"a": {"trainer"}}
