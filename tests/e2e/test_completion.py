"""What was published without some of its tasks: the lease stays, and the rest is measured once what it failed by is over."""

import json
import os
import pathlib
import random
import shutil
import subprocess
import time

import checkpoints
import fake_evaluator
import pytest

FAKE = pathlib.Path(__file__).resolve().parent / "fake_evaluator.py"
TASKS = "docvqa_val,textvqa_val"
MISSING = {"failing_tasks": {"textvqa_val": "data set lmms-lab/textvqa is not in /data"}}
BROKEN_DATA = {"broken_data": {"textvqa_val": "document 3: not a picture"}}
BROKEN_EVALUATOR = {"broken_tasks": {"textvqa_val": "an operation that is not there"}}
BOTH = {"eval/docvqa_val/anls", "eval/textvqa_val/anls"}


def leases(run):
    folder = run / "_evalcar" / "leases"
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def ask(sidecar, *command):
    return subprocess.run([sidecar.evalcar, *command, "--db", str(sidecar.database)], env=sidecar.environment,
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip


def generated(bench, task):
    return len([line for line in bench.heard("generate") if line.split()[2] == task])


def attempts(sidecar):
    return sidecar.query("SELECT count(*) FROM attempts")[0][0]


def in_part(s, step=5):
    state, reason = s.states().get((step, "regular"), ("", ""))
    return state == "published" and "not measured: textvqa_val" in reason


def whole(s, step=5):
    return s.states().get((step, "regular")) == ("published", "")


def check_completed(bench, sidecar, step=5):
    """One row, one number a task, two lines, and nothing was measured or told twice."""
    assert whole(sidecar, step), sidecar.states()
    assert leases(bench.run) == []
    assert sidecar.query(f"SELECT count(*) FROM evaluations WHERE step = {step}") == [(1,)]
    partly, complete = [line for line in sidecar.metrics_lines() if line["global_step"] == step]
    assert set(partly["metrics"]) & BOTH == {"eval/docvqa_val/anls"} and "eval/textvqa_val" in partly["missing"]
    assert complete["supersedes"] == partly["seq"] and "missing" not in complete
    for task in TASKS.split(","):
        expected = fake_evaluator.expected_value(complete["weights_sha256"], task, 6)
        assert complete["metrics"][f"eval/{task}/anls"] == pytest.approx(expected, abs=1e-12)
        assert sidecar.query(f"SELECT count(*) FROM metrics WHERE step = {step} AND task = '{task}'") == [(1,)]
        assert sidecar.query(f"SELECT count(*) FROM samples WHERE step = {step} AND task = '{task}'") == [(6,)]
    assert complete["metrics"]["eval/docvqa_val/anls"] == partly["metrics"]["eval/docvqa_val/anls"]
    events = (bench.run / "_evalcar" / "tensorboard" / "events.out.tfevents.1.evalcar").read_bytes()
    steps = len({line["global_step"] for line in sidecar.metrics_lines()})
    assert [events.count(f"eval/{task}/anls_stderr".encode()) for task in TASKS.split(",")] == [steps, steps]
    assert sidecar.query("SELECT 1 FROM answer") == []


def test_the_rest_is_measured_from_the_lease_when_its_data_come(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(**MISSING)
    sidecar = bench.sidecar(tasks=TASKS).start()
    sidecar.wait_for(in_part, what="the part")
    assert leases(bench.run) == ["5-1-regular"]
    shutil.rmtree(bench.run / "checkpoint-5")  # retention
    sidecar.wait_for(lambda s: len(bench.heard("check")) >= 3, what="looks at the data")
    assert attempts(sidecar) == 1 and "textvqa_val cannot be measured: data set" in sidecar.log()
    status = json.loads((bench.run / "_evalcar" / "status.json").read_text())
    assert "textvqa_val cannot be measured" in status["agent"]["warning"]

    bench.tell()

    sidecar.wait_for(whole, what="the rest")
    assert sidecar.stop() == 0
    check_completed(bench, sidecar)
    assert generated(bench, "docvqa_val") == 6 and attempts(sidecar) == 2


def test_a_start_completes_what_an_earlier_one_published_in_part(bench):
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
    bench.tell(**MISSING)
    sidecar = bench.sidecar(tasks=TASKS)
    assert sidecar.once() == 4
    for step in (5, 10):
        shutil.rmtree(bench.run / f"checkpoint-{step}")
    assert sidecar.once() == 4  # for as long as it is so
    assert leases(bench.run) == ["10-1-regular", "5-1-regular"] and attempts(sidecar) == 2

    bench.tell()
    assert sidecar.once() == 0
    for step in (5, 10):
        check_completed(bench, sidecar, step)
    assert generated(bench, "docvqa_val") == 2 * 6


def test_broken_data_are_not_tried_again_before_they_are_others(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(**BROKEN_DATA)
    sidecar = bench.sidecar(tasks=TASKS).start()
    sidecar.wait_for(in_part, what="the part")
    sidecar.wait_for(lambda s: len(bench.heard("check")) >= 4, what="looks at the data")
    assert sidecar.stop() == 4
    assert sidecar.once() == 4 and attempts(sidecar) == 1

    bench.tell(**BROKEN_DATA, data={"textvqa_val": "v2"})  # others, as broken
    assert sidecar.once() == 4 and attempts(sidecar) == 2
    assert sidecar.once() == 4 and attempts(sidecar) == 2 and len(sidecar.metrics_lines()) == 1

    bench.tell(data={"textvqa_val": "v3"})
    assert sidecar.once() == 0
    check_completed(bench, sidecar)


def test_what_an_evaluator_cannot_do_is_tried_again_by_another_one(bench):
    program = bench.home / "evalcar-evaluator"
    shutil.copy(FAKE, program)
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(**BROKEN_EVALUATOR)
    sidecar = bench.sidecar(tasks=TASKS)
    sidecar.environment["EVALCAR_EVALUATOR"] = str(program)
    sidecar.start()
    sidecar.wait_for(in_part, what="the part")
    shutil.rmtree(bench.run / "checkpoint-5")
    bench.tell()
    time.sleep(1.5)
    assert attempts(sidecar) == 1  # the same program

    shutil.copy(FAKE, bench.home / "new")
    (bench.home / "new").rename(program)

    sidecar.wait_for(whole, what="the rest")
    assert sidecar.stop() == 0
    check_completed(bench, sidecar)
    assert "was replaced" in sidecar.log()


def test_data_that_go_again_leave_the_part_as_it_was(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(**MISSING)
    sidecar = bench.sidecar(tasks=TASKS)
    assert sidecar.once() == 4
    before = sidecar.states()[5, "regular"]

    assert ask(sidecar, "retry", "5").returncode == 0  # while they are missing
    assert sidecar.once() == 4

    assert sidecar.states()[5, "regular"] == before and len(sidecar.metrics_lines()) == 1
    assert len(bench.heard("load")) == 1 and leases(bench.run) == ["5-1-regular"]
    assert sidecar.query("SELECT outcome, error_kind FROM attempts") == [("scored", ""), ("failed", "data")]
    assert sidecar.query("SELECT count(*) FROM metrics") == [(1,)]


def test_a_completion_that_fails_for_good_leaves_the_part_and_is_not_repeated(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(**MISSING)
    sidecar = bench.sidecar("--set", "limits.attempts=2", tasks=TASKS)
    assert sidecar.once() == 4
    bench.tell(die_at_sample=3)

    assert sidecar.once() == 4
    state, reason = sidecar.states()[5, "regular"]
    assert state == "published" and "quarantined: the evaluator ended" in reason and attempts(sidecar) == 3
    assert sidecar.once() == 4 and attempts(sidecar) == 3
    assert leases(bench.run) == ["5-1-regular"]

    bench.tell()
    assert ask(sidecar, "retry", "5").returncode == 0
    assert sidecar.once() == 0
    check_completed(bench, sidecar)


def test_other_weights_or_another_dtype_never_join_numbers_that_stand(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(**MISSING)
    sidecar = bench.sidecar(tasks=TASKS)
    assert sidecar.once() == 4
    lease = bench.run / "_evalcar" / "leases" / "5-1-regular" / "model.safetensors"
    shutil.rmtree(bench.run / "checkpoint-5")
    before = lease.stat()
    content = bytearray(lease.read_bytes())
    content[-1] ^= 1
    lease.write_bytes(content)
    os.utime(lease, ns=(before.st_atime_ns, before.st_mtime_ns))
    bench.tell()

    assert sidecar.once() == 4

    state, reason = sidecar.states()[5, "regular"]
    assert state == "published" and "were measured before" in reason
    (line,) = sidecar.metrics_lines()
    assert "eval/textvqa_val/anls" not in line["metrics"]
    assert sidecar.query("SELECT task FROM metrics") == [("docvqa_val",)]


# ---- when the lease goes


def test_where_the_disk_is_short_leases_of_parts_go_before_those_of_checkpoints_without_numbers(bench):
    checkpoints.write_hugging_face(bench.run, 10)
    bench.tell(**MISSING)
    sidecar = bench.sidecar(tasks=TASKS)
    assert sidecar.once() == 4
    shutil.rmtree(bench.run / "checkpoint-10")
    bench.tell(hang=True, **MISSING)
    checkpoints.write_hugging_face(bench.run, 5)  # older, and not measured
    checkpoints.write_hugging_face(bench.run, 15)
    sidecar.start()
    sidecar.wait_for(lambda s: {s.states().get((step, "regular"), ("",))[0] for step in (5, 15)} <= {"leased", "loading"}, what="all leases")
    sidecar.kill()
    for step in (5, 15):
        shutil.rmtree(bench.run / f"checkpoint-{step}")
    size = sum(p.stat().st_size for p in (bench.run / "_evalcar" / "leases").rglob("*") if p.is_file())
    bench.tell(**MISSING)

    sidecar.start("--set", f"limits.lease_budget={size * 5 // 6}B")

    sidecar.wait_for(lambda s: in_part(s, 5) and in_part(s, 15), what="the other parts")
    assert sidecar.stop() == 4
    state, reason = sidecar.states()[10, "regular"]
    assert state == "published" and "its lease was given up: limits.lease_budget" in reason
    assert "10-1-regular" not in leases(bench.run)
    refused = ask(sidecar, "retry", "10")
    assert refused.returncode == 3 and "its lease are gone" in refused.stdout + refused.stderr


def test_another_configuration_takes_over_the_lease_of_a_part(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(**MISSING)
    sidecar = bench.sidecar(tasks=TASKS)
    assert sidecar.once() == 4
    shutil.rmtree(bench.run / "checkpoint-5")
    bench.tell()

    assert sidecar.once("--set", "evaluate.max_pixels=500000") == 0

    states = sidecar.query("SELECT state, reason = '' FROM evaluations ORDER BY evaluation_id")
    assert states == [("published", 0), ("published", 1)] and leases(bench.run) == []
    first, second = sidecar.metrics_lines()
    assert second["supersedes"] == first["seq"] and BOTH <= second["metrics"].keys()


def test_a_checkpoint_written_again_ends_what_was_left_of_the_old_one(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(**MISSING)
    sidecar = bench.sidecar(tasks=TASKS)
    assert sidecar.once() == 4
    shutil.rmtree(folder)
    checkpoints.write_hugging_face(bench.run, 5, seed=99)
    bench.tell()

    assert sidecar.once() == 0

    rows = sidecar.query("SELECT generation, state, reason FROM evaluations ORDER BY generation")
    assert [row[:2] for row in rows] == [(1, "published"), (2, "published")]
    assert "was written again" in rows[0][2] and rows[1][2] == "" and leases(bench.run) == []
    assert len({line["weights_sha256"] for line in sidecar.metrics_lines()}) == 2


# ---- kills


def until_generating(sidecar, bench):
    sidecar.wait_for(lambda s: len(bench.heard("generate")) > 15, what="an answer of the rest")


def until_state(*states):
    def wait(sidecar, bench):
        sidecar.wait_for(lambda s: s.states()[5, "regular"][0] in states or whole(s), what=str(states))

    return wait


MOMENTS = [until_state("complete", "leased", "loading"), until_state("evaluating"), until_generating, until_state("scored")]


@pytest.mark.parametrize("moment", MOMENTS, ids=["begun", "evaluating", "generating", "scored"])
def test_a_kill_while_the_rest_is_measured_ends_as_without_it(bench, moment):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(**MISSING)
    sidecar = bench.sidecar(tasks=TASKS)
    assert sidecar.once() == 4
    shutil.rmtree(bench.run / "checkpoint-5")
    bench.tell(delay=0.05)
    sidecar.start()
    moment(sidecar, bench)
    sidecar.kill()

    assert sidecar.once() == 0
    check_completed(bench, sidecar)
    assert generated(bench, "docvqa_val") == 6


@pytest.mark.parametrize("seed", [1, *[pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 7)]])
def test_kills_at_random_times_converge_to_the_whole(bench, seed):
    print("seed", seed)
    times = random.Random(seed)
    steps = (5, 10)
    for step in steps:
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar(tasks=TASKS)
    bench.tell(**MISSING)
    for _ in range(3):
        sidecar.start()
        time.sleep(times.uniform(0.05, 0.8))
        sidecar.kill()
    assert sidecar.once() == 4
    for step in steps:
        shutil.rmtree(bench.run / f"checkpoint-{step}")
    bench.tell()
    for _ in range(5):
        sidecar.start()
        time.sleep(times.uniform(0.05, 0.8))
        sidecar.kill()
    assert sidecar.once() == 0
    for step in steps:
        check_completed(bench, sidecar, step)
