"""EvalcarCallback(start=True): the training starts the agent, and it is gone when everything is evaluated."""

import logging
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
import training
from evalcar_trainer import EvalcarCallback
from harness import HERE
from training import logged, trainer


@pytest.fixture(autouse=True)
def surroundings(bench, monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="evalcar")
    for name, value in (("EVALCAR", bench.evalcar), ("EVALCAR_EVALUATOR", str(HERE / "fake_evaluator.py")), ("FAKE_EVALUATOR", str(bench.script)),
                        ("XDG_STATE_HOME", str(bench.home / "state"))):  # fmt: skip
        monkeypatch.setenv(name, value)


def process_of(text):
    return int(re.search(r"evalcar was started \(process (\d+)", text)[1])


def is_there(pid):
    """A process of this number, that has not ended."""
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # the latter where it ends while it is read
        return False


def test_one_line_in_a_script_is_enough(bench, caplog):
    groups = []

    def known(step):
        """This training takes milliseconds a step and keeps one checkpoint: any later, and it would be gone before the agent looks."""
        groups.append(os.getpgid(process_of(caplog.text)))
        training.wait_until(lambda: step in training.steps_in_status(bench.run), what=f"step {step} in the status")

    look = training.AtSave(then=known)
    bench.tell(values_of_steps={2: 0.3, 4: 0.9, 6: 0.5})
    callback = EvalcarCallback(start=True, tasks=["docvqa_val"], eval_device="cpu", eval_steps=2, poll_interval=0.1)
    trained = trainer(bench.run, [callback, look], save_steps=6, save_total_limit=1, **training.best_by("docvqa_val/anls", eval_steps=6))

    trained.train()

    assert look.steps == [2, 4, 6]
    assert sorted(step for step, _ in logged(trained)) == [2, 4, 6]
    assert trained.state.best_global_step == 4
    kept = training.LlamaForCausalLM.from_pretrained(trained.state.best_model_checkpoint).state_dict()
    assert all(training.torch.equal(value, kept[name]) for name, value in trained.model.state_dict().items())
    pid = process_of(caplog.text)
    assert set(groups) == {pid} and pid != os.getpgid(0)
    assert not is_there(pid)
    assert training.status_of(bench.run)["agent"]["pid"] == pid
    assert not [record for record in caplog.records if record.name == "evalcar" and record.levelname == "WARNING"]


def test_a_training_that_begins_anew_goes_on_with_the_agent_that_it_started(bench, caplog):
    """As after an exception in a notebook, or by auto_find_batch_size."""

    class FailsOnce(training.TrainerCallback):
        has_failed = False

        def on_step_end(self, args, state, control, **_):
            if state.global_step == 1 and not self.has_failed:
                self.has_failed = True
                raise MemoryError

    bench.tell()
    callback = EvalcarCallback(start=True, tasks=["docvqa_val"], eval_device="cpu", poll_interval=0.1)
    trained = trainer(bench.run, [callback, FailsOnce()], max_steps=2)
    with pytest.raises(MemoryError):
        trained.train()
    trained.train()
    assert caplog.text.count("evalcar was started") == 1
    assert [step for step, _ in logged(trained)] == [2]
    assert not is_there(process_of(caplog.text))


def test_a_training_elsewhere_after_one_that_failed_has_an_agent_of_its_own(bench, caplog, tmp_path):
    class Fails(training.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            raise MemoryError

    bench.tell()
    callback = EvalcarCallback(start=True, tasks=["docvqa_val"], eval_device="cpu", poll_interval=0.1)
    with pytest.raises(MemoryError):
        trainer(tmp_path / "failed", [callback, Fails()], max_steps=2).train()
    first = process_of(caplog.text)
    trained = trainer(bench.run, [callback], max_steps=2)
    trained.train()
    assert caplog.text.count("evalcar was started") == 2
    assert [step for step, _ in logged(trained)] == [2]
    os.kill(first, signal.SIGTERM)  # it would end with this process


def test_a_checkpoint_that_went_before_the_agent_looked_is_told_of_and_not_waited_for(bench, caplog, monkeypatch):
    monkeypatch.setattr("evalcar_trainer._START_PATIENCE", 0)
    late, over = bench.home / "late", bench.home / "over"
    late.write_text(f'#!/bin/sh\nwhile [ ! -e {over} ]; do sleep 0.1; done\nexec {bench.evalcar} "$@"\n')
    late.chmod(0o755)
    look = training.AtSave(then=lambda step: step == 4 and over.touch())
    callback = EvalcarCallback(start=True, tasks=["docvqa_val"], eval_device="cpu", evalcar=str(late), poll_interval=0.1, stale_after=10_000)
    trained = trainer(bench.run, [callback, look], max_steps=4, save_steps=2, save_total_limit=1)

    trained.train()  # would wait for ever

    assert [step for step, _ in logged(trained)] == [4]
    assert "no result of step 2: its checkpoint was removed before evalcar knew of it" in caplog.text


def test_an_agent_that_cannot_run_is_told_of_and_not_waited_for(bench, caplog):
    trained = trainer(bench.run, [EvalcarCallback(start=True, tasks=["no_such_task"], poll_interval=0.1, stale_after=10_000)], max_steps=2)

    trained.train()  # would wait for hours

    assert trained.state.global_step == 2
    assert re.search(r"evalcar ended with code 2: .*no_such_task.*: no result of step 2", caplog.text)
    assert re.search(r"evalcar ended with code 2: .*no_such_task.*: nobody evaluates what is saved", caplog.text)  # while training went on


def test_without_the_program_the_training_goes_on(bench, caplog):
    callback = EvalcarCallback(start=True, tasks=["docvqa_val"], evalcar=str(bench.home / "nothing"), poll_interval=0.1, stale_after=0.5)
    trained = trainer(bench.run, [callback], max_steps=2)

    trained.train()

    assert trained.state.global_step == 2
    assert "FileNotFoundError" in caplog.text and "nothing" in caplog.text


def processes_of(bench):
    """{process: command} of those that were born with this test's script, and have not ended."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"FAKE_EVALUATOR={bench.script}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
    return {pid: command for pid, command in found.items() if pid != os.getpid() and is_there(pid)}


@pytest.mark.parametrize(("moment", "steps"), [pytest.param("before", [], marks=pytest.mark.full), ("after", [2, 4]), ("in", [2, 4])])
def test_after_a_killed_training_the_agent_finishes_what_is_left_and_ends(bench, moment, steps):
    gate = bench.home / "gate"
    bench.tell(at_sample={"doc": 0, "do": "wait", "until": str(gate)})
    program = training.__file__.replace("training.py", "killed_program.py")

    killed = subprocess.run([sys.executable, program, str(bench.run), moment], capture_output=True, text=True, timeout=300)

    assert killed.returncode == -9, killed.stderr[-2000:]
    if steps:
        assert processes_of(bench), "the agent did not outlive the training"
    assert training.results_in(bench.run) == []
    gate.touch()
    training.wait_until(lambda: not processes_of(bench), what="the agent's end")
    assert sorted(row["global_step"] for row in training.results_in(bench.run)) == steps
    log = next((bench.home / "state" / "evalcar").glob("*.log")).read_text()
    assert log.count("training is over: process ") == 1
    if steps:
        assert training.status_of(bench.run)["agent"]["state"] == "ended"
