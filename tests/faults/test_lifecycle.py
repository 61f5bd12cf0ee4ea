"""Part E: how the agent begins, is told things, and ends."""

import contextlib
import ctypes
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request

import checkpoints
import fake_evaluator
import pytest
import tools
from harness import Bench, check_published_once, hash_of, leases

# ---- a sidecar that reads its configuration from a file


def write_config(bench, **changes):
    """bench.home/evalcar.toml: the defaults of these tests, each of which can be replaced ("evaluate.tasks"=…)."""
    keys = {"watch.output_dir": str(bench.run), "evaluate.tasks": ["docvqa_val"], "store.path": str(bench.home / "state.db"),
            "limits.retry_delay": "100ms", **changes}  # fmt: skip
    text = "".join(f"[{section}]\n" + "".join(f"{key.partition('.')[2]} = {json.dumps(keys[key])}\n" for key in members)
                   for section, members in itertools.groupby(sorted(keys), key=lambda key: key.partition(".")[0]))  # fmt: skip
    path = bench.home / "evalcar.toml"
    path.with_suffix(".tmp").write_text(text)
    path.with_suffix(".tmp").replace(path)
    return path


def configured(bench, environment=None, **changes):
    sidecar = bench.sidecar(environment=environment)
    sidecar.command = [sidecar.evalcar, "run", "--config", str(write_config(bench, **changes))]
    return sidecar


def evaluating(bench, sidecar, step=5, generated=3):
    """Waits until that step is in the middle of its evaluation."""
    tools.eventually(lambda: len(bench.heard("generate")) >= generated, 30, f"{generated} answers")
    tools.eventually(lambda: sidecar.query("SELECT 1 FROM answer"), 60, "an answer in the database")
    assert sidecar.states()[step, "regular"][0] == "evaluating"


def end(sidecar, within):
    """SIGTERM, and how it ended; fails if that took longer."""
    sidecar.wait_for(lambda s: s.handles_sigterm(), what="its signal handlers")
    begun = time.monotonic()
    sidecar.process.send_signal(signal.SIGTERM)
    code = sidecar.wait(within + 10)
    taken = time.monotonic() - begun
    assert taken < within, f"{taken:.1f} s"
    return code


def check_database(path):
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# ---- SIGTERM


def test_sigterm_idle(bench):
    """SIGTERM while nothing runs ends the agent within 2 s, with code 0."""
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: len(s.published()) == 1, what="the result")
    assert end(sidecar, within=2) == 0
    tools.check_canary(bench, sidecar)


def test_sigterm_mid_eval(bench):
    """SIGTERM in the middle of an evaluation ends the agent within 5 s; the evaluation waits with its answers, not failed, and goes on."""
    bench.tell(samples=40, delay=0.1)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar().start()
    evaluating(bench, sidecar)
    members = tools.family(sidecar.process.pid)
    assert end(sidecar, within=5) == 0
    assert sidecar.states()[5, "regular"][0] == "leased"
    assert sidecar.query("SELECT failures, attempts FROM evaluations") == [(0, 1)]
    assert leases(bench.run) == ["5-1-regular"]
    assert not [pid for pid in members if os.path.exists(f"/proc/{pid}")], "something outlived it"

    known = sidecar.query("SELECT count(*) FROM answer")[0][0]
    assert known >= len(bench.heard("generate")) - 1  # what came is kept, to the last answer under way
    shutil.rmtree(bench.run / "checkpoint-5")
    bench.tell(samples=40)
    assert sidecar.once() == 0
    assert len(bench.heard("generate")) <= 40 + 1
    assert sidecar.published() == {(5, "regular")}
    bench.tell()
    tools.check_canary(bench, sidecar)


def test_sigterm_twice(bench):
    """A second and third SIGTERM, and SIGINT, while it stops change nothing: it still ends clean."""
    bench.tell(samples=40, delay=0.1)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar().start()
    evaluating(bench, sidecar)
    for sent in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        sidecar.process.send_signal(sent)
    assert end(sidecar, within=5) == 0
    assert sidecar.states()[5, "regular"][0] == "leased"
    bench.tell()
    tools.check_canary(bench, sidecar)


def write_backlog(bench, count):
    """As many checkpoints as there may be after a night without an agent. Each has weights of its own, or none of them would make room
    while another one is measured; the rest is the same files."""
    first = checkpoints.write_hugging_face(bench.run, 1)
    for step in range(2, count + 1):
        folder = bench.run / f"checkpoint-{step}"
        folder.mkdir()
        for path in first.iterdir():
            put = shutil.copyfile if path.suffix == ".safetensors" else os.link
            put(path, folder / path.name)


def test_a_child_lets_go_of_the_agents_descriptors_before_all_else(bench):
    """What it does before it becomes the evaluator may take half a second. The agent may be killed meanwhile, and the next one must find
    neither a socket that answers nor a lock that is held."""
    close_range = 436  # of all architectures
    if ctypes.CDLL(None, use_errno=True).syscall(close_range, 1_000_000, 1_000_000, 0) != 0:
        pytest.skip("this kernel or its filter has no close_range()")
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar()
    trace = tools.strace(sidecar, "close_range,setpriority,execve", follow=True)
    assert sidecar.once() == 0

    calls, begun = {}, {}
    for line in trace.read_text().splitlines():
        pid, call = line.split(None, 1)
        if call.endswith("<unfinished ...>"):
            begun[pid] = call.removesuffix("<unfinished ...>").rstrip()
            continue
        resumed = re.match(r"<\.\.\. \w+ resumed>", call)
        calls.setdefault(pid, []).append(begun.pop(pid) + call[resumed.end():] if resumed else call)
    children = [each for each in calls.values() if any("fake_evaluator" in call for call in each)]
    assert children
    for child in children:
        names = [call.partition("(")[0] for call in child]
        closed = [re.match(r"close_range\((\d+), (\d+), 0\) += (-?\d+)", call) for call in child[:names.index("setpriority")]]
        (first, kept, one), (after, last, two) = [map(int, each.groups()) for each in closed if each]
        assert (one, two) == (0, 0), child
        assert first in (3, 4) and after == kept + 2 and last == 2**32 - 1, child  # all but what tells of a failed start
        assert names.index("setpriority") < names.index("execve"), child


def test_the_end_of_an_evaluator_is_seen_where_whoever_started_the_agent_ignores_that_of_children(bench):
    if subprocess.run(["env", "--ignore-signal=CHLD", "true"], capture_output=True).returncode != 0:
        pytest.skip("this env(1) cannot ignore a signal")
    bench.tell(at_sample={"doc": 1, "do": "die", "once": str(bench.home / "died")})
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar()
    sidecar.command = ["env", "--ignore-signal=CHLD", *sidecar.command]
    assert sidecar.once(timeout=120) == 0
    assert sidecar.published() == {(5, "regular")}


@pytest.mark.parametrize("count", [100, pytest.param(3000, marks=pytest.mark.full)])
def test_sigterm_backlog(bench, count):
    """SIGTERM within 5 s while thousands of checkpoints are recorded for the first time, while their leases are taken back after the
    database was lost, while those of another configuration are ended, and while they are given up for lack of room; nothing is lost
    by it."""
    bench.tell(hang=True)
    write_backlog(bench, count)
    sidecar = bench.sidecar("--set", "evaluate.policy=every", "--set", "watch.settle_time=1s")

    def stop_when(condition, sidecar=sidecar):
        sidecar.start()
        sidecar.wait_for(condition, timeout=120, what="the middle of it")
        assert end(sidecar, within=5) in (0, 4)

    def rows(state):
        return len(sidecar.query(f"SELECT 1 FROM evaluations WHERE state = '{state}'"))

    for part in (0, count // 4):
        stop_when(lambda s, n=part: rows("leased") > n)
    sidecar.start()
    sidecar.wait_for(lambda s: rows("leased") + rows("loading") == count, timeout=300, what="all of them")
    assert end(sidecar, within=5) == 0

    for folder in bench.run.glob("checkpoint-*"):
        shutil.rmtree(folder)
    for suffix in ("", "-wal", "-shm"):
        pathlib.Path(f"{sidecar.database}{suffix}").unlink(missing_ok=True)
    stop_when(lambda s: rows("leased") > 0)
    sidecar.start()
    sidecar.wait_for(lambda s: rows("leased") + rows("loading") == count, timeout=300, what="all of them again")
    assert end(sidecar, within=5) == 0

    other = bench.sidecar("--set", "evaluate.policy=every", tasks="textvqa_val")
    stop_when(lambda s: rows("skipped") > 0, other)
    other.start()
    other.wait_for(lambda s: rows("skipped") == count, timeout=300, what="the end of all that are not wanted")
    assert end(other, within=5) == 0
    assert rows("leased") == count and len(leases(bench.run)) == count  # handed over

    poor = bench.sidecar("--set", "evaluate.policy=every", "--set", "limits.lease_budget=1B", tasks="textvqa_val")
    stop_when(lambda s: rows("lost") > 0, poor)
    poor.start()
    poor.wait_for(lambda s: rows("lost") >= count - 1, timeout=300, what="the loss of all but the one that runs")
    assert end(poor, within=5) == 4
    bench.tell()
    tools.check_canary(bench, sidecar)


# ---- SIGHUP


def test_sighup_good(bench, notify):
    """SIGHUP takes a changed configuration up in the same process, and says so to the service manager."""
    sidecar = configured(bench, notify.environment()).start()
    notify.wait_for("READY=1")
    first = checkpoints.write_hugging_face(bench.run, 5)
    sidecar.wait_for(lambda s: len(s.published()) == 1, what="the first result")
    pid = sidecar.process.pid
    shutil.rmtree(first)

    write_config(bench, **{"evaluate.tasks": ["docvqa_val", "textvqa_val"], "evaluate.policy": "every", "limits.attempts": 7})
    sidecar.process.send_signal(signal.SIGHUP)
    notify.wait_for("READY=1", count=2)
    said = [line for _, line in notify.lines() if line.startswith(("READY", "RELOADING", "MONOTONIC_USEC"))]
    assert said[1] == "RELOADING=1" and said[3] == "READY=1" and int(said[2].partition("=")[2]) <= time.monotonic_ns() // 1000
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar.wait_for(lambda s: (10, "regular") in s.published(), what="the second result")
    assert {key for key in sidecar.metrics_lines()[-1]["metrics"] if key.endswith("anls")} == {"eval/docvqa_val/anls", "eval/textvqa_val/anls"}
    assert sidecar.process.pid == pid and sidecar.process.poll() is None
    tools.check_canary(bench, sidecar)
    assert sidecar.stop() == 0


@pytest.mark.parametrize("break_it, named", [
    (lambda bench: (bench.home / "evalcar.toml").write_text("[watch\noutput_dir = 3\n"), ["evalcar.toml", ":1"]),
    (lambda bench: write_config(bench, **{"evaluate.task": ["docvqa_val"]}), ["evalcar.toml", "evaluate.task", "evaluate.tasks"]),
    (lambda bench: write_config(bench, **{"evaluate.tasks": ["no_such_task"]}), ["no_such_task"]),
    (lambda bench: write_config(bench, **{"watch.output_dir": str(bench.home)}), ["watch.output_dir", "restart"]),
    (lambda bench: write_config(bench, **{"store.path": str(bench.home / "other.db")}), ["store.path", "state.db", "restart"]),
    (lambda bench: (bench.home / "evalcar.toml").unlink(), ["evalcar.toml"]),
], ids=["syntax", "unknown-key", "unknown-task", "output-dir", "store-path", "gone"])  # fmt: skip
def test_sighup_bad(bench, notify, break_it, named):
    """SIGHUP with a configuration that is wrong, or that only a start can take up, changes nothing, and the log says what and where."""
    sidecar = configured(bench, notify.environment()).start()
    notify.wait_for("READY=1")
    break_it(bench)
    sidecar.process.send_signal(signal.SIGHUP)
    notify.wait_for("READY=1", count=2)
    complaint = next(line for line in sidecar.log().splitlines() if "stays as it was" in line)
    assert " error " in complaint and all(word in complaint for word in named), complaint
    tools.check_canary(bench, sidecar)
    assert not (bench.home / "other.db").exists()
    assert sidecar.stop() == 0


def test_sighup_mid_eval(bench, notify):
    """SIGHUP in the middle of an evaluation leaves it alone: it ends as it was begun, and the next one is of the new configuration."""
    bench.tell(samples=30, delay=0.1)
    first = checkpoints.write_hugging_face(bench.run, 5)
    sidecar = configured(bench, notify.environment()).start()
    evaluating(bench, sidecar)
    shutil.rmtree(first)
    write_config(bench, **{"evaluate.tasks": ["textvqa_val"]})
    sidecar.process.send_signal(signal.SIGHUP)
    notify.wait_for("READY=1", count=2)
    assert sidecar.states()[5, "regular"][0] == "evaluating"  # READY did not wait for its end
    sidecar.wait_for(lambda s: (5, "regular") in s.published(), what="the result")
    assert len(bench.heard("load")) == 1 and len(bench.heard("generate")) == 30
    assert sidecar.query("SELECT attempts FROM evaluations") == [(1,)]

    bench.tell(samples=2)
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar.wait_for(lambda s: (10, "regular") in s.published(), what="the next result")
    assert [key for key in sidecar.metrics_lines()[-1]["metrics"] if key.endswith("anls")] == ["eval/textvqa_val/anls"]
    bench.tell()
    write_config(bench)
    sidecar.process.send_signal(signal.SIGHUP)
    notify.wait_for("READY=1", count=3)
    tools.check_canary(bench, sidecar)
    assert sidecar.stop() == 0


# ---- what the service manager is told

HOLD_POLL = tools.SHIM_HEAD + r"""
/* The agent's loop hangs in poll() while the switch is on; what it starts does not. */
int poll(struct pollfd* fds, nfds_t count, int timeout) {
  static int (*next)(struct pollfd*, nfds_t, int);
  if (next == NULL) next = real("poll");
  while (is_agent() && switched_on("HOLD_POLL")) usleep(20000);
  return next(fds, count, timeout);
}
"""


def test_watchdog_truth(bench, notify, preload):
    """WATCHDOG=1 comes from the loop alone: it goes on through a long silent evaluation, and ends with a loop that hangs."""
    period = 1.5
    switch = bench.home / "hold"
    sidecar = bench.sidecar(environment=notify.environment(watchdog_s=period))
    tools.use_shim(sidecar, preload(HOLD_POLL), HOLD_POLL=switch)
    bench.tell(samples=1, delay=4)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar.start()
    notify.wait_for("READY=1")
    sidecar.wait_for(lambda s: len(s.published()) == 1, what="the result of a long evaluation")
    pings = notify.times("WATCHDOG=1")
    assert any(line.startswith("STATUS=checkpoint-5 regular: ") for _, line in notify.lines())
    gaps = [after - before for before, after in itertools.pairwise(pings)]
    assert pings[-1] - pings[0] > 3.5 and max(gaps) < period * 0.8, gaps

    switch.touch()
    time.sleep(period)  # the ping under way, and the pause to the turn that hangs
    before = len(notify.times("WATCHDOG=1"))
    time.sleep(2 * period)
    assert len(notify.times("WATCHDOG=1")) == before, "a loop that hangs still pings"
    switch.unlink()
    notify.wait_for("WATCHDOG=1", count=before + 2)
    bench.tell()
    tools.check_canary(bench, sidecar)
    assert sidecar.stop() == 0


HOLD_OPEN = tools.SHIM_HEAD + r"""
/* Opening the database hangs while the switch is on. */
static void hold(const char* path) {
  size_t length = strlen(path);
  if (length > 9 && strcmp(path + length - 9, "/state.db") == 0) {
    while (is_agent() && switched_on("HOLD_OPEN")) usleep(20000);
  }
}
#define STAND_BEFORE(name)                                                     \
  int name(const char* path, int flags, ...) {                                 \
    static int (*next)(const char*, int, ...);                                 \
    va_list rest;                                                              \
    va_start(rest, flags);                                                     \
    int mode = va_arg(rest, int);                                              \
    va_end(rest);                                                              \
    if (next == NULL) next = real(#name);                                      \
    hold(path);                                                                \
    return next(path, flags, mode);                                            \
  }
STAND_BEFORE(open)
STAND_BEFORE(open64)
"""


def test_ready_truth(bench, notify, preload):
    """READY=1 comes only when the database is open, what a kill interrupted is recovered and what is there was seen; STOPPING=1 at the end."""
    bench.tell(samples=40, delay=0.1)
    checkpoints.write_hugging_face(bench.run, 5)
    killed = bench.sidecar().start()
    evaluating(bench, killed)
    killed.kill()
    checkpoints.write_hugging_face(bench.run, 10)

    hold_open, hold_poll = bench.home / "open", bench.home / "poll"
    hold_open.touch()
    hold_poll.touch()
    sidecar = bench.sidecar(environment=notify.environment())
    tools.use_shim(sidecar, f"{preload(HOLD_OPEN)}:{preload(HOLD_POLL)}", HOLD_OPEN=hold_open, HOLD_POLL=hold_poll)
    sidecar.start()
    notify.wait_for("EXTEND_TIMEOUT_USEC=60000000")
    time.sleep(1)
    assert notify.times("READY=1") == []
    hold_open.unlink()
    notify.wait_for("READY=1")
    states = sidecar.states()  # the loop waits before its second turn: this is what READY meant
    assert set(states) == {(5, "regular"), (10, "regular")}
    assert sidecar.query("SELECT outcome FROM attempts WHERE number = 1 AND step = 5") == [("interrupted",)]
    assert "10-1-regular" in leases(bench.run)
    bench.tell()
    hold_poll.unlink()
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="both results")
    tools.check_canary(bench, sidecar)
    assert notify.times("STOPPING=1") == []
    assert sidecar.stop() == 0
    assert len(notify.times("STOPPING=1")) == 1 and len(notify.times("READY=1")) == 1


HOLD_BIND = tools.SHIM_HEAD + r"""
#include <sys/socket.h>
/* Binding an address of the network hangs while the switch is on. */
int bind(int fd, const struct sockaddr* address, socklen_t size) {
  static int (*next)(int, const struct sockaddr*, socklen_t);
  if (next == NULL) next = real("bind");
  while (is_agent() && address->sa_family == AF_INET && switched_on("HOLD_BIND")) usleep(20000);
  return next(fd, address, size);
}
"""


def test_ready_truth_of_the_http_api(bench, notify, preload):
    """READY=1 comes only when the API's address is bound: whoever is started after it finds the API there at once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hold = bench.home / "bind"
    hold.touch()
    sidecar = bench.sidecar("--set", f"server.listen=127.0.0.1:{port}", environment=notify.environment())
    tools.use_shim(sidecar, preload(HOLD_BIND), HOLD_BIND=hold)
    sidecar.start()
    time.sleep(1.5)
    assert notify.times("READY=1") == []
    hold.unlink()
    notify.wait_for("READY=1")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
        assert json.load(answer)["status"] == "healthy"
    tools.check_canary(bench, sidecar)
    assert sidecar.stop() == 0


# ---- clocks and limits

SHIFT_CLOCK = tools.SHIM_HEAD + r"""
/* The wall clock is ahead by the seconds that the file says. */
int clock_gettime(clockid_t clock, struct timespec* time) {
  static int (*next)(clockid_t, struct timespec*);
  if (next == NULL) next = real("clock_gettime");
  int result = next(clock, time);
  if (clock != CLOCK_REALTIME || !is_agent()) return result;
  FILE* file = fopen(getenv("SHIFT_CLOCK"), "r");
  long shift = 0;
  if (file != NULL) {
    if (fscanf(file, "%ld", &shift) == 1) time->tv_sec += shift;
    fclose(file);
  }
  return result;
}
"""


def test_clock_jump(bench, preload):
    """The wall clock jumps a day ahead and a year back: nothing times out, what waits for its next try does not wait a year, order holds."""
    shift = bench.home / "shift"
    shift.write_text("0")
    bench.tell(samples=12, delay=0.15)
    sidecar = bench.sidecar("--set", 'limits.stage_timeouts=["heartbeat=5s", "stuck=5s"]', "--set", "limits.retry_delay=1s")
    tools.use_shim(sidecar, preload(SHIFT_CLOCK), SHIFT_CLOCK=shift)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar.start()
    evaluating(bench, sidecar)
    shift.write_text("86400")
    sidecar.wait_for(lambda s: (5, "regular") in s.published(), what="the result")
    assert sidecar.query("SELECT attempts, failures FROM evaluations") == [(1, 0)]
    ((finished,),) = sidecar.query("SELECT finished_at FROM evaluations")
    assert finished > time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 80000)), "the shim does not shift"

    bench.tell(error={"retryable": True})
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar.wait_for(lambda s: s.states().get((10, "regular"), ("",))[0] == "failed", what="the failure")
    shift.write_text(str(-365 * 86400))
    bench.tell()
    sidecar.wait_for(lambda s: (10, "regular") in s.published(), timeout=20, what="the next try")
    lines = sidecar.metrics_lines()
    assert [line["global_step"] for line in lines] == [5, 10] and lines[0]["seq"] < lines[1]["seq"]
    status = json.loads((bench.run / "_evalcar" / "status.json").read_text())
    assert 0 <= status["agent"]["uptime_s"] < 600
    tools.check_canary(bench, sidecar)
    assert sidecar.stop() == 0


def test_nofile_32(bench):
    """With 32 descriptors it works, or says why not; the database stays whole."""
    for step in (5, 10, 15):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar()
    tools.limit(sidecar, nofile=32)
    code = sidecar.once()
    assert code == 0 or "descriptors" in sidecar.log() or "Too many open files" in sidecar.log(), (code, sidecar.log())
    check_database(sidecar.database)
    tools.unbroken(sidecar)
    tools.check_canary(bench, sidecar)


def footprint(pid):
    """What must not grow: descriptors, threads, watches, processes."""
    return len(tools.open_files(pid)), tools.threads_of(pid), tools.watches_of(pid), len(tools.family(pid))


def run_jobs(bench, sidecar, first, count, at_once=8):
    """So many checkpoints of one step each, of which the trainer keeps two."""
    for start in range(first, first + count, at_once):
        steps = range(start, min(start + at_once, first + count))
        for step in steps:
            checkpoints.write_hugging_face(bench.run, step)
        sidecar.wait_for(lambda s, last=steps[-1], all_of=set(steps): {step for step, _ in s.published()} >= all_of, timeout=120,
                         what=f"the results up to {steps[-1]}")  # fmt: skip
        checkpoints.prune_lmms_engine(bench.run, 2)


@pytest.mark.parametrize("jobs", [24, pytest.param(1000, marks=pytest.mark.full)])
def test_leak_1000(bench, jobs, figures):
    """A thousand evaluations leave descriptors, threads, watches and processes as they were, and memory within 5 % after warm-up."""
    bench.tell(samples=1)
    sidecar = bench.sidecar("--set", "evaluate.policy=every", "--set", "watch.poll_interval=1s").start()
    warm_up = jobs // 3
    run_jobs(bench, sidecar, 1, warm_up)
    pid = sidecar.process.pid
    time.sleep(0.5)
    before, rss = footprint(pid), tools.rss_bytes(pid)
    run_jobs(bench, sidecar, warm_up + 1, jobs - warm_up)
    tools.eventually(lambda: footprint(pid) == before, 60, f"{before} again, not {footprint(pid)}")
    grown = tools.rss_bytes(pid) - rss
    figures(f"after {jobs} evaluations: {grown / 2**20:+.2f} MiB of {rss / 2**20:.1f} MiB since number {warm_up}; (fds, threads, watches, processes) {before}")
    assert grown < (0.05 * rss if jobs >= 1000 else 2 * 2**20)
    assert len(sidecar.metrics_lines()) == jobs
    bench.tell()
    tools.check_canary(bench, sidecar)
    assert sidecar.stop() == 0


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.full)])
def test_watch_leak(bench, count):
    """A thousand checkpoints that come and go leave no inotify watch behind."""
    sidecar = bench.sidecar("--set", "evaluate.eval_strategy=no", "--set", "watch.poll_interval=1s").start()
    checkpoints.write_hugging_face(bench.run, 1)
    sidecar.wait_for(lambda s: (1, "regular") in s.states(), what="the first row")
    pid = sidecar.process.pid
    time.sleep(0.5)
    before = tools.watches_of(pid)
    for start in range(2, 2 + count, 20):
        steps = range(start, min(start + 20, 2 + count))
        for step in steps:
            checkpoints.write_hugging_face(bench.run, step)
        sidecar.wait_for(lambda s, last=steps[-1]: (last, "regular") in s.states(), what="their rows")
        for step in steps:
            shutil.rmtree(bench.run / f"checkpoint-{step}")
    tools.eventually(lambda: tools.watches_of(pid) <= before, 60, f"{before} watches, not {tools.watches_of(pid)}")
    assert sidecar.stop() == 0
    tools.check_canary(bench, sidecar, evaluated_by=bench.sidecar())


# ---- logs


def test_log_rotate(bench):
    """A log that is renamed, removed or truncated under the agent goes on in the right file, and nothing is lost."""
    log = bench.home / "evalcar.log"
    sidecar = bench.sidecar("--log-file", str(log)).start()

    def publish(step):
        checkpoints.write_hugging_face(bench.run, step)
        sidecar.wait_for(lambda s: (step, "regular") in s.published(), what=f"step {step}")
        tools.eventually(lambda: f"checkpoint-{step} regular: published" in log.read_text(), 60, "its line in the log")

    publish(5)
    log.rename(bench.home / "evalcar.log.1")  # logrotate's create, without and with a signal
    publish(10)
    assert "checkpoint-10" not in (bench.home / "evalcar.log.1").read_text()
    log.rename(bench.home / "evalcar.log.2")
    sidecar.process.send_signal(signal.SIGHUP)
    tools.eventually(lambda: log.exists() and "read again" in log.read_text(), 60, "the reload's line")
    shutil.copyfile(log, bench.home / "evalcar.log.3")  # copytruncate
    os.truncate(log, 0)
    publish(15)
    assert not log.read_bytes().startswith(b"\0")
    everything = "".join((bench.home / f"evalcar.log{end}").read_text() for end in (".1", ".2", ".3", ""))
    for step in (5, 10, 15):
        assert everything.count(f"checkpoint-{step} regular: published") == 1
    assert sidecar.log() == ""
    tools.check_canary(bench, sidecar)
    assert sidecar.stop() == 0


def test_stderr_gone(bench):
    """Standard error closed from the start, or a pipe whose reader goes: no SIGPIPE, no log line in another file, everything goes on."""
    sidecar = bench.sidecar()
    plain = sidecar.command
    sidecar.command = ["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", *plain]
    sidecar.start()
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar.wait_for(lambda s: len(s.published()) == 1, what="the result")
    standard = {number: target for number, target in tools.open_files(sidecar.process.pid).items() if number < 3}
    assert set(standard.values()) == {"/dev/null"}, standard
    assert sidecar.stop() == 0
    check_database(sidecar.database)

    sidecar.process = subprocess.Popen(plain, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=sidecar.environment)
    sidecar.process.stderr.readline()
    sidecar.process.stderr.close()
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="the result behind a broken pipe")
    tools.check_canary(bench, sidecar)
    assert sidecar.stop() == 0


def test_the_journal_gets_priorities_and_no_second_clock(bench):
    """Where standard error is the journal's stream, lines begin with their priority; anywhere else they have their time."""
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(error={"message": "made up\nin two lines"})
    sidecar = bench.sidecar()
    with open(sidecar.log_path, "w") as log:
        info = os.fstat(log.fileno())
        environment = dict(sidecar.environment, JOURNAL_STREAM=f"{info.st_dev}:{info.st_ino}")
        subprocess.run([*sidecar.command, "--once"], stderr=log, stdout=log, env=environment, timeout=60, check=False)
    lines = sidecar.log().splitlines()
    assert lines and all(re.match("<[2-7]>", line) for line in lines), lines
    assert any(line.startswith("<3>checkpoint-5 regular: failed, quarantined") for line in lines)
    assert not any(re.search(r"\d{4}-\d\d-\d\dT", line.partition(">")[2][:20]) for line in lines)


# ---- releases


def database_of_version_2(source_dir, path):
    """What the program of an earlier release left: tests/unit/state/version_2_database.h."""
    header = (source_dir / "tests/unit/state/version_2_database.h").read_text()
    script = re.search(r'R"sql\((.*)\)sql"', header, re.DOTALL)[1]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def test_upgrade_downgrade(bench, source_dir):
    """A database of an earlier release is migrated with all its numbers; one of a later release is refused, byte for byte as it was."""
    sidecar = bench.sidecar()
    database_of_version_2(source_dir, sidecar.database)
    shown = "SELECT step, task, metric, value, n FROM metrics WHERE step = 5"
    before = sidecar.query(shown)
    assert len(before) == 1
    checkpoints.write_hugging_face(bench.run, 10)
    assert sidecar.once() == 0
    assert sidecar.query(shown) == before
    assert (10, "regular") in sidecar.published()
    check_database(sidecar.database)

    with contextlib.closing(sqlite3.connect(sidecar.database)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute(f"PRAGMA user_version = {version + 1}")
    content = sidecar.database.read_bytes()
    sidecar.log_path.unlink()
    assert sidecar.once() == 2
    assert f"version {version + 1}" in sidecar.log()
    assert sidecar.database.read_bytes() == content
    with contextlib.closing(sqlite3.connect(sidecar.database)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    tools.check_canary(bench, sidecar)


# ---- the unit


def render(source_dir, folder, bin_dir, kind):
    """A shipped unit with an instance's name, as `cmake --install` writes it."""
    source = source_dir / "systemd" / ("user" if kind == "user" else "") / "evalcar@.service.in"
    text = source.read_text().replace("@bin_dir@", str(bin_dir)).replace("@doc_dir@", "/usr/share/doc/evalcar").replace("@restart_steps@", "")
    unit = folder / kind / "evalcar@my-run.service"
    unit.parent.mkdir()
    shutil.copy(source_dir / "systemd" / "evalcar.slice", unit.parent)
    unit.write_text(text)
    return unit


def settings_of(unit):
    return [line.split("=", 1) for line in unit.read_text().splitlines() if re.match("[A-Z][A-Za-z]+=", line)]


def test_unit_lint(bench, source_dir, bin_dir):
    """The shipped units, with the drop-in that `evalcar init --systemd` writes, pass systemd's own checks; exposure is at most 2.0."""
    tools.need("systemd-analyze")
    (bench.home / "my-run.toml").write_text(write_config(bench, **{"watch.output_dir": str(bench.run), "limits.cpu_weight": 20}).read_text())
    system, user = (render(source_dir, bench.home, bin_dir, kind) for kind in ("system", "user"))
    done = subprocess.run([bench.evalcar, "init", "--systemd", str(system.parent), "--config", str(bench.home / "my-run.toml")],
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    drop_in = system.parent / "evalcar@my-run.service.d" / "10-evalcar.conf"
    assert f'ReadWritePaths="-{bench.home}" "-{bench.run}"' in drop_in.read_text()  # the database's folder, too

    for unit, flags in ((system, []), (user, ["--user"])):
        verified = subprocess.run(["systemd-analyze", "verify", *flags, "--man=no", unit], capture_output=True, text=True, timeout=60,
                                  env={**os.environ, "XDG_RUNTIME_DIR": str(bench.home)}, check=False)  # fmt: skip
        assert verified.returncode == 0 and "evalcar" not in verified.stderr, verified.stderr
    lines, lines_of_user = (settings_of(unit) for unit in (system, user))
    settings = dict(lines)
    assert settings["Type"] == "notify" and settings["RestartPreventExitStatus"] == "2 3 4" and int(settings["WatchdogSec"]) >= 60
    assert "/etc/evalcar/%i.toml" in settings["ExecStart"] and ["EnvironmentFile", "-/etc/evalcar/%i.env"] in lines
    # Weights count among the units of one slice. A template's own slice lies below system.slice and has weight 100.
    for each in (lines, lines_of_user):
        assert ["Slice", "evalcar.slice"] in each and ["Environment", "CUDA_DEVICE_ORDER=PCI_BUS_ID"] in each
    assert settings_of(source_dir / "systemd" / "evalcar.slice")[-2:] == [["CPUWeight", "10"], ["IOWeight", "10"]]
    for key in ("Wants", "After"):
        assert {"modprobe@nvidia_uvm.service", "nvidia-persistenced.service"} <= {word for name, value in lines if name == key for word in value.split()}
    secure = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", system], capture_output=True,
                            text=True, timeout=60, check=False)  # fmt: skip
    assert secure.returncode == 0, secure.stdout[-400:]


# ---- where it must run, too


def test_egress_none(bench):
    """A whole run in a network namespace without any way out works."""
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar()
    tools.without_network(sidecar)
    sidecar.start()
    sidecar.wait_for(lambda s: len(s.published()) == 1, what="the result")
    tools.check_canary(bench, sidecar)
    assert sidecar.stop() == 0


@pytest.fixture
def open_bench(bin_dir):
    """A bench in a folder that every user may enter; the evaluator and the program are where others may read them."""
    home = pathlib.Path(tempfile.mkdtemp(prefix="evalcar-"))
    home.chmod(0o755)
    with Bench(bin_dir, home) as made:
        yield made
    shutil.rmtree(home, ignore_errors=True)


def test_non_root(open_bench, namespace, shards):
    """As another user, on a root file system and an output directory that are read-only, it measures regular and EMA weights in place and publishes elsewhere."""
    bench = open_bench
    checkpoints.write_hugging_face(bench.run, 5)
    folder = checkpoints.write_fsdp2(bench.run, 10, shards)
    expected = {(5, "regular"): hash_of(bench.evalcar, bench.run / "checkpoint-5", "regular"),
                (10, "regular"): hash_of(bench.evalcar, folder, "regular"), (10, "ema"): hash_of(bench.evalcar, folder, "ema")}  # fmt: skip
    before = tools.tree_of(bench.run)
    work = bench.home / "work"
    namespace.mount_tmpfs(work, "size=64m,mode=0777")
    for folder in (bench.run, *bench.run.parents):
        if os.path.ismount(folder):
            namespace.run("mount", "-o", "remount,bind,ro", folder)
    with pytest.raises(AssertionError, match="Read-only"):
        namespace.run("touch", bench.run / "file")
    sidecar = bench.sidecar("--set", f"store.path={work / 'state.db'}", "--set", f"publish.dir={work / 'results'}")
    bench.tell(log=str(work / "events.log"))
    tools.as_user(sidecar)
    allowed = subprocess.run([*sidecar.command[:sidecar.command.index(sidecar.evalcar)], "sh", "-c", f"test -x {bench.evalcar} && test -r {sys.argv[0]}; "
                              f"test -x {bench.evalcar} && test -x {sidecar.environment['EVALCAR_EVALUATOR']}"], check=False)  # fmt: skip
    if allowed.returncode != 0:
        pytest.skip("the build folder is not readable for other users")
    namespace.enter(sidecar)
    assert sidecar.once("--set", "watch.settle_time=1s") == 0, sidecar.log()
    lines = [json.loads(line) for line in namespace.path(work / "results" / "metrics.jsonl").read_text().splitlines()]
    assert {(line["global_step"], line["checkpoint_type"]): line["weights_sha256"] for line in lines} == expected
    for line in lines:
        (value,) = (value for key, value in line["metrics"].items() if key.endswith("/anls"))
        assert value == pytest.approx(fake_evaluator.expected_value(line["weights_sha256"], "docvqa_val", 6))
    assert tools.tree_of(bench.run) == before


def test_process_1(bench):
    """As process 1 of a container it buries orphans that its children leave, hands SIGTERM on, and ends with the agent's code."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no process namespace can be made here")
    orphan = 'import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(0.3)\n  os._exit(0)\n'
    program = bench.home / "evaluator.py"
    program.write_text(f"#!{sys.executable}\n{orphan}os.execv({str(fake_evaluator.__file__)!r}, ['fake', *__import__('sys').argv[1:]])\n")
    program.chmod(0o755)
    sidecar = bench.sidecar("--set", "evaluate.keep_resident=false")
    sidecar.environment["EVALCAR_EVALUATOR"] = str(program)
    sidecar.command = ["unshare", "--pid", "--fork", "--kill-child", *sidecar.command]
    sidecar.start()
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="both results")
    init = tools.family(sidecar.process.pid)[1]

    def zombies():
        return [pid for pid in tools.family(init) if "State:\tZ" in pathlib.Path(f"/proc/{pid}/status").read_text()]

    tools.eventually(lambda: len(tools.family(init)) <= 3 and not zombies(), 60, f"an end of orphans ({tools.family(init)})")
    tools.check_canary(bench, sidecar)
    os.kill(init, signal.SIGTERM)
    assert sidecar.wait(60) == 0
    check_published_once(sidecar, {**{(step, "regular"): hash_of(bench.evalcar, bench.run / f"checkpoint-{step}", "regular")
                                      for step in (5, 10, tools.CANARY_STEP)}})  # fmt: skip
