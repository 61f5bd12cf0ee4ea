"""evalcar push: results that came when the trainer had gone reach its loggers, each once."""

import logging
import os
import subprocess
import sys

import checkpoints
import evalcar_trainer
import pytest
import training
import wandb
from evalcar_trainer import EvalcarCallback
from scripted import ScriptedAgent
from training import has, results_in, trainer

ANLS = "eval/docvqa_val/anls"


def scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen = EventAccumulator(str(folder))
    seen.Reload()
    return sorted((event.step, pytest.approx(event.value)) for event in seen.Scalars(ANLS)) if ANLS in seen.Tags()["scalars"] else []


@pytest.fixture
def gone(bench, monkeypatch, caplog):
    """A training with TensorBoard that did not wait for the results of its last checkpoints; they are there now."""
    caplog.set_level(logging.INFO, logger="evalcar")
    gate = bench.home / "gate"
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(bench.home / "events"))
    sidecar = bench.sidecar().start()
    callback = EvalcarCallback(poll_interval=0.1, timeout=0)
    close = training.AtSave(then=lambda step: training.wait_until(lambda: callback._training.watch.found) if step == 2 else None)
    held = {"doc": 0, "do": "wait", "until": str(gate)}
    slow = training.AtSave(then=lambda step: bench.tell(at_sample=held) if step == 2 else None)
    trainer(bench.run, [callback, close, slow], report_to=["tensorboard"]).train()
    early = scalars(bench.home / "events")
    gate.write_text("")
    sidecar.wait_for(lambda s: len(s.published()) == 3, what="all results")
    assert sidecar.stop() == 0
    assert [step for step, _ in early] == [2], "one was logged, two come late"
    return bench


def expected(run):
    return sorted((row["global_step"], row["metrics"][ANLS]) for row in results_in(run))


def test_late_results_go_to_where_the_training_logged_and_only_once(gone):
    arguments = ["--output-dir", str(gone.run)]
    assert evalcar_trainer.push([*arguments, "--dry-run"]) == 0
    assert len(scalars(gone.home / "events")) == 1

    assert evalcar_trainer.push(arguments) == 0

    assert scalars(gone.home / "events") == expected(gone.run)
    assert evalcar_trainer.push(arguments) == 3
    assert scalars(gone.home / "events") == expected(gone.run)


def test_results_of_another_trainings_checkpoints_are_not_sent(gone, capsys):
    """An earlier training in this folder saved step 5, which this one passed without a save, and step 6 before this one did."""
    others = [{**row, "seq": seq, "global_step": step, "weights_sha256": "0" * 64, "evaluation": f"theirs{seq}", "metrics": {ANLS: 0.125}}
              for row in results_in(gone.run)[:1] for seq, step in ((101, 5), (102, 6))]  # fmt: skip
    ours = expected(gone.run)
    with (gone.run / "_evalcar" / "metrics.jsonl").open("a") as file:
        file.writelines(training.json.dumps(row) + "\n" for row in others)
    arguments = ["--output-dir", str(gone.run)]

    assert evalcar_trainer.push(arguments) == 0

    assert scalars(gone.home / "events") == ours
    assert "2 results are of checkpoints that the last training here did not save" in capsys.readouterr().err
    assert evalcar_trainer.push(arguments) == 3
    assert evalcar_trainer.push([*arguments, "--tensorboard", str(gone.home / "all")]) == 0
    assert [step for step, _ in scalars(gone.home / "all")] == [5, 6]


def test_of_a_superseded_line_what_the_later_one_has_not_measured_is_sent(tmp_path, capsys):
    """The tasks were [a, b, c] and are [a, c, d]; d failed, and of c there is no number any more."""
    agent = ScriptedAgent(tmp_path / "out")
    agent.publish(2, None, metrics={"eval/a/acc": 0.1, "eval/a/acc_stderr": 0.01, "eval/b/acc": 0.2, "eval/c/acc": 0.3})
    agent.publish(2, None, metrics={"eval/d/acc": 0.4})
    agent.publish(2, None, metrics={"eval/a/acc": 0.5}, supersedes=1, missing={"eval/c/acc": "not finite", "eval/d": "no data"})
    arguments = ["--output-dir", str(agent.run), "--tensorboard", str(tmp_path / "events"), "--dry-run"]

    assert evalcar_trainer.push(arguments) == 0

    told = [line.split(": ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert told == ["step 2, regular: " + rest for rest in ("eval/b/acc 0.2", "eval/d/acc 0.4", "eval/a/acc 0.5")]


def test_a_line_that_others_superseded_in_turn_is_sent_with_what_none_of_them_has(tmp_path, capsys):
    agent = ScriptedAgent(tmp_path / "out")
    agent.publish(2, None, metrics={"eval/a/acc": 0.1, "eval/b/acc": 0.2, "eval/c/acc": 0.3})
    agent.publish(2, None, metrics={"eval/a/acc": 0.4}, supersedes=1)
    agent.publish(2, None, metrics={"eval/a/acc": 0.5, "eval/b/acc": 0.6}, supersedes=2)

    assert evalcar_trainer.push(["--output-dir", str(agent.run), "--tensorboard", str(tmp_path / "events"), "--dry-run"]) == 0

    told = [line.split(": ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert told == ["step 2, regular: eval/c/acc 0.3", "step 2, regular: eval/a/acc 0.5, eval/b/acc 0.6"]


def test_the_command_finds_the_run_and_the_python_that_has_the_loggers(gone):
    environment = dict(os.environ, EVALCAR_PYTHON=sys.executable)
    command = [gone.evalcar, "push", "--db", str(gone.home / "state.db")]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr
    assert sorted(line.split(": ")[1] for line in done.stdout.splitlines()) == ["step 4, regular", "step 6, regular"]
    assert scalars(gone.home / "events") == expected(gone.run)
    assert again.returncode == 3
    assert again.stderr == f"nothing to send: every result of {gone.run} was logged\n"


@pytest.mark.skipif(not has("wandb"), reason="wandb is not installed")
def test_late_results_go_to_the_wandb_run_that_is_named(bench, monkeypatch):
    for name, value in (("MODE", "offline"), ("DIR", str(bench.home)), ("SILENT", "true")):
        monkeypatch.setenv("WANDB_" + name, value)
    wandb.teardown()  # which read its surroundings once for all tests of this process
    checkpoints.write_hugging_face(bench.run, 5)
    assert bench.sidecar().once() == 0

    assert evalcar_trainer.push(["--output-dir", str(bench.run), "--wandb", "team/project/run7"]) == 0

    history, axes = training.wandb_run(bench.home)
    assert [(row["evalcar/global_step"], row[ANLS]) for row in history if ANLS in row] == expected(bench.run)
    assert next(bench.home.glob("wandb/offline-run-*")).name.endswith("-run7")


def test_without_a_place_it_asks_for_one(bench, capsys):
    checkpoints.write_hugging_face(bench.run, 5)
    assert bench.sidecar().once() == 0

    assert evalcar_trainer.push(["--output-dir", str(bench.run)]) == 2
    assert "name the place by --tensorboard or --wandb" in capsys.readouterr().err
    assert evalcar_trainer.push(["--output-dir", str(bench.run), "--tensorboard", str(bench.home / "t"), "--since", "1"]) == 3
