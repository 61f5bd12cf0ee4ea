"""The trainer is killed and resumed, the agent is killed and started again, a result is corrected: each number is logged once."""

import logging
import shutil
import subprocess
import sys

import checkpoints
import pytest
import training
from evalcar_trainer import EvalcarCallback, Reader
from training import logged, results_in, trainer

ANLS = "eval/docvqa_val/anls"


def run_program(bench, *arguments):
    command = [sys.executable, training.__file__.replace("training.py", "trainer_program.py"), str(bench.run), str(bench.home / "logged"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_a_killed_trainer_and_a_killed_agent_log_nothing_twice(bench):
    sidecar = bench.sidecar().start()
    killed = run_program(bench, "--max-steps", "400", "--die-after", "2")
    assert killed.returncode == -9, killed.stderr[-2000:]
    sidecar.kill()
    done = len((bench.home / "logged").read_text().splitlines())
    assert done >= 1

    sidecar.start()
    saved = {int(path.name.split("-")[1]) for path in bench.run.glob("checkpoint-*")}
    newest = max(saved)
    # The second training waits for its own checkpoints alone: what comes after its end would be told by nobody.
    sidecar.wait_for(lambda s: {(step, "regular") for step in saved} <= s.published(), what="the results of the first training")
    resumed = run_program(bench, "--max-steps", str(newest + 4), "--resume")

    assert resumed.returncode == 0, resumed.stderr[-2000:]
    assert sidecar.stop() == 0
    told = [tuple(map(float, line.split())) for line in (bench.home / "logged").read_text().splitlines()]
    rows = [(float(row["global_step"]), row["metrics"][ANLS]) for row in results_in(bench.run)]
    assert sorted(told) == sorted(rows)
    assert {newest + 2, newest + 4} <= {step for step, _ in told}


def test_results_of_checkpoints_that_lay_there_before_are_another_trainings(bench, caplog, monkeypatch):
    """Also where the first look at them takes longer than the training takes to its first checkpoint."""
    caplog.set_level(logging.INFO, logger="evalcar")
    look, looks = Reader.poll, []

    def slow_at_first(reader):
        looks.append(1)
        training.time.sleep(2 if len(looks) == 1 else 0)
        return look(reader)

    monkeypatch.setattr(Reader, "poll", slow_at_first)
    for step in (2, 5):
        checkpoints.write_hugging_face(bench.run, step)
    assert bench.sidecar().once() == 0
    sidecar = bench.sidecar("--set", "watch.settle_time=1s").start()
    shutil.rmtree(bench.run / "checkpoint-2")  # the trainer writes its own

    trained = trainer(bench.run, [EvalcarCallback(poll_interval=0.1)], max_steps=6)
    trained.train()

    assert sidecar.stop() == 0
    newest = {row["global_step"]: row["metrics"][ANLS] for row in results_in(bench.run)}
    assert sorted(newest) == [2, 4, 5, 6]
    assert [(step, values[ANLS]) for step, values in sorted(logged(trained))] == [(step, newest[step]) for step in (2, 4, 6)]
    assert "1 results of checkpoints that this training did not save are not logged" in caplog.text


def test_a_corrected_result_is_logged_once_as_a_correction(bench, caplog):
    """A checkpoint is written again while training goes on: its number is superseded."""
    caplog.set_level(logging.INFO, logger="evalcar")
    sidecar = bench.sidecar("--set", "watch.settle_time=1s").start()
    pick_up = EvalcarCallback(poll_interval=0.1)

    def rewrite(step):
        if step != 4:
            return
        training.wait_until(lambda: pick_up._training.watch.marks_path and (bench.run / "_evalcar" / "logged.jsonl").exists())
        model = training.small_model()
        model.save_pretrained(bench.run / "checkpoint-2")
        sidecar.wait_for(lambda s: len([row for row in results_in(bench.run) if row["global_step"] == 2]) == 2, what="the correction")

    trained = trainer(bench.run, [pick_up, training.AtSave(pick_up=pick_up, then=rewrite)])
    trained.train()

    assert sidecar.stop() == 0
    rows = [row for row in results_in(bench.run) if row["global_step"] == 2]
    assert rows[1]["supersedes"] == rows[0]["seq"]
    assert [values for step, values in logged(trained) if step == 2] == [row["metrics"] for row in rows]
    assert caplog.text.count("(a correction)") == 1
    assert len([step for step, _ in logged(trained)]) == 4


@pytest.mark.parametrize("deleted", ["logged.jsonl", None])
def test_a_resumed_training_knows_what_it_logged(bench, deleted):
    sidecar = bench.sidecar().start()
    first = trainer(bench.run, [EvalcarCallback(poll_interval=0.1), training.AtSave()], max_steps=6)
    first.train()
    assert len(logged(first)) == 3
    if deleted:  # then the trainer's own state knows what it logged before its last save
        lines = (bench.run / "_evalcar" / deleted).read_text().splitlines(keepends=True)
        (bench.run / "_evalcar" / deleted).write_text(lines[-1][:20])  # torn, and the others gone
    state = training.json.loads((bench.run / "checkpoint-6" / "trainer_state.json").read_text())
    known = [entry for entry in state["log_history"] if ANLS in entry]

    second = trainer(bench.run, [EvalcarCallback(poll_interval=0.1)], max_steps=8)
    second.train(resume_from_checkpoint=True)

    assert sidecar.stop() == 0
    steps = [step for step, _ in logged(second)]
    assert len(steps) == len(set(steps))
    assert set(steps) == ({2, 4, 6, 8} if deleted else {entry["step"] for entry in known} | {8})
