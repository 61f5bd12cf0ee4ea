"""Somebody deletes what the agent keeps: our folder in the output directory, or half of the database."""

import json
import shutil
import time

import checkpoints
import fake_evaluator
import pytest


def snapshot(run):
    """Every published file, by its name; not the files that only say how things are now."""
    home = run / "_evalcar"
    mutable = {"status.json", "lock", "run_id"}
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*")
            if path.is_file() and path.name not in mutable and ".tmp." not in path.name and "leases" not in path.parts}


def once_each(sidecar, steps):
    """No evaluation is counted twice, seq rises strictly, and every line is final and of its own checkpoint."""
    lines = sidecar.metrics_lines()
    seqs = [line["seq"] for line in lines]
    assert seqs == sorted(set(seqs)), seqs
    assert sorted(line["global_step"] for line in lines) == sorted(steps)
    assert all(line["final"] and "supersedes" not in line for line in lines)
    for line in lines:
        expected = fake_evaluator.expected_value(line["weights_sha256"], "docvqa_val", 6)
        assert line["metrics"]["eval/docvqa_val/anls"] == pytest.approx(expected, abs=1e-12)
    return lines


def publish_two(bench, sidecar):
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar.start()
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="both results")
    # best.json follows the row, and what it follows from.
    best = bench.run / "_evalcar" / "best.json"
    top = max(sidecar.metrics_lines(), key=lambda line: line["metrics"]["eval/docvqa_val/anls"])["global_step"]
    sidecar.wait_for(lambda s: best.exists() and json.loads(best.read_text())["best"]["regular"]["step"] == top, what="the best one")


def delete(folder):
    """As whoever deletes: again, if the agent wrote a name into it meanwhile."""
    for _ in range(50):
        try:
            shutil.rmtree(folder)
            return
        except OSError:
            time.sleep(0.01)
    shutil.rmtree(folder)


def test_our_folder_deleted_beside_a_running_agent_is_written_again(bench):
    sidecar = bench.sidecar()
    publish_two(bench, sidecar)
    before = snapshot(bench.run)
    inode = (bench.run / "_evalcar" / "metrics.jsonl").stat().st_ino
    held = open(bench.run / "_evalcar" / "metrics.jsonl")  # so that its inode is not used again

    delete(bench.run / "_evalcar")

    sidecar.wait_for(lambda s: (bench.run / "_evalcar" / "best.json").exists(), timeout=20, what="best.json")
    assert snapshot(bench.run) == before
    assert (bench.run / "_evalcar" / "metrics.jsonl").stat().st_ino != inode  # readers start over
    held.close()
    checkpoints.write_hugging_face(bench.run, 15)
    sidecar.wait_for(lambda s: len(s.published()) == 3, what="the next result")
    assert sidecar.stop() == 0
    assert [line["seq"] for line in once_each(sidecar, (5, 10, 15))] == [1, 2, 3]
    assert len(bench.heard("load")) == 3  # nothing was measured again


def test_our_folder_deleted_while_no_agent_runs_is_written_again_at_the_next_start(bench):
    sidecar = bench.sidecar()
    publish_two(bench, sidecar)
    assert sidecar.stop() == 0
    before = snapshot(bench.run)
    delete(bench.run / "_evalcar")

    assert sidecar.once() == 0

    assert snapshot(bench.run) == before
    once_each(sidecar, (5, 10))
    assert len(bench.heard("load")) == 2


def test_our_folder_deleted_in_the_middle_of_an_evaluation_costs_nothing_but_that_one(bench):
    sidecar = bench.sidecar("--set", "watch.poll_interval=1s")
    publish_two(bench, sidecar)
    bench.tell(delay=0.4)
    checkpoints.write_hugging_face(bench.run, 15)
    sidecar.wait_for(lambda s: len(bench.heard("generate")) >= 14, what="the evaluation")

    delete(bench.run / "_evalcar")

    sidecar.wait_for(lambda s: len(s.published()) == 3, what="the result")
    assert sidecar.stop() == 0
    once_each(sidecar, (5, 10, 15))
    assert json.loads((bench.run / "_evalcar" / "best.json").read_text())["best"]["regular"]["step"] in (5, 10, 15)


@pytest.mark.parametrize("moment", ["leased", "evaluating", "published"])
def test_the_write_ahead_log_deleted_after_a_kill_loses_work_but_counts_nothing_twice(bench, moment):
    """What only the log knew is gone: the rest of the database must be whole, and the files say what was published."""
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
    bench.tell(hang=moment == "leased", delay=0.3 if moment == "evaluating" else 0)
    sidecar = bench.sidecar().start()
    sidecar.wait_for({"leased": lambda s: bench.heard("load"),
                      "evaluating": lambda s: len(bench.heard("generate")) >= 8,
                      "published": lambda s: len(s.published()) == 2}[moment], what=moment)
    sidecar.kill()
    logs = [bench.home / "state.db-wal", bench.home / "state.db-shm"]
    assert any(log.exists() and log.stat().st_size > 0 for log in logs)
    for log in logs:
        log.unlink(missing_ok=True)
    bench.tell()

    assert sidecar.once() == 0

    assert sidecar.published() == {(5, "regular"), (10, "regular")}
    once_each(sidecar, (5, 10))
    assert sidecar.query("PRAGMA integrity_check") == [("ok",)]
    assert list((bench.run / "_evalcar" / "leases").iterdir()) == []
