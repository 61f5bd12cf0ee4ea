"""A training in the folder of an earlier one: its steps come again, and what the agent tells of the first ones is not of it."""

import json
import logging
import os
import signal
import threading
import time

import evalcar_trainer
import pytest
import training
from evalcar_trainer import EvalcarCallback
from harness import HERE
from scripted import ScriptedAgent
from training import logged, results_in, trainer
from transformers import TrainerCallback

ANLS = "eval/docvqa_val/anls"


@pytest.fixture(autouse=True)
def log(caplog):
    caplog.set_level(logging.INFO, logger="evalcar")
    return caplog


def newest_of(run):
    """{step: score} by the last line of each."""
    return {row["global_step"]: row["metrics"][ANLS] for row in results_in(run)}


def told_of(run, step):
    """{generation: state}"""
    return {row["generation"]: row["state"] for row in training.status_of(run)["evaluations"] if row["step"] == step}


class AgentSleeps(TrainerCallback):
    """It says something new, and then sleeps while the last step is saved, and for three seconds of the wait: as on a network file
    system, where it looks every ten seconds."""

    def __init__(self, run, step):
        self.run, self.step = run, step

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == self.step - 1:
            before = training.status_of(self.run)
            training.wait_until(lambda: training.status_of(self.run)["time"] != before["time"], what="a heartbeat")
            pid = training.status_of(self.run)["agent"]["pid"]  # `before` may be of one that has ended
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(3.0, os.kill, (pid, signal.SIGCONT)).start()


@pytest.mark.parametrize("start", [False, True], ids=["beside", "started"])
def test_the_end_waits_for_the_last_checkpoint_that_was_saved_again(bench, monkeypatch, log, start):
    """With the interval that everybody has: what it knew of the agent is ten seconds old."""
    for name, value in (("EVALCAR", bench.evalcar), ("EVALCAR_EVALUATOR", str(HERE / "fake_evaluator.py")), ("FAKE_EVALUATOR", str(bench.script)),
                        ("XDG_STATE_HOME", str(bench.home / "state"))):  # fmt: skip
        monkeypatch.setenv(name, value)
    options = dict(start=True, tasks=["docvqa_val"], eval_device="cpu") if start else {}
    if not start:
        sidecar = bench.sidecar().start()
    trainer(bench.run, [EvalcarCallback(poll_interval=0.1, **options)]).train()
    assert sorted(newest_of(bench.run)) == [2, 4, 6]
    gate = bench.home / "gate"
    bench.tell(at_sample={"doc": 0, "do": "wait", "until": str(gate)})

    def open_later():
        training.wait_until(lambda: told_of(bench.run, 6).get(2) in ("leased", "loading", "evaluating"), what="the second generation")
        time.sleep(1.5)
        gate.touch()

    opens = threading.Thread(target=open_later)
    opens.start()

    again = trainer(bench.run, [AgentSleeps(bench.run, 6), EvalcarCallback(**options)], save_steps=6, learning_rate=2e-2)
    again.train()

    opens.join()
    assert told_of(bench.run, 6) == {1: "published", 2: "published"}
    if not start:
        assert sidecar.stop() == 0
    assert len(results_in(bench.run)) == 4
    assert [(step, values[ANLS]) for step, values in logged(again)] == [(6, newest_of(bench.run)[6])]
    assert "WARNING" not in log.text


class SlowAtSave(TrainerCallback):
    """Another callback, before ours, that works on the save until the agent has measured it; W&B's uploads the checkpoint."""

    def __init__(self, run, generation):
        self.run, self.generation = run, generation

    def on_save(self, args, state, control, **_):
        over = ("published", "superseded")
        training.wait_until(lambda: told_of(self.run, state.global_step).get(self.generation) in over, what="the result")


def test_a_result_that_came_while_another_callback_worked_on_the_save_is_logged(bench, log):
    sidecar = bench.sidecar().start()
    trainer(bench.run, [EvalcarCallback(poll_interval=0.1)]).train()

    again = trainer(bench.run, [SlowAtSave(bench.run, 2), EvalcarCallback(poll_interval=0.1)], learning_rate=2e-2)
    again.train()

    assert sidecar.stop() == 0
    assert len(results_in(bench.run)) == 6
    assert sorted((step, values[ANLS]) for step, values in logged(again)) == sorted(newest_of(bench.run).items())
    assert log.text.count("(a correction)") == 0
    assert "WARNING" not in log.text


def test_weights_that_were_measured_before_have_the_score_that_they_had(bench, log):
    """The same training again: the agent measures nothing, and best and early stopping need the scores all the same."""
    scores = {2: 0.3, 4: 0.9, 6: 0.5}
    bench.tell(values_of_steps=scores)
    sidecar = bench.sidecar().start()
    trainer(bench.run, [EvalcarCallback(poll_interval=0.1)]).train()

    again = trainer(bench.run, [SlowAtSave(bench.run, 2), EvalcarCallback(poll_interval=0.1)], **training.best_by("docvqa_val/anls"))
    again.train()

    assert sidecar.stop() == 0
    assert [told_of(bench.run, step) for step in scores] == [{1: "published", 2: "superseded"}] * 3
    assert len(results_in(bench.run)) == 3
    assert sorted((step, values[ANLS]) for step, values in logged(again)) == list(scores.items())
    assert (again.state.best_global_step, again.state.best_metric) == (4, 0.9)
    assert "WARNING" not in log.text


def test_old_weights_that_are_measured_just_after_the_save_are_not_taken(tmp_path, log):
    run = tmp_path / "out"
    (run / "checkpoint-2").mkdir(parents=True)
    with ScriptedAgent(run) as agent:
        agent.row(2, "evaluating", weights_sha256="a")
        agent.beat()

        def publish(generation, value, sha256):
            agent.publish(2, value, weights_sha256=sha256)
            agent.row(2, "published", weights_sha256=sha256, generation=generation)

        def old_ones(step):
            publish(1, 0.25, "a")
            time.sleep(0.5)
            agent.row(2, "evaluating", weights_sha256="b", generation=2)
            threading.Timer(1.0, publish, (2, 0.75, "b")).start()

        trained = trainer(run, [EvalcarCallback(poll_interval=0.1), training.AtSave(then=old_ones)], max_steps=2)
        trained.train()

    assert logged(trained) == [(2, {ANLS: 0.75})]
    assert "WARNING" not in log.text


def test_of_two_results_that_come_together_each_number_is_logged_of_the_latest_that_has_its_task(tmp_path, log):
    run = tmp_path / "out"
    with ScriptedAgent(run) as agent:

        def publish(step):
            common = {"run": "r", "global_step": step, "checkpoint_type": "regular", "final": True, "time": "2026-01-01T00:00:01Z"}
            rows = [{**common, "seq": 1, "evaluation": "1", "metrics": {"eval/a/acc": 0.1, "eval/b/acc": 0.2}},
                    {**common, "seq": 2, "evaluation": "2", "metrics": {"eval/a/acc": 0.3, "eval/c/acc": 0.4}, "supersedes": 1}]  # fmt: skip
            agent.folder.mkdir(parents=True, exist_ok=True)
            with (agent.folder / "metrics.jsonl").open("a") as file:
                file.write("".join(json.dumps(row) + "\n" for row in rows))
            agent.row(step, "published")

        trained = trainer(run, [EvalcarCallback(poll_interval=0.1), training.AtSave(then=publish)], max_steps=2)
        trained.train()

    assert logged(trained) == [(2, {"eval/b/acc": 0.2}), (2, {"eval/a/acc": 0.3, "eval/c/acc": 0.4})]


# ---- resumed from a step that was saved again


class SavedAgain:
    """Step 2 was measured (seq 1, weights a, 0.9), then a training that began anew saved it again (weights b) and was killed."""

    def __init__(self, agent, folder):
        self.agent = agent
        trainer(agent.run, [], max_steps=2).train()
        agent.publish(2, 0.9, weights_sha256="a")
        agent.row(2, "published", weights_sha256="a")
        self.marks = folder / "_evalcar" / "logged.jsonl"

    def is_known(self, state, **more):
        self.agent.row(2, state, generation=2, **more)

    def is_remembered(self, **more):
        """By the killed training, and by the agent not yet: both died with the machine."""
        self.marks.write_text(json.dumps({"places": {"tensorboard": "events"}, "global_step": 2, "after": 1, "resumed_from": 0, **more}) + "\n")

    def is_measured(self):
        self.agent.publish(2, 0.25, weights_sha256="b")
        self.is_known("published", weights_sha256="b")


@pytest.mark.parametrize("known", ["as weights", "without weights", "by the training alone"])
@pytest.mark.parametrize("is_lost", [False, True], ids=["measured", "lost"])
def test_the_step_resumed_from_has_the_score_of_its_last_save(tmp_path, log, known, is_lost):
    run = tmp_path / "out"
    agent = ScriptedAgent(run)
    again = SavedAgain(agent, run)
    if known == "by the training alone":
        again.is_remembered()
    else:
        again.is_known("leased", **({"weights_sha256": "b"} if known == "as weights" else {}))
    agent.beat()
    with agent:

        def at_save(step):
            again.is_known("lost", reason="gone") if is_lost else again.is_measured()
            training.wait_until(lambda: told_of(run, 2) == {2: "lost" if is_lost else "published"}, what="what became of it")
            agent.publish(4, 0.5, weights_sha256="c")
            agent.row(4, "published", weights_sha256="c")

        callback = EvalcarCallback(poll_interval=0.1)
        trained = trainer(run, [callback, training.AtSave(pick_up=callback, then=at_save)], max_steps=4, **training.best_by("docvqa_val/anls"))
        trained.train(resume_from_checkpoint=True)

    expected = [(4, {ANLS: 0.5})] if is_lost else [(2, {ANLS: 0.25}), (4, {ANLS: 0.5})]
    assert sorted(logged(trained), key=lambda each: each[0]) == expected
    assert (trained.state.best_global_step, trained.state.best_metric) == (4, 0.5)


def test_the_same_weights_saved_again_keep_their_score_for_a_training_that_is_resumed_from_them(tmp_path, log):
    run = tmp_path / "out"
    agent = ScriptedAgent(run)
    again = SavedAgain(agent, run)
    again.is_remembered()
    again.is_known("superseded", weights_sha256="a")
    agent.beat()
    with agent:

        def publish(step):
            agent.publish(4, 0.5, weights_sha256="c")

        trained = trainer(run, [EvalcarCallback(poll_interval=0.1), training.AtSave(then=publish)], max_steps=4, **training.best_by("docvqa_val/anls"))
        trained.train(resume_from_checkpoint=True)

    assert logged(trained) == [(2, {ANLS: 0.9}), (4, {ANLS: 0.5})]
    assert (trained.state.best_global_step, trained.state.best_metric) == (2, 0.9)


@pytest.mark.parametrize("known", ["by the agent", "by the training alone"])
def test_what_is_sent_later_of_a_step_resumed_from_is_of_its_last_save(tmp_path, log, capsys, known):
    run = tmp_path / "out"
    agent = ScriptedAgent(run)
    again = SavedAgain(agent, run)
    agent.publish(4, 0.5, weights_sha256="c")
    agent.row(4, "published", weights_sha256="c")
    again.is_remembered(after=0 if known == "by the agent" else 1)
    with again.marks.open("a") as marks:
        marks.write(json.dumps({"places": {"tensorboard": "events"}, "global_step": 4, "after": 0, "resumed_from": 2}) + "\n")
    if known == "by the agent":
        again.is_known("leased", weights_sha256="b")
    agent.beat()
    arguments = ["--output-dir", str(run), "--dry-run"]
    capsys.readouterr()  # what the training said

    assert evalcar_trainer.push(arguments) == 0

    assert [line.split(": ")[1] for line in capsys.readouterr().out.splitlines()] == ["step 4, regular"]
    again.is_measured()
    agent.beat()
    assert evalcar_trainer.push(arguments) == 0
    told = [line.split(": ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert told == ["step 4, regular: eval/docvqa_val/anls 0.5", "step 2, regular: eval/docvqa_val/anls 0.25"]
