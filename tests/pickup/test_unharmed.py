"""What goes wrong in the callback's own surroundings neither ends the training nor keeps anything of it running."""

import json
import logging
import subprocess
import threading

import evalcar_trainer
import pytest
import training
from evalcar_trainer import EvalcarCallback
from scripted import ScriptedAgent
from transformers import TrainerCallback


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, logger="evalcar")
    return caplog


def warnings(log):
    return [record.getMessage() for record in log.records if record.name == "evalcar" and record.levelname == "WARNING"]


def watchers():
    return [thread for thread in threading.enumerate() if thread.name == "evalcar"]


class At(TrainerCallback):
    """Does something at an event."""

    def __init__(self, event, do):
        setattr(self, event, lambda args, state, control, **_: do(state))


def test_without_a_thread_the_training_goes_on(tmp_path, log, monkeypatch):
    def no_more(self):
        raise RuntimeError("can't start new thread")

    with ScriptedAgent(tmp_path / "run") as agent:
        monkeypatch.setattr(evalcar_trainer._Watch, "start", no_more)
        agent.row(2, "evaluating")
        trained = training.trainer(tmp_path / "run", [EvalcarCallback(poll_interval=0.1)])
        trained.train()
    assert trained.state.global_step == 6
    assert warnings(log)[0].startswith("can't start new thread: no results are taken up; they can be sent later: evalcar push")


@pytest.mark.parametrize("broken", ["_has_ended", "_best_there", "_best_place"])
def test_a_mistake_while_it_waits_or_decides_ends_neither_the_training_nor_the_wait_of_others(tmp_path, log, monkeypatch, broken):
    def fails(*_):
        raise TypeError("unhashable type: 'list'")

    monkeypatch.setattr(evalcar_trainer._Training, broken, fails)
    with ScriptedAgent(tmp_path / "run") as agent:
        trained = training.trainer(tmp_path / "run", [At("on_save", lambda state: agent.publish(state.global_step, 0.5)), EvalcarCallback(poll_interval=0.1)],
                                   **training.best_by("docvqa_val/anls"))  # fmt: skip
        trained.train()
    assert trained.state.global_step == 6
    assert warnings(log) == ["TypeError: unhashable type: 'list'"]


def test_a_kind_that_is_no_word_tells_no_weights():
    assert evalcar_trainer._weights_of({"checkpoint_type": ["regular"], "weights_sha256": "ab"}) is None


def test_a_row_that_comes_after_the_wait_is_remembered(tmp_path, log):
    run = tmp_path / "run"
    with ScriptedAgent(run) as agent:
        agent.row(2, "evaluating")
        late = At("on_train_end", lambda _: agent.publish(2, 0.7))  # before evalcar's own, as where the best model takes long to load
        trained = training.trainer(run, [late, EvalcarCallback(poll_interval=60.0, timeout=1.0)], max_steps=2)
        trained.train()
    assert training.logged(trained) == [(2, {"eval/docvqa_val/anls": 0.7})]
    marks = [json.loads(line) for line in (run / "_evalcar" / "logged.jsonl").read_text().splitlines()]
    assert [mark["seq"] for mark in marks if "seq" in mark] == [1]
    assert not [text for text in warnings(log) if "remembered" in text]


def test_a_step_that_was_over_is_not_waited_for_where_the_heartbeat_tells_no_more_of_it(tmp_path, log):
    """Of a long list it tells the newest."""

    def tell(state):
        if state.global_step == 2:
            agent.row(2, "skipped", "every second checkpoint is evaluated")
            training.wait_until(lambda: callback._training.watch.seen.evaluations(2), what="the word of step 2")
        else:
            del agent.rows[2]
            agent.more["evaluations_left_out"] = 1
            agent.publish(4, 0.5)
            training.wait_until(lambda: "evaluations_left_out" in callback._training.watch.seen.status, what="the shorter list")

    callback = EvalcarCallback(poll_interval=0.1, timeout=5.0)
    with ScriptedAgent(tmp_path / "run") as agent:
        training.trainer(tmp_path / "run", [callback, At("on_save", tell)], max_steps=4).train()
    assert warnings(log) == ["no result of step 2: skipped: every second checkpoint is evaluated"]


def test_a_training_that_begins_anew_leaves_one_thread(tmp_path):
    """As after an exception in a notebook, or by auto_find_batch_size."""
    seen = []

    def fail_once(state):
        seen.append(len(watchers()))
        if len(seen) == 1:
            raise MemoryError

    trained = training.trainer(tmp_path / "run", [EvalcarCallback(poll_interval=0.1, timeout=0.0), At("on_step_begin", fail_once)], max_steps=2)
    before = len(watchers())
    with pytest.raises(MemoryError):
        trained.train()
    trained.train()
    assert [each - before for each in seen] == [1, 1, 1]
    assert len(watchers()) == before


def test_an_agent_that_does_not_die_is_not_waited_for(log, monkeypatch):
    class Undying:
        pid, returncode = 2**30, None

        def poll(self):
            return None

        def terminate(self):
            pass

        def wait(self, timeout=None):
            assert timeout is not None
            raise subprocess.TimeoutExpired("evalcar", timeout)

    monkeypatch.setattr(evalcar_trainer.os, "killpg", lambda *_: None)
    agent = evalcar_trainer._Agent.__new__(evalcar_trainer._Agent)
    agent.process = Undying()
    agent.stop(patience=0.0)
    assert "was killed, and has not ended yet" in log.text
