"""Tasks that are measured more seldom than the others (evaluate.task_every_nth, task_eval_steps): evaluations of their own, each
step's row with its reason, over one lease."""

import json

import checkpoints
import fake_evaluator
import pytest
from harness import hash_of, leases

TASKS = "docvqa_val,mmmu_val"


def sidecar_of(bench, *arguments):
    made = bench.sidecar(*arguments)
    made.command[made.command.index("--tasks") + 1] = TASKS
    return made


def numbers(sidecar):
    """{(step, task): (value, weights)}"""
    rows = sidecar.query("SELECT step, task, value, weights_sha256 FROM metrics WHERE metric = 'anls'")
    assert len({row[:2] for row in rows}) == len(rows)
    return {(step, task): (value, sha256) for step, task, value, sha256 in rows}


def check_numbers(sidecar, hashes, seldom):
    """docvqa_val of each step, mmmu_val of those in `seldom`, each of its own weights and in one line."""
    expected = {(step, "docvqa_val") for step in hashes} | {(step, "mmmu_val") for step in seldom}
    found = numbers(sidecar)
    assert set(found) == expected
    for (step, task), (value, sha256) in found.items():
        assert sha256 == hashes[step]
        assert value == pytest.approx(fake_evaluator.expected_value(sha256, task, 6))
    lines = sidecar.metrics_lines()
    told = [(line["global_step"], key.split("/")[1]) for line in lines for key in line["metrics"] if not key.endswith("_stderr")]
    assert sorted(told) == sorted(expected), "each number is told once"
    assert all("supersedes" not in line for line in lines)


def skipped(sidecar):
    """{(step, tasks): reason}"""
    rows = sidecar.query("SELECT step, tasks, reason FROM evaluations WHERE state = 'skipped'")
    return {(step, *json.loads(tasks)): reason for step, tasks, reason in rows}


def test_a_task_of_each_third_checkpoint_is_left_out_of_the_others_with_the_reason(bench):
    folders = {step: checkpoints.write_hugging_face(bench.run, step) for step in range(5, 45, 5)}
    hashes = {step: hash_of(bench.evalcar, folder, "regular") for step, folder in folders.items()}
    sidecar = sidecar_of(bench, "--set", "evaluate.task_every_nth=mmmu_val=3")
    assert sidecar.once() == 0
    check_numbers(sidecar, hashes, {5, 20, 35})
    left_out = skipped(sidecar)
    assert set(left_out) == {(step, "mmmu_val") for step in (10, 15, 25, 30, 40)}
    assert all("evaluate.task_every_nth = 3 of mmmu_val" in reason for reason in left_out.values())
    assert leases(bench.run) == []

    assert sidecar_of(bench, "--set", "evaluate.task_every_nth=mmmu_val=3").once() == 0  # nothing is measured again
    check_numbers(sidecar, hashes, {5, 20, 35})


def test_the_last_checkpoint_has_all_tasks_and_retention_takes_none_of_them(bench):
    """The trainer keeps one checkpoint; both evaluations of a step are measured from one lease."""
    bench.tell(delay=0.03)
    sidecar = sidecar_of(bench, "--set", "evaluate.task_eval_steps=mmmu_val=10", "--set", "watch.exit_marker=DONE",
                         "--set", "watch.poll_interval=300ms", "--set", "evaluate.policy=every").start()  # fmt: skip
    hashes = {}
    for step in (5, 10, 15, 20, 25):
        folder = checkpoints.write_hugging_face(bench.run, step)
        hashes[step] = hash_of(bench.evalcar, folder, "regular")
        sidecar.wait_for(lambda s, step=step: s.query(
            f"SELECT 1 FROM evaluation WHERE step = {step} AND (lease_path <> '' OR state IN ('scored', 'published'))"), what="its lease")  # fmt: skip
        checkpoints.prune_hugging_face(bench.run, 1)
        assert len([name for name in leases(bench.run) if name.startswith(f"{step}-")]) == 1
    (bench.run / "DONE").touch()
    assert sidecar.wait(60) == 0
    check_numbers(sidecar, hashes, {10, 20, 25})
    assert "task_eval_steps = 10 of mmmu_val does not divide step 15" in skipped(sidecar)[15, "mmmu_val"]
    assert leases(bench.run) == []


def test_under_latest_the_seldom_task_is_not_given_up_for_a_checkpoint_that_does_not_have_it(bench):
    bench.tell(delay=0.2)
    folders = {step: checkpoints.write_hugging_face(bench.run, step) for step in (10, 15)}
    hashes = {step: hash_of(bench.evalcar, folder, "regular") for step, folder in folders.items()}
    sidecar = sidecar_of(bench, "--set", "evaluate.task_eval_steps=mmmu_val=10", "--set", "evaluate.policy=latest")
    assert sidecar.once() == 0
    assert set(numbers(sidecar)) == {(15, "docvqa_val"), (10, "mmmu_val")}
    assert numbers(sidecar)[10, "mmmu_val"][1] == hashes[10]
    assert sidecar.query("SELECT tasks FROM evaluations WHERE state = 'superseded'") == [('["docvqa_val"]',)]


def test_kills_leave_the_same_numbers_of_both(bench):
    bench.tell(delay=0.05)
    sidecar = sidecar_of(bench, "--set", "evaluate.task_every_nth=mmmu_val=2").start()
    hashes = {}
    for step in (5, 10, 15):
        folder = checkpoints.write_hugging_face(bench.run, step)
        hashes[step] = hash_of(bench.evalcar, folder, "regular")
        sidecar.wait_for(lambda s, step=step: s.query(
            f"SELECT 1 FROM evaluation WHERE step = {step} AND (lease_path <> '' OR state IN ('scored', 'published'))"), what="its lease")  # fmt: skip
        checkpoints.prune_hugging_face(bench.run, 1)
        sidecar.kill()
        sidecar.start()
    bench.tell()
    sidecar.wait_for(lambda s: len(numbers(s)) == 5, what="all numbers")
    sidecar.wait_for(lambda s: leases(bench.run) == [], timeout=60, what="the end of the leases")
    assert sidecar.stop() == 0
    check_numbers(sidecar, hashes, {5, 15})


def test_a_changed_cadence_gives_the_same_numbers(bench):
    """Tasks that part are evaluations of their own, and find their numbers; those that join are measured as a whole."""
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sha256 = hash_of(bench.evalcar, folder, "regular")
    assert sidecar_of(bench).once() == 0
    sidecar = sidecar_of(bench, "--set", "evaluate.task_every_nth=mmmu_val=2")
    assert sidecar.once() == 0
    parted = sidecar.query("SELECT state, reason FROM evaluations WHERE json_array_length(tasks) = 1")
    assert len(parted) == 2 and all(state == "superseded" and "already measured" in reason for state, reason in parted)
    assert len(sidecar.metrics_lines()) == 1
    assert numbers(sidecar) == {
        (5, task): (pytest.approx(fake_evaluator.expected_value(sha256, task, 6)), sha256) for task in TASKS.split(",")}
    assert leases(bench.run) == []


def test_averages_have_the_cadence_of_their_newest_checkpoint(bench):
    for step in (5, 10, 15):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = sidecar_of(bench, "--set", "evaluate.average_last=2", "--set", "evaluate.task_eval_steps=mmmu_val=10")
    assert sidecar.once() == 0
    rows = sidecar.query("SELECT step, task FROM metrics WHERE checkpoint_type = 'average' AND metric = 'anls'")
    assert sorted(rows) == [(10, "docvqa_val"), (10, "mmmu_val"), (15, "docvqa_val")]


def test_a_cadence_of_a_task_that_is_not_evaluated_is_a_mistake(bench):
    sidecar = sidecar_of(bench, "--set", "evaluate.task_every_nth=mmmu=2")
    assert sidecar.once() == 2
    assert '"mmmu" is not one of evaluate.tasks' in sidecar.log()
