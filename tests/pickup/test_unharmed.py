"""What goes wrong in the callback's own surroundings neither ends the training nor keeps anything of it running."""

import json
import logging
import subprocess
import threading
import types

import evalcar_trainer
import pytest
import training
from accelerate.state import AcceleratorState
from evalcar_trainer import EvalcarCallback
from scripted import ScriptedAgent
from transformers import PrinterCallback, TrainerCallback


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


@pytest.mark.parametrize("told", [{"evaluations_left_out": 1}, {"nothing_left_out": True}])
def test_a_step_that_was_over_is_not_waited_for_where_the_heartbeat_tells_a_part_and_no_more_of_it(tmp_path, log, told):
    """Of a long list it tells the newest; an agent that begins anew tells none, and may measure it."""

    def tell(state):
        if state.global_step == 2:
            agent.row(2, "skipped", "every second checkpoint is evaluated")
            training.wait_until(lambda: callback._training.watch.seen.evaluations(2), what="the word of step 2")
        else:
            del agent.rows[2]
            agent.more.update(told)
            agent.publish(4, 0.5)
            training.wait_until(lambda: told.keys() <= callback._training.watch.seen.status.keys(), what="the shorter list")

    callback = EvalcarCallback(poll_interval=0.1, timeout=3.0)
    with ScriptedAgent(tmp_path / "run") as agent:
        training.trainer(tmp_path / "run", [callback, At("on_save", tell)], max_steps=4).train()
    [warning] = warnings(log)
    if "evaluations_left_out" in told:
        assert warning == "no result of step 2: skipped: every second checkpoint is evaluated"
    else:
        assert warning.startswith("3 s are over: no result of step 2 (the agent has told nothing of it yet)")


def test_a_score_that_ends_the_training_at_an_epochs_save_is_waited_behind_before_the_best_is_loaded(tmp_path):
    def publish(state):
        agent.publish(state.global_step, 1.0 / state.global_step)
        training.wait_until(lambda: any(each[1]["global_step"] == state.global_step for each in list(callback._training.watch.found)), what="the row")

    waited = []
    callback = EvalcarCallback(poll_interval=0.1, early_stopping_patience=1)
    at_end = At("on_train_end", lambda _: waited.append(callback._training.waited))
    with ScriptedAgent(tmp_path / "run") as agent:
        settings = {**training.best_by("docvqa_val/anls"), "eval_strategy": "epoch", "save_strategy": "epoch"}
        trained = training.trainer(tmp_path / "run", [At("on_save", publish), at_end, callback], max_steps=-1, num_train_epochs=5,
                                   per_device_train_batch_size=64, **settings)  # fmt: skip
        trained.train()
    assert (trained.state.global_step, trained.state.best_global_step) == (2, 1)
    assert waited == [True]


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


def test_a_limit_that_was_lifted_is_given_back_to_the_arguments_that_had_it(tmp_path):
    """Where loading the best raised, on_train_end did not come."""

    def fail(state):
        raise MemoryError

    callback = EvalcarCallback(poll_interval=0.1, timeout=0.0)
    first = training.trainer(tmp_path / "first", [callback, At("on_step_begin", fail)], save_total_limit=None)
    with pytest.raises(MemoryError):
        first.train()
    callback._training.limited, callback._training.save_total_limit = first.args, 1
    other = training.trainer(tmp_path / "other", [callback], max_steps=2)
    other.train()
    assert (first.args.save_total_limit, other.args.save_total_limit) == (None, None)

    callback._training = evalcar_trainer._Training(callback, first.args, first.state, None)
    callback._training.limited, callback._training.save_total_limit = first.args, 1
    with pytest.raises(MemoryError):
        first.train()
    assert first.args.save_total_limit == 1


def test_of_several_ranks_only_callbacks_that_cannot_ask_the_others_are_given_results():
    class WandbCallback:
        def on_log(self, *_, **__):
            pass

    class MyWandb(WandbCallback):
        pass

    class Mine(WandbCallback):
        pass

    class Alone(WandbCallback):
        logs_on_first_rank = True

    for each in (Mine, Alone):
        each.__bases__ = (TrainerCallback,)
        each.on_log = WandbCallback.on_log
    handler = types.SimpleNamespace(callbacks=[MyWandb(), Mine(), Alone(), PrinterCallback()])
    one, several = evalcar_trainer._Loggers(handler), evalcar_trainer._Loggers(handler, several=True)
    assert set(one.names()) == {"trainer", "wandb", "Mine", "Alone", "PrinterCallback"} and one.left_out() == []
    assert set(several.names()) == {"trainer", "wandb", "Alone", "PrinterCallback"} and several.left_out() == ["Mine"]


def test_weights_alone_are_what_a_trainer_loads_but_for_deepspeed_and_fsdp(tmp_path, monkeypatch):
    def loads(**shared):
        monkeypatch.setattr(AcceleratorState, "_shared_state", shared)
        return evalcar_trainer._is_loadable(types.SimpleNamespace(fsdp=["full_shard"], deepspeed=None), str(tmp_path))

    (tmp_path / "model.safetensors").touch()
    assert loads(deepspeed_plugins=None)  # fsdp= says nothing where accelerate does not do it, as on a CPU
    assert not loads(fsdp_plugin=object()) and not loads(deepspeed_plugins={"": object()}) and not loads()
    (tmp_path / "pytorch_model_fsdp_0").mkdir()
    assert loads(fsdp_plugin=object())
    (tmp_path / "latest").write_text("global_step2")
    assert not loads(deepspeed_plugins={"": object()})
    (tmp_path / "global_step2").mkdir()
    assert loads(deepspeed_plugins={"": object()})
