"""Part A of the fault matrix: crash, disk, state. Each row is a test of its name; what a row asks of the HTTP API is in
test_api_beside_faults.py, here a watched checkpoint stands for the job."""

import concurrent.futures
import errno
import json
import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time

import checkpoints
import fake_evaluator
import pytest
import state_tools
import tools
from harness import check_published_once, hash_of, leases
from state_tools import Fault, check_whole, generated, save

@pytest.fixture(autouse=True)
def nothing_runs_on():
    yield
    state_tools.close_benches()


# ---- kills


class OneCheckpoint:
    """What a sweep has measured: `write(bench)` saves it and returns what is to be published."""

    arguments = ()
    kept = ()  # leases that stay

    def write(self, bench):
        return save(bench, 5)


class ThreeOfWhichTwoAreAveraged(OneCheckpoint):
    arguments = ("--set", "evaluate.average_last=2")
    kept = ("10-1-regular", "15-1-regular")

    def write(self, bench):
        expected = save(bench, 5, 10, 15)
        for before, step in ((5, 10), (10, 15)):
            merged = bench.home / f"mean-{step}"
            folders = ",".join(str(bench.run / f"checkpoint-{one}") for one in (before, step))
            subprocess.run([bench.evalcar, "merge", "--input_dir", folders, "--merge", "--output_dir", merged], capture_output=True, timeout=60, check=True)
            expected[step, "average"] = hash_of(bench.evalcar, merged, "regular")
        return expected


class Shards(OneCheckpoint):
    """Regular weights and EMA, and the link in the checkpoint."""

    def __init__(self, shards):
        self.shards = shards

    def write(self, bench):
        folder = checkpoints.write_fsdp2(bench.run, 5, self.shards)
        return {(5, kind): hash_of(bench.evalcar, folder, kind) for kind in ("regular", "ema")}


def undisturbed(bin_dir, folder, what=OneCheckpoint(), calls=""):  # noqa: B008
    """(what a run leaves that nobody kills, its log of these system calls)"""
    bench = state_tools.another_bench(bin_dir, folder)
    what.write(bench)
    sidecar = bench.sidecar(*what.arguments)
    log = tools.strace(sidecar, calls) if calls else None
    assert sidecar.once() == 0
    return state_tools.outcome(sidecar), log


def killed_then_run(bin_dir, folder, prepare, like, what=OneCheckpoint(), delay=0.0):  # noqa: B008
    """One step of a sweep: a run that `prepare(sidecar)` has killed, then one that is let finish, and leaves what is `like` an undisturbed
    one. `delay`: of each answer."""
    bench = state_tools.another_bench(bin_dir, folder)
    bench.tell(delay=delay)
    expected = what.write(bench)
    sidecar = bench.sidecar(*what.arguments)
    prepare(sidecar)
    code = sidecar.once()
    tools.unbroken(sidecar)
    sidecar.environment.pop("EVALCAR_CRASH_AT", None)
    if code != 0:
        assert sidecar.once() == 0, sidecar.log()
    check_whole(bench, sidecar, expected, what.kept)
    assert state_tools.outcome(sidecar) == like
    return code, bench, sidecar


def sweep(step, cases):
    """step(case) of all cases, some at a time: most of it is waiting."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return dict(zip(cases, pool.map(step, cases), strict=True))


KILLED_AT = ("write", "pwrite64", "fsync", "fdatasync", "rename", "unlink", "ftruncate", "link", "mkdir")
KILLED_AT_OF_SHARDS = ("link", "symlink", "utimensat", "rename", "rmdir", "fsync")
KILLED_AT_OF_AVERAGES = ("link", "mkdir", "fsync", "rename", "unlink", "rmdir")


def sweep_syscalls(bin_dir, folder, choose, calls=KILLED_AT, what=OneCheckpoint()):  # noqa: B008
    tools.need("strace")
    like, log = undisturbed(bin_dir, folder / "counted", what, ",".join(calls))
    count = {call: tools.calls_in(log, call) for call in calls}
    assert all(count.values()), count
    cases = [(call, k) for call in calls for k in choose(count[call])]

    def step(case):
        call, k = case
        return killed_then_run(bin_dir, folder / f"{call}-{k}", lambda s: tools.strace(s, call, "signal=KILL", when=k), like, what)[0]

    codes = sweep(step, cases)
    killed = [case for case, code in codes.items() if code == -signal.SIGKILL]
    assert len(killed) >= 0.8 * len(cases), codes  # the order of calls varies a little from run to run


def test_kill_any_syscall(bin_dir, bench, tmp_path):
    """SIGKILL at the k-th write, sync, rename, … of a whole job: the next start ends with one result, and nothing is torn."""
    sweep_syscalls(bin_dir, tmp_path / "sweep", lambda count: sorted({1 + count * 4 // 5} & set(range(1, count + 1))))
    tools.check_canary(bench, bench.sidecar())


def test_kill_any_syscall_of_shards(bin_dir, bench, tmp_path, shards):
    """The same with sharded regular weights and EMA, at the calls that lease and link."""
    sweep_syscalls(bin_dir, tmp_path / "sweep", lambda count: sorted({1 + count * 4 // 5} & set(range(1, count + 1))), KILLED_AT_OF_SHARDS, Shards(shards))
    tools.check_canary(bench, bench.sidecar())


def test_kill_any_syscall_of_averages(bin_dir, bench, tmp_path):
    """The same with averages, at the calls that lease them."""
    sweep_syscalls(bin_dir, tmp_path / "sweep", lambda count: sorted({1 + count // 2} & set(range(1, count + 1))), KILLED_AT_OF_AVERAGES,
                   ThreeOfWhichTwoAreAveraged())  # fmt: skip
    tools.check_canary(bench, bench.sidecar())


@pytest.mark.full
def test_kill_any_syscall_of_averages_at_every_call(bin_dir, bench, tmp_path):
    sweep_syscalls(bin_dir, tmp_path / "sweep", lambda count: range(1, count + 1), KILLED_AT_OF_AVERAGES, ThreeOfWhichTwoAreAveraged())
    tools.check_canary(bench, bench.sidecar())


@pytest.mark.full
def test_kill_any_syscall_of_shards_at_every_call(bin_dir, bench, tmp_path, shards):
    sweep_syscalls(bin_dir, tmp_path / "sweep", lambda count: range(1, count + 1), KILLED_AT_OF_SHARDS, Shards(shards))
    tools.check_canary(bench, bench.sidecar())


@pytest.mark.full
def test_kill_any_syscall_at_every_call(bin_dir, bench, tmp_path):
    """The same for every k of each call."""
    sweep_syscalls(bin_dir, tmp_path / "sweep", lambda count: range(1, count + 1))
    tools.check_canary(bench, bench.sidecar())


def test_kill_named_points(bin_dir, build_dir, bench, tmp_path):
    """A kill at each named point of a job: it goes on or runs again, with one result, and what was measured is not measured again."""
    state_tools.need_crash_points(build_dir)
    like, _ = undisturbed(bin_dir, tmp_path / "counted")

    def step(point):
        # Without a pause the evaluator is ahead of the agent, on a machine in use by all its answers.
        delay = 0.3 if point == "mid_eval" else 0.0
        code, bench_of_step, _ = killed_then_run(
            bin_dir, tmp_path / point.replace(":", "-"), lambda s: s.environment.update(EVALCAR_CRASH_AT=point), like, delay=delay)
        return code, generated(bench_of_step)

    ended = sweep(step, state_tools.CRASH_POINTS)

    assert {code for code, _ in ended.values()} == {-signal.SIGKILL}, ended
    assert {point: ended[point][1] for point in ("after_eval", "after_commit", "after_line", "after_mark")} == {
        "after_eval": 6, "after_commit": 6, "after_line": 6, "after_mark": 6}  # fmt: skip
    assert ended["mid_eval"][1] <= 7, "more than the answer under way was generated again"
    tools.check_canary(bench, bench.sidecar())


def test_crash_commit_no_publish(build_dir, bench):
    """Killed when the numbers are in the database and no file is written: the next start publishes them, without the evaluator."""
    state_tools.need_crash_points(build_dir)
    expected = save(bench, 5)
    sidecar = bench.sidecar(environment={"EVALCAR_CRASH_AT": "after_commit"})
    assert sidecar.once() == -signal.SIGKILL
    assert sidecar.query("SELECT state FROM evaluations") == [("scored",)] and sidecar.metrics_lines() == []
    del sidecar.environment["EVALCAR_CRASH_AT"]

    assert sidecar.once() == 0

    check_whole(bench, sidecar, expected)
    assert len(bench.heard("load")) == 1
    tools.check_canary(bench, sidecar)


def test_crash_publish_no_mark(build_dir, bench):
    """Killed when the line is in metrics.jsonl and the database does not know: it is recognised, no second line is written."""
    state_tools.need_crash_points(build_dir)
    expected = save(bench, 5)
    sidecar = bench.sidecar(environment={"EVALCAR_CRASH_AT": "after_line"})
    assert sidecar.once() == -signal.SIGKILL
    written = (bench.run / "_evalcar/metrics.jsonl").read_text()
    assert written.count("\n") == 1 and sidecar.query("SELECT state FROM evaluations") == [("scored",)]
    del sidecar.environment["EVALCAR_CRASH_AT"]

    assert sidecar.once() == 0

    assert (bench.run / "_evalcar/metrics.jsonl").read_text() == written
    check_whole(bench, sidecar, expected)
    assert len(bench.heard("load")) == 1
    tools.check_canary(bench, sidecar)


def test_a_killed_evaluation_redoes_at_most_one_batch(bench):
    """Per-sample resume: of the answers that a killed evaluation had, at most the one under way is generated again."""
    expected = save(bench, 5)
    bench.tell(samples=8, delay=0.4)
    sidecar = bench.sidecar()
    for reached in (3, 6):
        sidecar.start()
        assert state_tools.sleep_until(lambda n=reached: len({line for line in bench.heard("generate")}) >= n), sidecar.log()
        sidecar.kill()
    bench.tell(samples=8)
    assert sidecar.once() == 0, sidecar.log()

    heard = bench.heard("generate")
    assert len(set(heard)) == 8
    assert len(heard) - 8 <= 2, f"two kills cost {len(heard) - 8} answers"
    line = sidecar.metrics_lines()[0]
    sha256 = expected[5, "regular"]
    assert line["metrics"]["eval/docvqa_val/anls"] == pytest.approx(fake_evaluator.expected_value(sha256, "docvqa_val", 8))
    bench.tell()
    tools.check_canary(bench, sidecar)


def soak(bench, kills, seed):
    """Kills at random times while checkpoints come; afterwards everything that was seen as done is there, and all else is done."""
    chance = random.Random(seed)
    print(f"seed {seed}")
    bench.tell(delay=0.01)
    sidecar = bench.sidecar()
    expected, seen = {}, set()
    for number in range(kills):
        expected |= save(bench, 5 * (number + 1))
        sidecar.start()
        state_tools.kill_after(sidecar, chance.uniform(0.02, 0.7))
        seen |= {(line["global_step"], line["weights_sha256"]) for line in whole_lines(bench.run)}
    bench.tell()
    assert sidecar.once() == 0, sidecar.log()
    assert seen <= {(line["global_step"], line["weights_sha256"]) for line in sidecar.metrics_lines()}
    check_whole(bench, sidecar, expected)
    return sidecar


def whole_lines(run):
    """As a reader takes them: up to the last newline."""
    path = run / "_evalcar" / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def test_random_kill_soak(bench):
    """Kills at random times under load: the results that were seen stay, all others come, once, and no leftovers grow."""
    tools.check_canary(bench, soak(bench, 6, seed=1))


@pytest.mark.full
def test_random_kill_soak_of_200(bench):
    """The same with 200 kills."""
    tools.check_canary(bench, soak(bench, 200, seed=2))


def test_restart_storm(bench):
    """Twenty kills, one after the other: nothing temporary grows, and then it converges."""
    expected = save(bench, 5, 10)
    bench.tell(delay=0.02)
    sidecar = bench.sidecar()
    for number in range(20):
        sidecar.start()
        state_tools.kill_after(sidecar, 0.03 + 0.01 * number)
    bench.tell()

    assert sidecar.once() == 0, sidecar.log()

    check_whole(bench, sidecar, expected)
    assert len(list(bench.home.iterdir())) <= 10, list(bench.home.iterdir())
    tools.check_canary(bench, sidecar)


def test_orphan_scratch(bench):
    """What a killed agent left half made goes at the next start; files that are not ours stay."""
    expected = save(bench, 5)
    bench.tell(hang=True)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: bench.heard("load"), what="the evaluator")
    sidecar.kill()
    home = bench.run / "_evalcar"
    dead = sidecar.process.pid
    shutil.copytree(bench.run / "checkpoint-5", home / "leases" / "3-1-regular")
    (home / "leases" / "3-1-regular" / "model.safetensors").unlink()
    ours = [home / f".metrics.jsonl.tmp.{dead}.1", home / f".status.json.tmp.{dead}.22", bench.home / f".state.db.status.json.tmp.{dead}.0"]
    theirs = [home / "notes.txt", home / f".notes.tmp.{os.getpid()}.1", home / ".tmp.x.1", bench.home / "mine.db"]
    for path in [*ours, *theirs]:
        path.write_text("half")
    bench.tell()

    assert sidecar.once() == 0, sidecar.log()

    assert [path for path in ours if path.exists()] == [] and all(path.read_text() == "half" for path in theirs)
    assert list((home / "leases").iterdir()) == []
    check_published_once(sidecar, expected)
    tools.check_canary(bench, sidecar)


# ---- power cuts


def cut_power(bench, namespace, cuts, what):
    """Publishes one checkpoint after the other and cuts the power meanwhile; `what` is at stake: "metrics", "database" or "both". Gives the
    disk, for each cut what a reader had seen before it, and the hashes of all that was saved."""
    mount = bench.home / "database" if what == "database" else bench.run / "_evalcar"
    disk = state_tools.LoopDisk(namespace, bench.home / "loop", mount)
    sidecar = bench.sidecar()
    if what != "metrics":
        state_tools.put_database(sidecar, mount / "state.db", namespace)
    namespace.enter(sidecar)
    state_tools.see_inside(bench, sidecar, namespace)
    if what != "both":  # whose numbers are looked at afterwards
        bench.tell(samples=1)
    sidecar.start()
    seen, expected = [], {}
    step = 0
    chance = random.Random(cuts)
    while len(seen) < cuts:
        step += 5
        expected |= save(bench, step)
        time.sleep(chance.uniform(0.0, 0.15))
        if chance.random() < 0.6 or step > 10 * cuts:
            acknowledged = {key for key, (state, _) in sidecar.states().items() if state == "published"}
            seen.append((disk.cut(), acknowledged))
    sidecar.wait_for(lambda s: s.published() == set(expected), timeout=60, what="all results")
    return sidecar, disk, seen, expected


def check_cuts_of_metrics(disk, seen):
    for copy, acknowledged in seen:
        with disk.after(copy) as place:
            found = disk.namespace.path(place)
            path = found / "metrics.jsonl"
            text = path.read_text() if path.exists() else ""
            there = {(line["global_step"], line["checkpoint_type"]) for line in map(json.loads, text[: text.rfind("\n") + 1].splitlines())}
            assert acknowledged <= there, (acknowledged - there, text)
            for name in ("best.json", *(str(p.relative_to(found)) for p in found.rglob("*_results.json"))):
                if (found / name).exists():
                    json.loads((found / name).read_text())


def check_cuts_of_database(disk, seen):
    for copy, acknowledged in seen:
        with disk.after(copy) as place:
            if not disk.namespace.path(place / "state.db").exists():
                assert acknowledged == set()
                continue
            ask = lambda sql: state_tools.rows_inside(disk.namespace, place / "state.db", sql, "-cmd", ".timeout 1000")  # noqa: E731, B023
            assert ask("PRAGMA integrity_check") == [("ok",)]
            rows = ask("SELECT step, checkpoint_type FROM evaluations WHERE state = 'published'")
            assert acknowledged <= set(rows), acknowledged - set(rows)


def run_power_cuts(bench, namespace, cuts, what, check):
    sidecar, disk, seen, _ = cut_power(bench, namespace, cuts, what)
    try:
        check(disk, seen)
        bench.tell()
        tools.check_canary(bench, sidecar)
    finally:
        sidecar.kill()
        disk.close()


def test_power_cut_publish(bench, namespace):
    """The power goes at random times while results are published: no file is empty or torn, and what was said to be published is."""
    run_power_cuts(bench, namespace, 4, "metrics", check_cuts_of_metrics)


@pytest.mark.full
def test_power_cut_publish_50_times(bench, namespace):
    """The same, 50 cuts."""
    run_power_cuts(bench, namespace, 50, "metrics", check_cuts_of_metrics)


def test_power_cut_db(bench, namespace):
    """The same for the database: it is sound, and knows every evaluation that was published."""
    run_power_cuts(bench, namespace, 4, "database", check_cuts_of_database)


def go_on_after(disk, sidecar, copy, expected):
    """The machine starts again with that disk, and an agent does what is left to do."""
    disk.namespace.run("mount", "-o", "loop", copy, disk.mount)
    try:
        assert sidecar.once() == 0, sidecar.log()
        check_published_once(sidecar, expected)
    finally:
        disk.namespace.run("umount", disk.mount)
        copy.unlink()


def cut_and_go_on(bench, namespace, cuts):
    """The database, metrics.jsonl, results and leases are on one disk, and the power goes at random times: after each cut an agent that
    starts again ends with one line for every checkpoint, those that were acknowledged before among them."""
    sidecar, disk, seen, expected = cut_power(bench, namespace, cuts, "both")
    sidecar.kill()
    disk.close()
    bench.tell()
    for copy, _ in seen:
        go_on_after(disk, sidecar, copy, expected)


def test_power_cut_everything(bench, namespace):
    cut_and_go_on(bench, namespace, 3)


@pytest.mark.full
def test_power_cut_everything_30_times(bench, namespace):
    cut_and_go_on(bench, namespace, 30)


@pytest.mark.full
def test_power_cut_db_50_times(bench, namespace):
    """The same, 50 cuts."""
    run_power_cuts(bench, namespace, 50, "database", check_cuts_of_database)


# ---- calls that fail


def syncs_after_failure(log):
    """Of a log of fsync, fdatasync, openat and close: descriptors that were synced again after a sync of them had failed."""
    failed, again = set(), []
    for line in log.read_text(errors="replace").splitlines():
        call = re.match(r"(?:\d+ +)?(\w+)\(([^)]*)\)? += (-?\d+)", line)
        if call is None:
            continue
        name, arguments, result = call.groups()
        if name in ("fsync", "fdatasync"):
            if arguments in failed:
                again.append(line)
            if result == "-1":
                failed.add(arguments)
        elif name == "close":
            failed.discard(arguments)
    return again


def sweep_syncs(bin_dir, folder, call, choose):
    """Lets the k-th sync of a whole run fail. Gives how many did."""
    counted = state_tools.another_bench(bin_dir, folder / "counted")
    save(counted, 5)
    sidecar = counted.sidecar()
    log = tools.strace(sidecar, call)
    assert sidecar.once() == 0
    cases = choose(tools.calls_in(log, call))

    def step(k):
        bench = state_tools.another_bench(bin_dir, folder / str(k))
        expected = save(bench, 5)
        sidecar = bench.sidecar()
        log = tools.strace(sidecar, call, "error=EIO", when=k)
        sidecar.command[sidecar.command.index(f"trace={call}")] = "trace=fsync,fdatasync,close"
        code = sidecar.once()
        tools.unbroken(sidecar)
        if code != 0:  # the very start failed: whoever started it does so again
            assert sidecar.once() == 0, sidecar.log()
        check_whole(bench, sidecar, expected)
        assert syncs_after_failure(log) == []
        assert 6 <= generated(bench) <= 11  # what was not yet synced once more, never all of it
        return "INJECTED" in log.read_text()

    failed = sweep(step, cases)
    assert sum(failed.values()) >= 0.7 * len(cases), failed


def test_fsync_eio_metric(bin_dir, bench, tmp_path):
    """A sync of a published file fails once: that file is dropped and written anew; the same descriptor is never synced again."""
    sweep_syncs(bin_dir, tmp_path / "sweep", "fsync", lambda count: [count - 2, count - 5, count - 8, count // 3])
    tools.check_canary(bench, bench.sidecar())


def test_fsync_eio_db(bin_dir, bench, tmp_path):
    """A sync of the WAL fails once: nothing more is written before the database is opened anew, and nothing is lost."""
    sweep_syncs(bin_dir, tmp_path / "sweep", "fdatasync", lambda count: [count * 3 // 4, count // 2, count // 4])
    tools.check_canary(bench, bench.sidecar())


def test_fsync_eio_when_the_wal_is_folded_in(bench, preload):
    """The sync of the database itself fails when its WAL is folded into it, which SQLite keeps to itself: the agent ends, and the next
    one goes on with all that was answered."""
    sidecar = bench.sidecar()
    Fault(preload, sidecar, "sync", path="/state.db$", times=1)
    expected = {}
    sidecar.start()
    wal = bench.home / "state.db-wal"
    for step in range(5, 500, 5):  # until the WAL has the 1,000 pages at which it is folded in
        expected |= save(bench, step)
        state_tools.sleep_until(lambda: sidecar.process.poll() is not None or set(expected) == sidecar.published())
        if sidecar.process.poll() is not None:
            break

    assert sidecar.wait(60) == 1, sidecar.log()

    assert "a sync of it failed" in sidecar.log() and wal.stat().st_size > 1000 * 4096
    del sidecar.environment["LD_PRELOAD"]
    assert sidecar.once() == 0, sidecar.log()
    check_whole(bench, sidecar, expected)
    tools.check_canary(bench, sidecar)


@pytest.mark.full
def test_fsync_eio_at_every_sync(bin_dir, bench, tmp_path):
    """Both, for every sync of a run."""
    for call in ("fsync", "fdatasync"):
        sweep_syncs(bin_dir, tmp_path / call, call, lambda count: list(range(1, count + 1)))
    tools.check_canary(bench, bench.sidecar())


def test_close_edquot(bench, preload):
    """close() says EDQUOT after good writes: the file counts as not written, is not renamed into place, and is written anew."""
    expected = save(bench, 5)
    sidecar = bench.sidecar()
    Fault(preload, sidecar, "close", path="/_evalcar/results", error=errno.EDQUOT, times=3)
    assert sidecar.once("--set", "limits.attempts=10") == 0, sidecar.log()
    assert "quota" in sidecar.log()
    check_whole(bench, sidecar, expected)
    assert generated(bench) == 6

    expected |= save(bench, 10)
    Fault(preload, sidecar, "close", path="/_evalcar/metrics.jsonl", error=errno.EDQUOT, times=1)
    assert sidecar.once() == 0, sidecar.log()
    check_whole(bench, sidecar, expected)
    tools.check_canary(bench, sidecar)


def test_short_writes_eintr(bench, preload):
    """write() takes one byte at a time and is interrupted every other time: all files are complete."""
    expected = save(bench, 5)
    sidecar = bench.sidecar()
    Fault(preload, sidecar, "short", path=str(bench.home))

    assert sidecar.once() == 0, sidecar.log()

    check_whole(bench, sidecar, expected)
    results = list((bench.run / "_evalcar/results").rglob("*_results.json"))
    assert len(results) == 1 and json.loads(results[0].read_text())["results"]["docvqa_val"]
    tools.check_canary(bench, sidecar)


# ---- no room, no quota, no writing


def test_enospc_state(bench, namespace):
    """The disk of the database is full: the running job keeps its answers, says what it waits for, and ends when there is room."""
    folder = bench.home / "small"
    inside = namespace.mount_tmpfs(folder, "size=4m")
    sidecar = bench.sidecar()
    state_tools.put_database(sidecar, folder / "state.db", namespace)
    namespace.enter(sidecar)
    expected = save(bench, 5)
    bench.tell(delay=0.1)
    sidecar.start()
    assert state_tools.sleep_until(lambda: len(bench.heard("generate")) >= 2), sidecar.log()
    filler = state_tools.fill(inside)
    assert state_tools.sleep_until(lambda: bench.heard("result"))
    tools.eventually(lambda: "full" in sidecar.log(), timeout=30, what="a word about the disk")
    time.sleep(0.5)
    spent = tools.cpu_seconds(sidecar.process.pid)
    time.sleep(1)
    assert tools.cpu_seconds(sidecar.process.pid) - spent < 0.3, "it spins"
    assert sidecar.published() == set()
    filler.unlink()

    sidecar.wait_for(lambda s: s.published() == set(expected), timeout=tools.CONVERGES_S, what="the result")

    assert generated(bench) == 6
    bench.tell()
    check_published_once(sidecar, expected)
    tools.check_canary(bench, sidecar)
    sidecar.stop()


def test_enospc_leases_and_state(bench, namespace):
    """Checkpoints, leases and database on one disk that somebody fills: leases are given up though nothing can be recorded, and
    what became of their evaluations is recorded once there is room."""
    folder = bench.home / "small"
    inside = namespace.mount_tmpfs(folder, "size=32m")
    (inside / "out").mkdir()
    bench.tell(delay=60)
    sidecar = bench.sidecar("--set", "evaluate.policy=every", "--set", "watch.poll_interval=1s")
    sidecar.command[2] = str(folder / "out")
    state_tools.put_database(sidecar, folder / "state.db", namespace)
    namespace.enter(sidecar)
    bench.run = sidecar.run = inside / "out"
    sidecar.start()
    for step in (5, 10, 15, 20):
        checkpoints.write_hugging_face(bench.run, step, rows=8192)
        sidecar.wait_for(lambda s, step=step: f"{step}-1-regular" in leases(bench.run), what="the lease")
        checkpoints.prune_hugging_face(bench.run, 1)
    sidecar.wait_for(lambda s: s.states()[5, "regular"][0] == "evaluating", what="the first job")
    state_tools.fill(inside)

    sidecar.wait_for(lambda s: len(leases(bench.run)) <= 2, timeout=30, what="room")

    assert "5-1-regular" in leases(bench.run), "the lease that is read from"
    sidecar.wait_for(lambda s: s.states()[10, "regular"][0] == "lost", timeout=tools.CONVERGES_S, what="the row")
    assert "its lease was given up: free disk space is below" in sidecar.states()[10, "regular"][1]
    sidecar.stop()


def run_full_publish_dir(bench, sidecar, begin, end, word):
    """A place for results that refuses for a while: scored and not published, with the reason; the old files stay; then published."""
    expected = save(bench, 5)
    sidecar.start()
    sidecar.wait_for(lambda s: s.published() == set(expected), what="the first result")
    metrics = sidecar.run / "_evalcar" / "metrics.jsonl"
    before = metrics.read_text()
    begin()
    expected |= save(bench, 10)
    sidecar.wait_for(lambda s: s.states().get((10, "regular"), ("", ""))[0] == "scored", what="the numbers")
    sidecar.wait_for(lambda s: "not published yet" in s.states()[10, "regular"][1], what="the reason")
    assert word in sidecar.states()[10, "regular"][1].lower(), sidecar.states()
    assert metrics.read_text() == before
    spent = tools.cpu_seconds(sidecar.process.pid)
    time.sleep(0.5)
    assert tools.cpu_seconds(sidecar.process.pid) - spent < 0.2, "it spins"
    end()
    sidecar.wait_for(lambda s: s.published() == set(expected), timeout=tools.CONVERGES_S, what="the second result")
    assert metrics.read_text().startswith(before)
    assert generated(bench) == 12
    tools.check_canary(bench, sidecar)
    sidecar.stop()


def test_enospc_metrics(bench, namespace):
    """The disk of the results is full: «scored, not published yet» and why, the old file untouched; published when there is room."""
    home = bench.run / "_evalcar"
    inside = namespace.mount_tmpfs(home, "size=400k")
    sidecar = bench.sidecar()
    namespace.enter(sidecar)
    state_tools.see_inside(bench, sidecar, namespace)
    fillers = []
    run_full_publish_dir(bench, sidecar, lambda: fillers.append(state_tools.fill(inside)), lambda: fillers[0].unlink(), "no space")


def test_no_inodes(bench, namespace):
    """The disk of the results has room, and no inode left for a file: as a full disk; published when there are some again."""
    inside = namespace.mount_tmpfs(bench.run / "_evalcar", "size=16m,nr_inodes=200")
    sidecar = bench.sidecar()
    namespace.enter(sidecar)
    state_tools.see_inside(bench, sidecar, namespace)

    def end():
        assert os.statvfs(inside).f_bavail * os.statvfs(inside).f_frsize > 8 << 20 and os.statvfs(inside).f_favail == 0
        shutil.rmtree(inside / "taken")

    run_full_publish_dir(bench, sidecar, lambda: state_tools.take_inodes(inside), end, "no space")


def test_no_inodes_for_the_database(bench, namespace):
    """No inode is left on the disk of the database when the agent starts: it says so and ends, and the next start, with some, measures
    all; one that runs is not disturbed."""
    folder = bench.home / "small"
    inside = namespace.mount_tmpfs(folder, "size=16m,nr_inodes=30")
    sidecar = bench.sidecar()
    state_tools.put_database(sidecar, folder / "state.db", namespace)
    namespace.enter(sidecar)
    expected = save(bench, 5)
    state_tools.take_inodes(inside)
    assert sidecar.once() == 1 and "No space left on device" in sidecar.log()
    shutil.rmtree(inside / "taken")
    sidecar.start()
    sidecar.wait_for(lambda s: s.published() == set(expected), what="the result")

    state_tools.take_inodes(inside)
    expected |= save(bench, 10)
    sidecar.wait_for(lambda s: s.published() == set(expected), what="the second result")

    check_published_once(sidecar, expected)
    shutil.rmtree(inside / "taken")
    tools.check_canary(bench, sidecar)
    sidecar.stop()


def test_edquot_write(bench, preload):
    """Writing says EDQUOT: as a full disk."""
    sidecar = bench.sidecar()
    fault = Fault(preload, sidecar, "write", path="/_evalcar/", error=errno.EDQUOT, on=False)
    run_full_publish_dir(bench, sidecar, fault.begin, fault.end, "quota")


def test_readonly_remount(bench, preload):
    """The results' file system, then the database's, turns read-only: it says so, does not spin, and goes on when it is writable."""
    sidecar = bench.sidecar()
    fault = Fault(preload, sidecar, "write open name", path="/_evalcar/", error=errno.EROFS, on=False)
    run_full_publish_dir(bench, sidecar, fault.begin, fault.end, "read-only")

    other = bench.sidecar()
    fault = Fault(preload, other, "write open name", path=str(other.database), error=errno.EROFS, on=False)
    other.start()
    other.wait_for(lambda s: state_tools.status_of(s)["agent"]["pid"] == s.process.pid, what="the start")
    fault.begin()
    expected = save(bench, 15)
    tools.eventually(lambda: state_tools.warning_of(other), timeout=30, what="a warning in the status")
    fault.end()
    other.wait_for(lambda s: set(expected) <= s.published(), timeout=tools.CONVERGES_S, what="the result")
    tools.eventually(lambda: not state_tools.warning_of(other), timeout=30, what="the end of the warning")
    other.stop()


def test_enospc_scratch(bench, namespace, preload):
    """A merge on a full disk fails with its reason and leaves nothing; leases on one are copied or read in place, never half."""
    folder = bench.run / "checkpoint-5"
    save(bench, 5)
    checkpoints.write_safetensors(folder / "model.safetensors", "large", rows=16384)
    inside = namespace.mount_tmpfs(bench.home / "small", "size=100k")
    done = subprocess.run([*namespace.words, bench.evalcar, "merge", "--input_dir", str(folder), "--output_dir", str(bench.home / "small/merged")],
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == 1 and "MiB free" in done.stderr, done  # told beforehand
    assert list(inside.iterdir()) == []
    environment = dict(os.environ, LD_PRELOAD=str(preload(state_tools.FAULTY_DISK)), FAULT_CALLS="write", FAULT_PATH="/merged",
                       FAULT_ERRNO=str(errno.ENOSPC))  # fmt: skip
    done = subprocess.run([bench.evalcar, "merge", "--input_dir", str(folder), "--output_dir", str(bench.home / "merged/here"), "--dtype", "bfloat16"],
                          capture_output=True, text=True, timeout=60, check=False, env=environment)  # fmt: skip
    assert done.returncode == 1 and "No space left" in done.stderr, done
    assert not (bench.home / "merged").exists() or list((bench.home / "merged").rglob("*")) == []

    expected = {(5, "regular"): hash_of(bench.evalcar, folder, "regular")}
    namespace.mount_tmpfs(bench.run / "_evalcar" / "leases", "size=100k")
    sidecar = bench.sidecar("--set", "watch.settle_time=1s")  # the weights were written once more
    namespace.enter(sidecar)
    assert sidecar.once() == 0, sidecar.log()
    check_published_once(sidecar, expected)
    assert list(namespace.path(bench.run / "_evalcar" / "leases").iterdir()) == []
    tools.check_canary(bench, sidecar)


def test_disk_full_log(bench):
    """The log cannot be written: the agent works on."""
    expected = save(bench, 5)
    sidecar = bench.sidecar()
    sidecar.command = ["sh", "-c", 'exec "$@" >/dev/full 2>/dev/full', "sh", *sidecar.command]

    assert sidecar.once() == 0

    check_whole(bench, sidecar, expected)
    tools.unbroken(sidecar)
    tools.check_canary(bench, sidecar)


# ---- a damaged, lost or foreign database


def damage_page(page):
    def damage(database):
        with open(database, "r+b") as file:
            file.seek(4096 * page)
            file.write(os.urandom(4096))

    return damage


def cut_to(size):
    return lambda database: os.truncate(database, size)


def run_damaged(bench, damage, *, word="damaged"):
    """Two results are published, the database is damaged, a third checkpoint comes."""
    expected = save(bench, 5, 10)
    sidecar = bench.sidecar()
    assert sidecar.once() == 0
    before = sidecar.metrics_lines()
    rows = sidecar.query("SELECT step, checkpoint_type, task, metric, value, stderr, n, weights_sha256, fingerprint, finished_at FROM metrics ORDER BY 1")
    samples = sidecar.query("SELECT step, task, doc_id, line FROM samples ORDER BY 1, 2, 3")
    assert len(rows) == 2 and len(samples) == 12
    damage(sidecar.database)
    damaged = state_tools.digest(sidecar.database)
    expected |= save(bench, 15)
    sidecar.start()
    tools.eventually(lambda: list(bench.home.glob("*.damaged-*")) and sidecar.database.exists(), what="the damaged file aside")
    sidecar.wait_for(lambda s: s.published() == set(expected), what="the third result")
    tools.eventually(lambda: word in state_tools.warning_of(sidecar), timeout=30, what="a word in the status")
    sidecar.stop()

    assert sidecar.metrics_lines()[:2] == before
    check_whole(bench, sidecar, expected)
    assert len(bench.heard("load")) == 3 and generated(bench) == 18, "something was measured twice"
    columns = "step, checkpoint_type, task, metric, value, stderr, n, weights_sha256, fingerprint, finished_at"
    assert sidecar.query(f"SELECT {columns} FROM metrics WHERE step < 15 ORDER BY 1") == rows
    assert sidecar.query("SELECT step, task, doc_id, line FROM samples WHERE step < 15 ORDER BY 1, 2, 3") == samples
    aside = [path for path in bench.home.iterdir() if ".damaged-" in path.name and not path.name.endswith(("-wal", "-shm"))]
    assert [state_tools.digest(path) for path in aside] == [damaged]
    assert "damaged" in sidecar.log()
    doctor = state_tools.evalcar(sidecar, "doctor", "--set", f"store.path={sidecar.database}")
    assert doctor.returncode == 1 and str(aside[0]) in doctor.stdout, doctor
    tools.check_canary(bench, sidecar)


def test_db_page_garbage(bin_dir, tmp_path):
    """4 KiB of the database are overwritten: it is set aside at the start, made anew from the files, and everybody is told."""
    run_damaged(state_tools.another_bench(bin_dir, tmp_path / "first"), damage_page(0))
    run_damaged(state_tools.another_bench(bin_dir, tmp_path / "fourth"), damage_page(3))


def test_db_truncated(bin_dir, tmp_path):
    """The database is cut to 100 bytes, or to none: as above."""
    for size in (100, 0):
        run_damaged(state_tools.another_bench(bin_dir, tmp_path / str(size)), cut_to(size))


def test_a_lease_outlives_the_database(bench):
    """The database is lost while a checkpoint waits whose folder the trainer has removed: it is measured from its lease."""
    expected = save(bench, 5, 10)
    bench.tell(hang=True)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: [state in ("leased", "loading") for state, _ in s.states().values()] == [True, True], what="the leases")
    sidecar.kill()
    shutil.rmtree(bench.run / "checkpoint-5")
    for suffix in ("", "-wal", "-shm"):
        (bench.home / f"state.db{suffix}").unlink(missing_ok=True)
    bench.tell()

    assert sidecar.once() == 0, sidecar.log()

    check_whole(bench, sidecar, expected)
    tools.check_canary(bench, sidecar)


def test_a_lease_of_a_third_save_outlives_the_database(bench):
    """The first save of a step was published, the second written over before its turn, the third waits, and its folder is gone."""
    first = save(bench, 5)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: s.published() == set(first), what="the first result")
    bench.tell(hang=True)
    for generation, seed in ((2, "second"), (3, "third")):
        shutil.rmtree(bench.run / "checkpoint-5")
        folder = checkpoints.write_hugging_face(bench.run, 5, seed=seed)
        waiting = "SELECT max(generation) FROM evaluations WHERE state IN ('leased', 'loading', 'evaluating')"
        sidecar.wait_for(lambda s, n=generation, q=waiting: s.query(q) == [(n,)], what=f"the lease of the {seed} save")
    third = hash_of(bench.evalcar, folder, "regular")
    sidecar.kill()
    shutil.rmtree(folder)
    for suffix in ("", "-wal", "-shm"):
        (bench.home / f"state.db{suffix}").unlink(missing_ok=True)
    bench.tell()

    assert sidecar.once() == 0, sidecar.log()

    assert [line["weights_sha256"] for line in sidecar.metrics_lines()] == [*first.values(), third]
    tools.check_canary(bench, sidecar)


def test_db_wal_deleted(bench):
    """The hot WAL is removed while no agent runs: it starts, redoes what is missing, and publishes nothing twice."""
    expected = save(bench, 5, 10)
    sidecar = bench.sidecar()
    sidecar.start()
    sidecar.wait_for(lambda s: s.published() == set(expected), what="both results")
    sidecar.kill()
    before = sidecar.metrics_lines()
    wal = bench.home / "state.db-wal"
    assert wal.stat().st_size > 0
    wal.unlink()
    expected |= save(bench, 15)

    assert sidecar.once() == 0, sidecar.log()

    assert sidecar.metrics_lines()[:2] == before
    check_whole(bench, sidecar, expected)
    assert generated(bench) == 18
    tools.check_canary(bench, sidecar)


@pytest.mark.parametrize("replaced", [False, True])
def test_db_removed_while_in_use(bench, replaced):
    """Removed with all that belongs to it, or a backup put in its place, between evaluations and in the middle of one: the agent
    says so, opens it anew, knows from the published files what it measured, and publishes nothing twice."""
    expected = save(bench, 5)
    sidecar = bench.sidecar()
    backup = bench.home / "backup.db"

    def take_away():
        for path in bench.home.glob("state.db*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if replaced:
            shutil.copyfile(backup, sidecar.database)

    sidecar.start()
    sidecar.wait_for(lambda s: s.published() == set(expected), what="the first result")
    with sqlite3.connect(sidecar.database) as live, sqlite3.connect(backup) as copy:
        live.backup(copy)
    take_away()
    tools.eventually(lambda: "removed or replaced while it was in use" in sidecar.log(), what="the notice")
    expected |= save(bench, 10)
    sidecar.wait_for(lambda s: s.published() == set(expected), what="the second result, in a database that is there")
    bench.tell(at_sample={"doc": 3, "do": "hang"})
    expected |= save(bench, 15)
    sidecar.wait_for(lambda s: s.states().get((15, "regular"), ("",))[0] == "evaluating", what="the third evaluation")
    take_away()
    tools.eventually(lambda: sidecar.log().count("removed or replaced while it was in use") == 2, what="the second notice")
    bench.tell()
    sidecar.wait_for(lambda s: s.published() == set(expected), what="the third result")
    assert sidecar.stop() == 0, sidecar.log()

    check_whole(bench, sidecar, expected)
    tools.check_canary(bench, sidecar)
    assert sidecar.log().count("] error") + sidecar.log().count(" error ") == 2, sidecar.log()


def test_db_newer_schema(bench):
    """The schema is newer than ours: refused with exit code 2, and the file stays byte for byte."""
    sidecar = bench.sidecar()
    save(bench, 5)
    assert sidecar.once() == 0
    state_tools.rows_of(sidecar.database, "PRAGMA user_version = 99")
    state_tools.rows_of(sidecar.database, "PRAGMA wal_checkpoint(TRUNCATE)")
    before = state_tools.digest(sidecar.database)

    assert sidecar.once() == 2

    assert "schema version 99" in sidecar.log() and state_tools.digest(sidecar.database) == before
    assert not list(bench.home.glob("*.damaged-*"))
    other = bench.sidecar()
    state_tools.put_database(other, bench.home / "other.db")
    tools.check_canary(bench, other)


@pytest.mark.parametrize(("name", "fs_type"), [("FUSE", 0x65735546), ("OCFS2", 0x7461636F)])
def test_db_on_network_fs(bench, preload, name, fs_type):
    """The state directory is on FUSE or another of a network: refused with exit code 2 and what to set, unless it is forced, and
    the doctor has said so before."""
    expected = save(bench, 5)
    sidecar = bench.sidecar()
    state_tools.put_database(sidecar, bench.home / "db" / "state.db")
    Fault(preload, sidecar, "statfs", path=str(bench.home / "db"), fs_type=fs_type)
    ask = [bench.evalcar, "doctor", "--json", "--set", f"store.path={sidecar.database}"]
    done = subprocess.run(ask, env=sidecar.environment, capture_output=True, text=True, timeout=60, check=False)
    (told,) = [check for check in json.loads(done.stdout)["checks"] if check["check"] == "state directory"]
    assert done.returncode == 1 and told["level"] == "problem" and f"is on {name}" in told["text"] and "store.path" in told["mend"], told

    assert sidecar.once("--set", "server.listen=127.0.0.1:0") == 2  # nor are requests said yes to that could be lost
    assert list((bench.home / "db").iterdir()) == []
    assert sidecar.once() == 2

    assert name in sidecar.log() and "store.path" in sidecar.log().replace("[store] path", "store.path")
    assert "allow_network_file_system" in sidecar.log()
    assert sidecar.once("--set", "store.allow_network_file_system=true") == 0, sidecar.log()
    check_published_once(sidecar, expected)
    sidecar.environment.pop("LD_PRELOAD")
    tools.check_canary(bench, sidecar)


def hold_locked(sidecar):
    connection = sqlite3.connect(sidecar.database, isolation_level=None, timeout=10)
    connection.execute("BEGIN EXCLUSIVE")
    return connection


def test_db_locked(bench):
    """Another process holds the database locked: reading goes on, a stop is obeyed, and what waited is written afterwards."""
    expected = save(bench, 5)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: s.published() == set(expected), what="the first result")
    holder = hold_locked(sidecar)
    expected |= save(bench, 10)
    tools.eventually(lambda: "database is locked" in sidecar.log(), timeout=30, what="a word about the lock")
    read = tools.within(2, bench.evalcar, lambda: state_tools.evalcar(sidecar, "status", "--db", sidecar.database))
    assert read.returncode == 0
    holder.execute("ROLLBACK")
    sidecar.wait_for(lambda s: s.published() == set(expected), timeout=tools.CONVERGES_S, what="the second result")

    holder.execute("BEGIN EXCLUSIVE")
    expected |= save(bench, 15)
    time.sleep(0.5)
    tools.within(5, bench.evalcar, sidecar.stop)
    holder.execute("ROLLBACK")
    holder.close()
    assert sidecar.once() == 0
    check_whole(bench, sidecar, expected)
    tools.check_canary(bench, sidecar)


# ---- two agents


def check_names_owner(log, owner):
    """pid, host and since when."""
    assert f"pid {owner.process.pid} on {socket.gethostname()} since 20" in log, log


def second_with_own_state(bench, environment=None):
    second = bench.sidecar(environment=environment)
    state_tools.put_database(second, bench.home / "second" / "state.db")
    second.log_path = bench.home / "second.log"
    return second


def test_second_agent_same_state(bench):
    """A second agent on the same database ends within 2 s and names the first, which goes on undisturbed."""
    expected = save(bench, 5)
    first = bench.sidecar().start()
    first.wait_for(lambda s: s.published() == set(expected), what="the first result")
    second = bench.sidecar()
    second.log_path = bench.home / "second.log"

    assert tools.within(2, bench.evalcar, lambda: second.start().wait(60)) == 1
    assert f"pid {first.process.pid}, since 20" in second.log(), second.log()
    tools.check_canary(bench, first)
    check_published_once_but_canary(first, expected)


def check_published_once_but_canary(sidecar, expected):
    lines = [line for line in sidecar.metrics_lines() if line["global_step"] != tools.CANARY_STEP]
    assert sorted((line["global_step"], line["checkpoint_type"]) for line in lines) == sorted(expected)
    assert {line["weights_sha256"] for line in lines} == set(expected.values())


@pytest.mark.parametrize("flock", [True, False], ids=["flock", "no_flock"])
def test_second_agent_same_tree(bench, preload, flock):
    """Two state directories, one tree, with flock and without: each result is published once, and the loser says who owns it."""
    expected = save(bench, 5)
    first = bench.sidecar()
    second = second_with_own_state(bench)
    if not flock:
        for agent in (first, second):
            Fault(preload, agent, "flock", path="/")
    first.start()
    first.wait_for(lambda s: s.published() == set(expected), what="the first result")

    assert tools.within(2, bench.evalcar, lambda: second.start().wait(60)) == 1
    check_names_owner(second.log(), first)
    heartbeat = state_tools.status_of(first)["agent"]["pid"]
    assert heartbeat == first.process.pid
    tools.check_canary(bench, first)
    check_published_once_but_canary(first, expected)


@pytest.mark.parametrize("output_dir", ["writable", "read_only"])
def test_two_runs_with_one_publish_dir(bench, request, output_dir):
    """The configuration of one run, copied for another: what the first publishes is not mixed with what the second would."""
    published = bench.home / "published"
    arguments = ("--set", f"publish.dir={published}")
    expected = save(bench, 5)
    first = bench.sidecar(*arguments)
    if output_dir == "read_only":  # there is no lock in our folder, which cannot be made
        namespace = request.getfixturevalue("namespace")
        namespace.run("mount", "--bind", bench.run, bench.run)
        namespace.run("mount", "-o", "remount,bind,ro", bench.run)
        namespace.enter(first)
    first.start()
    first.wait_for(lambda s: s.published() == set(expected), what="the result")

    second = second_with_own_state(bench)
    second.run = bench.home / "other" / "out"
    second.command[second.command.index(str(bench.run))] = str(second.run)
    second.command += arguments
    second.run.parent.mkdir()
    shutil.copytree(bench.run, second.run, ignore=shutil.ignore_patterns("_evalcar"))
    second.start()
    assert second.wait(60) == 1
    check_names_owner(second.log(), first)
    assert str(published / "lock") in second.log()
    (line,) = (published / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["global_step"] == 5
    assert first.stop() == 0
    expected_lines = 2  # the directory is free again
    assert second.once() == 0, second.log()
    assert len((published / "metrics.jsonl").read_text().splitlines()) == expected_lines


def test_our_folder_by_another_name_is_one_publish_dir(bench):
    """publish.dir names `_evalcar` through a link: the agent does not lock itself out."""
    expected = save(bench, 5)
    (bench.home / "link").symlink_to(bench.run)
    sidecar = bench.sidecar("--set", f"publish.dir={bench.home / 'link' / '_evalcar'}")
    assert sidecar.once() == 0, sidecar.log()
    assert sidecar.published() == set(expected)


def test_paused_owner_is_fenced(bench, preload):
    """The owner sleeps (SIGSTOP) where there is no flock, another takes over; when the first wakes up it publishes nothing and ends."""
    expected = save(bench, 5)
    first, second = bench.sidecar(), second_with_own_state(bench)
    for agent in (first, second):
        Fault(preload, agent, "flock", path="/")
    first.start()
    first.wait_for(lambda s: s.published() == set(expected), what="the first result")
    bench.tell(delay=0.3)
    expected |= save(bench, 10)
    first.wait_for(lambda s: len(bench.heard("generate")) >= 8, what="the second evaluation")
    first.process.send_signal(signal.SIGSTOP)
    bench.tell()
    time.sleep(6.5)  # OutputLock::kLease

    second.start()
    second.wait_for(lambda s: s.published() == set(expected), what="its results")
    first.process.send_signal(signal.SIGCONT)
    assert first.wait(60) == 1
    assert "taken for dead" in first.log()
    assert f"pid {second.process.pid} on" in first.log()

    tools.check_canary(bench, second)
    check_published_once_but_canary(second, expected)
    second.stop()
    assert first.once() == 0, first.log()  # it learns from the files what the other one published
    check_published_once_but_canary(first, expected)
    assert set(expected) <= first.published()


def test_stale_lease(bench, preload):
    """The owner is killed where there is no flock: the next one knows that it is dead and takes over at once."""
    expected = save(bench, 5)
    first, second = bench.sidecar(), second_with_own_state(bench)
    for agent in (first, second):
        Fault(preload, agent, "flock", path="/")
    first.start()
    first.wait_for(lambda s: s.published() == set(expected), what="the first result")
    first.kill()
    expected |= save(bench, 10)

    second.start()
    lock = bench.run / "_evalcar" / "lock"
    owns = f"pid {second.process.pid} "  # before the first one's lease (6 s) is over
    tools.within(5, bench.evalcar, lambda: tools.eventually(lambda: lock.read_text().startswith(owns), what="the second one's ownership"))
    second.wait_for(lambda s: s.published() == set(expected), what="its result")
    check_published_once(second, expected)
    assert generated(bench) == 12
    tools.check_canary(bench, second)


# ---- memory, readers, modes

FAILING_MALLOC = tools.SHIM_HEAD + r"""
static long count;
static long failing = -1;
static int fails(void) {
  if (failing == -1) failing = getenv("FAIL_MALLOC") != NULL ? atol(getenv("FAIL_MALLOC")) : 0;
  return __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) == failing;
}
__attribute__((destructor)) static void tell(void) {
  FILE* file = getenv("COUNT_MALLOC") != NULL ? fopen(getenv("COUNT_MALLOC"), "w") : NULL;
  if (file != NULL) fprintf(file, "%ld\n", count), fclose(file);
}
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
void* malloc(size_t size) { return fails() ? (errno = ENOMEM, NULL) : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails() ? (errno = ENOMEM, NULL) : __libc_calloc(count, size); }
void* aligned_alloc(size_t step, size_t size) { return fails() ? (errno = ENOMEM, NULL) : __libc_memalign(step, size); }
int posix_memalign(void** made, size_t step, size_t size) {
  if (fails()) return ENOMEM;
  *made = __libc_memalign(step, size);
  return *made != NULL ? 0 : ENOMEM;
}
void* realloc(void* old, size_t size) { return fails() ? (errno = ENOMEM, NULL) : __libc_realloc(old, size); }
"""


def sweep_malloc(bench, preload, choose):
    """The worker here is the one that reads and hashes a checkpoint (`evalcar inspect --hash`); it runs for every evaluation."""
    library = preload(FAILING_MALLOC)
    folder = checkpoints.write_hugging_face(bench.run, 5, seed="malloc")
    right = hash_of(bench.evalcar, folder, "regular")
    command = [bench.evalcar, "inspect", str(folder), "--weights", "regular", "--hash", "--json"]

    def run(n, **more):
        environment = dict(os.environ, LD_PRELOAD=str(library), FAIL_MALLOC=str(n), **more)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
        if done.returncode == 0:
            assert json.loads(done.stdout)["weights_sha256"] == right, n
        else:
            said = (n, done.returncode, done.stderr)
            assert any(word in done.stderr for word in ("out of memory", "bad_alloc", "Cannot allocate memory")), said
            assert done.returncode in (1, 3, -signal.SIGABRT), said
        return done.returncode

    counted = bench.home / "count"
    assert run(0, COUNT_MALLOC=str(counted)) == 0
    codes = sweep(run, choose(int(counted.read_text()) + 20))  # a thread more or less costs some
    ended = [n for n, code in codes.items() if code > 0]
    aborted = [n for n, code in codes.items() if code < 0]
    assert ended and len(ended) + len(aborted) >= 0.8 * len(codes), codes
    # Before main() only the C++ library can say what happened.
    assert all(n < 100 and n < min(ended) for n in aborted), aborted


def test_nth_malloc_fails(bench, preload):
    """The n-th allocation of the worker fails: it ends and says that memory ran out, never with a wrong number, and the agent goes on."""
    sweep_malloc(bench, preload, lambda count: sorted({1 + i * count // 12 for i in range(12)}))
    tools.check_canary(bench, bench.sidecar())


@pytest.mark.full
def test_nth_malloc_fails_for_every_n(bench, preload):
    """The same for all n up to a clean run."""
    sweep_malloc(bench, preload, lambda count: list(range(1, count + 1)))
    tools.check_canary(bench, bench.sidecar())


def race_readers(bench, count):
    """Publishes `count` results while a reader parses every file in a tight loop."""
    bench.tell(samples=1)
    expected = save(bench, *(5 * (n + 1) for n in range(count)))
    home = bench.run / "_evalcar"
    broken, reads, ended = [], [0], threading.Event()

    def read():
        seen = 0
        while not ended.is_set():
            try:
                lines = whole_lines(bench.run)
                if len(lines) < seen:
                    broken.append(f"{seen} lines became {len(lines)}")
                seen = len(lines)
                for name in ("best.json", "status.json"):
                    if (home / name).exists():
                        json.loads((home / name).read_text())
                reads[0] += 1
            except Exception as error:  # noqa: BLE001 - whatever a trainer would have met
                broken.append(repr(error))

    reader = threading.Thread(target=read)
    reader.start()
    sidecar = bench.sidecar()
    try:
        assert sidecar.once(timeout=60 + count) == 0, sidecar.log()
    finally:
        ended.set()
        reader.join()
    assert broken == [] and reads[0] > 20
    assert len(sidecar.metrics_lines()) == len(expected)
    bench.tell()
    tools.check_canary(bench, sidecar)


def test_metric_reader_race(bench):
    """A reader parses the published files in a tight loop while results come: they are valid at every moment."""
    race_readers(bench, 25)


@pytest.mark.full
def test_metric_reader_race_of_10000(bench):
    """The same with 10,000 publications."""
    race_readers(bench, 10_000)


def test_umask_odd(bin_dir, tmp_path):
    """Started with umask 000 or 077: what is published has the configured mode, 0644 by default."""
    for umask, mode in (("000", None), ("077", None), ("022", "0640")):
        bench = state_tools.another_bench(bin_dir, tmp_path / umask)
        expected = save(bench, 5)
        sidecar = bench.sidecar(*(("--set", f"publish.file_mode={mode}") if mode else ()))
        sidecar.command = ["sh", "-c", f'umask {umask}; exec "$@"', "sh", *sidecar.command]
        assert sidecar.once() == 0, sidecar.log()
        check_published_once(sidecar, expected)
        home = bench.run / "_evalcar"
        wanted = int(mode or "0644", 8)
        published = [home / "metrics.jsonl", home / "best.json", home / "status.json", *home.rglob("*_results.json"), sidecar.database]
        assert {path.name: oct(state_tools.mode_of(path)) for path in published} == {path.name: oct(wanted) for path in published}
        tools.check_canary(bench, sidecar)
