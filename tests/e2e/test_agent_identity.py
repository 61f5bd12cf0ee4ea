"""Whose checkpoints are these? Output directories that are deleted, made anew, or away for a moment."""

import json
import os
import shutil
import signal
import subprocess
import time

import checkpoints
from harness import hash_of


def runs(sidecar):
    return [name for name, in sidecar.query("SELECT name FROM run ORDER BY run_id")]


def run_id(bench):
    return (bench.run / "_evalcar" / "run_id").read_text()


def empty(folder):
    """Removes everything in it, as people do beside an agent that is just publishing: again, if a name comes or goes."""
    for _ in range(100):
        for entry in list(folder.iterdir()):
            shutil.rmtree(entry, ignore_errors=True)
        if not list(folder.iterdir()):
            return
    raise AssertionError(list(folder.iterdir()))


def test_a_directory_made_anew_is_another_run_even_with_the_same_inode(bench):
    checkpoints.write_hugging_face(bench.run, 5, seed="first")
    checkpoints.write_hugging_face(bench.run, 10, seed="first")
    sidecar = bench.sidecar()
    assert sidecar.once() == 0
    first = run_id(bench)
    # What a reused inode looks like: the very same folder, with nothing of before in it.
    empty(bench.run)

    assert sidecar.once() == 3
    assert list(bench.run.iterdir()) == []  # not a run before its first checkpoint

    checkpoints.write_hugging_face(bench.run, 5, seed="second")
    assert sidecar.once() == 0
    assert len(runs(sidecar)) == 2 and run_id(bench) != first
    line, = sidecar.metrics_lines()
    assert line["global_step"] == 5 and not line.get("supersedes")


def test_a_running_agent_notices_that_its_directory_was_made_anew(bench):
    checkpoints.write_hugging_face(bench.run, 10, seed="first")
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: len(s.published()) == 1, what="the first result")
    empty(bench.run)
    checkpoints.write_hugging_face(bench.run, 5, seed="second")
    sidecar.wait_for(lambda s: len(runs(s)) == 2 and len(s.metrics_lines()) == 1, what="a second run")
    assert sidecar.stop() == 0
    assert [line["global_step"] for line in sidecar.metrics_lines()] == [5]


def test_an_empty_mount_point_is_no_run_and_the_run_goes_on_when_it_is_back(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: len(s.published()) == 1, what="the result")
    away = bench.home / "away"
    status = bench.run / "_evalcar" / "status.json"
    sidecar.wait_for(lambda s: time.time() - status.stat().st_mtime > 5.1, what="a heartbeat that is due")
    bench.run.rename(away)
    bench.run.mkdir()
    time.sleep(3)  # longer than the pause before anything is concluded
    assert list(bench.run.iterdir()) == []
    bench.run.rmdir()
    away.rename(bench.run)
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="the next result")
    assert sidecar.stop() == 0
    assert len(runs(sidecar)) == 1
    assert len(bench.heard("load")) == 2  # nothing was measured again


def test_deleting_only_our_folder_keeps_the_run_and_its_numbers(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar()
    assert sidecar.once() == 0
    before = run_id(bench)
    shutil.rmtree(bench.run / "_evalcar")

    assert sidecar.once() == 0

    assert len(runs(sidecar)) == 1 and run_id(bench) == before
    assert len(bench.heard("load")) == 1


def test_weights_that_come_back_to_a_step_are_its_number_again(bench):
    """A trainer that was started anew from an older checkpoint, twice: A, then B, then A again, byte for byte."""
    folder = checkpoints.write_hugging_face(bench.run, 5, seed="A")
    whole = hash_of(bench.evalcar, folder, "regular")
    sidecar = bench.sidecar("--set", "watch.settle_time=1s", "--set", "watch.poll_interval=500ms").start()
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 1, what="the number of A")
    for count, seed in ((2, "B"), (3, "A")):
        checkpoints.write_safetensors(folder / "model.safetensors", seed)
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": 5}))
        sidecar.wait_for(lambda s, n=count: len(s.metrics_lines()) == n, what=f"the number of {seed}, the line {count}")

    first, other, last = sidecar.metrics_lines()
    assert (first["weights_sha256"], last["weights_sha256"]) == (whole, whole) and other["weights_sha256"] != whole
    assert last["metrics"] == first["metrics"] and last["supersedes"] == other["seq"]
    sidecar.wait_for(lambda s: s.states()[5, "regular"][0] == "published", what="the end of it")
    assert sidecar.query("SELECT weights_sha256 FROM metrics WHERE metric = 'anls'") == [(whole,)]
    best = bench.run / "_evalcar" / "best.json"  # follows from the database, right after
    sidecar.wait_for(lambda s: json.loads(best.read_text())["best"]["regular"]["weights_sha256"] == whole, what="the best one")
    results = bench.run / "_evalcar" / "results" / "5" / "regular"
    newest = max(results.rglob("*_results.json"), key=lambda path: path.name)
    assert newest == bench.run / "_evalcar" / last["results"]
    assert sidecar.stop() == 0


def lag(sidecar):
    path = sidecar.run / "_evalcar" / "status.json"
    return json.loads(path.read_text())["lag_steps"] if path.exists() else None


def told_lag(sidecar):
    done = subprocess.run([sidecar.evalcar, "status", "--json", "--db", str(sidecar.database)], env=sidecar.environment,
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["lag_steps"]


def test_the_lag_falls_when_the_checkpoint_ahead_is_deleted(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: s.published() and lag(s) == 0, what="the first result")
    torn = checkpoints.write_hugging_face(bench.run, 30)
    (torn / "model.safetensors").write_bytes(b"torn")
    sidecar.wait_for(lambda s: lag(s) == 25, what="the lag")

    shutil.rmtree(torn)

    sidecar.wait_for(lambda s: lag(s) == 0, timeout=60, what="the lag")
    assert told_lag(sidecar) == 0
    assert sidecar.stop() == 4  # what was torn and removed is lost


def test_the_lag_counts_a_deleted_checkpoint_as_long_as_its_lease_waits(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: s.published() and lag(s) == 0, what="the first result")
    bench.tell(delay=0.5)
    checkpoints.write_hugging_face(bench.run, 30)
    sidecar.wait_for(lambda s: s.states().get((30, "regular"), ("",))[0] == "evaluating", what="the next")
    shutil.rmtree(bench.run / "checkpoint-30")
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM checkpoint WHERE step = 30 AND gone_at <> ''"), what="the removal")
    assert told_lag(sidecar) == 25
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="the result")
    assert sidecar.stop() == 0


def test_a_checkpoint_that_went_while_no_agent_ran_is_no_lag(bench):
    for step in (5, 30):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar("--set", "evaluate.eval_steps=25")
    assert sidecar.once() == 0
    (bench.run / "checkpoint-30").rename(bench.home / "away")
    assert sidecar.once() == 0
    assert sidecar.query("SELECT step FROM checkpoint WHERE gone_at <> ''") == [(30,)]
    assert told_lag(sidecar) == 5  # checkpoint 5 is there, and eval_steps leaves it out


def leave_open_rows(bench, sidecar):
    """Checkpoint 5 is loading, 10 is leased and not complete any more, 15 is torn."""
    bench.tell(hang=True)
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
    torn = checkpoints.write_hugging_face(bench.run, 15)
    (torn / "model.safetensors").write_bytes(b"torn")
    sidecar.start()
    sidecar.wait_for(lambda s: bench.heard("load") and len(s.states()) == 3
                     and {state for state, _ in s.states().values()} == {"loading", "leased", "found"}, what="three open rows")
    bench.tell()


def open_rows(sidecar):
    return sidecar.query("SELECT run, step, state FROM evaluations WHERE state NOT IN "
                         "('published', 'quarantined', 'skipped', 'superseded', 'lost')")


def test_open_evaluations_of_a_directory_made_anew_end_with_the_reason(bench):
    sidecar = bench.sidecar()
    leave_open_rows(bench, sidecar)
    empty(bench.run)
    checkpoints.write_hugging_face(bench.run, 10, seed="second")
    for child in sidecar.children():  # the evaluator hangs: the agent would give it 10 s to obey the cancel
        os.kill(child, signal.SIGKILL)

    sidecar.wait_for(lambda s: len(runs(s)) == 2 and s.metrics_lines(), what="the second run's result")

    assert sidecar.stop() == 0
    first, second = runs(sidecar)
    assert open_rows(sidecar) == []
    ended = sidecar.query(f"SELECT step, state, reason FROM evaluations WHERE run = '{first}' ORDER BY step")
    assert [(step, state) for step, state, _ in ended] == [(5, "lost"), (10, "lost"), (15, "lost")]
    assert all("made anew" in reason and second in reason for _, _, reason in ended), ended
    assert sidecar.query(f"SELECT step, state FROM evaluations WHERE run = '{second}'") == [(10, "published")]


def test_open_evaluations_of_a_directory_that_was_made_anew_while_no_agent_ran_end_too(bench):
    sidecar = bench.sidecar()
    leave_open_rows(bench, sidecar)
    sidecar.kill()
    shutil.rmtree(bench.run)
    bench.run.mkdir()
    checkpoints.write_hugging_face(bench.run, 10, seed="second")

    assert sidecar.once() == 0

    assert len(runs(sidecar)) == 2 and open_rows(sidecar) == []
    assert [line["global_step"] for line in sidecar.metrics_lines()] == [10]


def test_a_run_that_comes_back_goes_on_even_from_leases_alone(bench):
    sidecar = bench.sidecar()
    leave_open_rows(bench, sidecar)
    sidecar.kill()
    shutil.rmtree(bench.run / "checkpoint-5")  # only its lease is left
    away = bench.home / "away"
    bench.run.rename(away)
    bench.run.mkdir()
    checkpoints.write_hugging_face(bench.run, 10, seed="what the trainer wrote into the empty mount point")
    assert sidecar.once() == 0
    shutil.rmtree(bench.run)
    away.rename(bench.run)

    assert sidecar.once("--set", "watch.settle_time=1s") == 4  # 15 was torn

    first = runs(sidecar)[0]
    assert sidecar.query(f"SELECT step, state FROM evaluations WHERE run = '{first}' ORDER BY step") == [
        (5, "published"), (10, "published"), (15, "lost")]
    assert sorted(line["global_step"] for line in sidecar.metrics_lines()) == [5, 10]
