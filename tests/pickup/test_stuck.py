"""The end of the training does not wait for an agent that lives but cannot measure, and waits for one that measures however long."""

import logging
import os
import re
import signal
import threading
import time

import evalcar_trainer
import pytest
import training
from evalcar_trainer import EvalcarCallback, Heartbeat, _Standstill
from harness import HERE
from scripted import ANLS, ScriptedAgent
from training import AtSave, logged, trainer

NO_DATA = "data set lmms-lab/DocVQA is not in /data"


@pytest.fixture(autouse=True)
def log(caplog):
    caplog.set_level(logging.INFO, logger="evalcar")
    return caplog


def warnings(log):
    return [record.getMessage() for record in log.records if record.name == "evalcar" and record.levelname == "WARNING"]


@pytest.mark.parametrize("script, reason", [
    ({"refuse": "evalcar-evaluator: device busy: cuda:0 is used by process 1"}, "device busy: cuda:0 is used by process 1"),
    ({"error": {"kind": "no_device", "message": "no CUDA device"}}, "no CUDA device"),
    ({"error": {"kind": "data", "stage": "evaluating", "message": NO_DATA}}, NO_DATA),
    ({"failing_tasks": {"docvqa_val": NO_DATA}}, NO_DATA),
], ids=["busy", "no-device", "no-data-told-late", "no-data"])  # fmt: skip
def test_an_agent_that_lives_but_cannot_measure_is_given_up_with_its_reason(bench, log, script, reason):
    bench.tell(**script)
    sidecar = bench.sidecar().start()
    trained = trainer(bench.run, [EvalcarCallback(poll_interval=0.1, stuck_after=4.0)], max_steps=4)

    trained.train()  # would wait for ever

    assert sidecar.process.poll() is None, "the agent has ended"
    assert logged(trained) == []
    last = warnings(log)[-1]
    assert re.match(r"evalcar has measured nothing for 4 s.*: no result of step 2 \(.*\); step 4 \(.*\); they can be sent later: evalcar push", last)
    assert reason in last
    assert {state for state, _ in sidecar.states().values()} <= {"leased", "loading"}
    bench.tell()  # repaired: it measures them when nobody waits
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="the results")
    assert sidecar.stop() == 0


@pytest.mark.parametrize("held", ["evaluating", "loading"])
def test_as_long_as_something_is_measured_or_loaded_nothing_is_given_up(bench, tmp_path, log, held):
    """Though the agent warns of something: one task of two has no data."""
    gate = tmp_path / "gate"
    script = {"load_after": str(gate)} if held == "loading" else {"at_sample": {"doc": 0, "do": "wait", "until": str(gate)}}
    bench.tell(failing_tasks={"textvqa_val": "data set lmms-lab/textvqa is not in /data"}, **script)
    sidecar = bench.sidecar(tasks="docvqa_val,textvqa_val").start()
    trained = trainer(bench.run, [EvalcarCallback(poll_interval=0.1, stuck_after=5.0)], max_steps=2)

    def open_it():
        training.wait_until(lambda: "training is over" in log.text)
        sidecar.wait_for(lambda s: s.states().get((2, "regular"), ("",))[0] == held, what="the work")
        time.sleep(8)
        gate.write_text("")

    opener = threading.Thread(target=open_it)
    opener.start()
    trained.train()
    opener.join()

    assert [step for step, _ in logged(trained)] == [2]
    assert [each[:45] for each in warnings(log)] == ["evalcar warns: textvqa_val cannot be measured"]
    assert sidecar.stop() == 4  # one task is missing


def test_what_is_waited_for_is_told_with_its_reason_and_the_agents_warning(tmp_path, log):
    run = tmp_path / "out"
    with ScriptedAgent(run) as agent:
        agent.agent["warning"] = "nothing can be evaluated: device busy"

        def tell(step):
            agent.row(step, "leased", "device busy:\n  cuda:0 is used by process 7")
            if step == 4:
                training.wait_until(lambda: callback._training.watch.seen.evaluations(4), what="the word of step 4")

        def publish():
            training.wait_until(lambda: "training is over" in log.text)
            agent.publish(2, 0.2)
            agent.publish(4, 0.4)

        publisher = threading.Thread(target=publish)
        publisher.start()
        callback = EvalcarCallback(poll_interval=0.1, stuck_after=60.0)
        trained = trainer(run, [AtSave(then=tell), callback], max_steps=4)
        trained.train()
        publisher.join()

    assert sorted(logged(trained)) == [(2, {ANLS: 0.2}), (4, {ANLS: 0.4})]
    said = next(record.getMessage() for record in log.records if "training is over" in record.getMessage())
    assert said == ("training is over; waiting for step 2 (leased: device busy: cuda:0 is used by process 7); step 4 (leased); evalcar warns: "
                    "nothing can be evaluated: device busy")  # fmt: skip
    assert warnings(log) == ["evalcar warns: nothing can be evaluated: device busy"]


def test_an_agent_that_was_started_here_has_its_warning_told_once_while_training_goes_on(bench, log, monkeypatch):
    for name, value in (("EVALCAR", bench.evalcar), ("EVALCAR_EVALUATOR", str(HERE / "fake_evaluator.py")), ("FAKE_EVALUATOR", str(bench.script)),
                        ("XDG_STATE_HOME", str(bench.home / "state"))):  # fmt: skip
        monkeypatch.setenv(name, value)
    bench.tell(refuse="evalcar-evaluator: device busy: cuda:0 is used by process 1")
    callback = EvalcarCallback(start=True, tasks=["docvqa_val"], eval_device="cpu", poll_interval=0.1, stuck_after=2.0, eval_steps=2)
    told = []

    def wait(step):
        if step == 2:
            training.wait_until(lambda: callback._training.watch.seen.warning(), what="the warning")
        told.append("evalcar warns: nothing can be evaluated" in log.text)

    trainer(bench.run, [callback, AtSave(then=wait)], max_steps=4).train()

    pid = int(re.search(r"evalcar was started \(process (\d+)", log.text)[1])
    os.kill(pid, signal.SIGTERM)  # it waits for the device, beyond the end of this process
    os.waitpid(pid, 0)
    assert told == [False, True]
    assert sum(each.startswith("evalcar warns: ") and "device busy" in each for each in warnings(log)) == 1


# ---- what a standstill is


def heartbeat(tmp_path, rows=(), **members):
    made = Heartbeat(tmp_path)
    made.status = {"agent": members.pop("agent", {"pid": 1}), "evaluations": list(rows), **members}
    return made


def evaluation(step, state, reason=None, progress=0.0):
    return {"step": step, "evaluation_id": step, "state": state, "reason": reason, "progress": progress, "generation": 1, "checkpoint_type": "regular"}


def test_a_try_that_fails_like_the_one_before_is_nothing_new_and_a_long_one_no_standstill(tmp_path):
    standstill, now = _Standstill(), 0.0

    def look(after, *rows, **members):
        nonlocal now
        now += after
        standstill.look(heartbeat(tmp_path, rows, **members), now)
        return standstill.seconds

    assert look(0, evaluation(2, "leased")) == 0
    assert look(100, evaluation(2, "leased")) == 100
    assert look(10, evaluation(2, "loading")) == 0  # the first try
    assert look(5, evaluation(2, "leased", "device busy")) == 5
    for tries in range(1, 4):
        assert look(1, evaluation(2, "loading")) == 5 + 300 * (tries - 1)
        assert look(300, evaluation(2, "leased", "device busy")) == 5 + 300 * tries
    assert look(1, evaluation(2, "loading", progress=0.5)) == 0  # further than ever
    assert look(10_000, evaluation(2, "loading", progress=0.5)) == 0
    assert look(50, evaluation(2, "leased", "device busy")) == 50
    assert look(50, evaluation(2, "leased", "device busy"), evaluation(4, "found")) == 0  # another one
    assert look(50, evaluation(2, "leased"), evaluation(4, "found"), agent={"current": {"step": 6}}) == 0
    assert look(50, evaluation(2, "leased"), evaluation(4, "found"), agent={"busy": True}) == 0  # in another output directory
    assert look(50, evaluation(2, "leased"), evaluation(4, "found"), agent={"busy": False}) == 50
    assert look(50, evaluation(2, "leased"), evaluation(4, "published")) == 0


@pytest.mark.parametrize("rows, members, is_hindered", [
    ([evaluation(2, "leased"), evaluation(4, "leased")], {}, False),  # their turn has not come
    ([evaluation(2, "leased", "device busy"), evaluation(4, "leased")], {}, False),
    ([evaluation(2, "leased", "device busy"), evaluation(4, "leased", "device busy")], {}, True),
    ([evaluation(2, "leased", "device busy"), evaluation(4, "published")], {}, True),
    ([evaluation(2, "leased"), evaluation(4, "leased")], {"agent": {"warning": "nothing can be evaluated"}}, True),
    ([evaluation(2, "failed", "it crashed"), evaluation(4, "published")], {}, False),  # it is tried again
    ([evaluation(2, "found"), evaluation(4, "complete")], {}, True),
    ([evaluation(4, "found")], {}, True),  # nothing is told of step 2
    ([evaluation(4, "found")], {"open_left_out": 7}, False),  # it may be of the rest
])  # fmt: skip
def test_the_end_gives_up_only_where_the_agent_says_that_something_is_wrong(tmp_path, rows, members, is_hindered):
    class End(evalcar_trainer._Training):
        def __init__(self, seen):
            self.options = EvalcarCallback()
            self.seen, self.handed = seen, dict.fromkeys((2, 4), evalcar_trainer._Save(0, None))

    assert bool(End(heartbeat(tmp_path, rows, **members))._hindrance([2, 4])) == is_hindered


def test_ten_minutes_are_waited_for_an_agent_that_is_stuck_and_any_time_if_it_is_said():
    assert EvalcarCallback().stuck_after == 600
    assert EvalcarCallback(stuck_after=None).stuck_after is None
