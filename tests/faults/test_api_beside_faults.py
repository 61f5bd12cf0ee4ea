"""Parts A and B, asked through the HTTP API while things go wrong: it answers, says no to what could not be kept, and whatever it said
yes to is there afterwards."""

import time

import checkpoints
import pytest
import state_tools
import tools
from http_server import free_port, serving
from state_tools import Fault
from test_state import hold_locked

ASKED = {"model": "qwen2_5_vl", "tasks": ["docvqa_val"]}


def submit(api, checkpoint):
    """(status, answer) of a request for a checkpoint."""
    return api.ask("POST", "/evaluate", {**ASKED, "model_args": {"model": str(checkpoint)}})


def until_accepted(api, checkpoint):
    """The job, when there is room for it again."""
    accepted = []

    def ask():
        status, answer = submit(api, checkpoint)
        if status == 200:
            accepted.append(answer["job_id"])
        return accepted

    tools.eventually(ask, tools.CONVERGES_S, "an accepted request")
    return accepted[0]


def only_by_request(bench, **options):
    return serving(bench, "--set", "evaluate.eval_strategy=no", **options)


def test_enospc_state_api(bench, namespace):
    """The disk of the database is full: a request is refused with the reason and leaves nothing; with room again it is taken and ends."""
    folder = bench.home / "small"
    inside = namespace.mount_tmpfs(folder, "size=4m")
    sidecar, api = only_by_request(bench, start=False)
    state_tools.put_database(sidecar, folder / "state.db", namespace)
    namespace.enter(sidecar)
    checkpoint = checkpoints.write_hugging_face(bench.run, 5)
    sidecar.start()
    api.wait_until_up(sidecar)
    # The API answers before: an agent that cannot even make its database ends.
    tools.eventually(lambda: sidecar.query("SELECT 1 FROM run"), what="the database")
    filler = state_tools.fill(inside)

    refused = [submit(api, checkpoint) for _ in range(3)]

    assert {status for status, _ in refused} <= {503, 507}, refused
    assert all("full" in str(answer) or "space" in str(answer) for _, answer in refused), refused
    assert api.get("/health")["status"] == "healthy" and bench.heard("load") == []
    filler.unlink()
    job = api.wait_for(until_accepted(api, checkpoint), "completed")
    assert [line["global_step"] for line in sidecar.metrics_lines()] == [5], job
    assert len(sidecar.query("SELECT 1 FROM evaluations")) == 1
    sidecar.stop()
    tools.check_canary(bench, sidecar, evaluated_by=bench.sidecar())


def test_fsync_eio_db_api(bench, preload):
    """Every sync of the requests' database fails: no request is said yes to that would be gone after a crash."""
    sidecar, api = only_by_request(bench, start=False)
    checkpoint = checkpoints.write_hugging_face(bench.run, 5)
    sidecar.start()
    api.wait_until_up(sidecar)
    assert sidecar.stop() == 0  # the database is there, whole
    Fault(preload, sidecar, "sync", path="/state.db.jobs", times=1000)
    sidecar.start()
    refused = []

    def ask():
        try:
            refused.append(submit(api, checkpoint))
        except OSError:  # it ended, or has not begun
            pass
        return len(refused) >= 2 or sidecar.process.poll() is not None

    tools.eventually(ask, 30, "two answers, or its end")
    assert all(status == 503 for status, _ in refused), refused
    if sidecar.process.poll() is None:
        sidecar.kill()

    del sidecar.environment["LD_PRELOAD"]
    sidecar.start()
    api.wait_until_up(sidecar)
    queue = api.get("/queue")
    assert queue["queued_jobs"] == [] and queue["completed_jobs"] == queue["failed_jobs"] == 0
    api.wait_for(until_accepted(api, checkpoint), "completed")
    sidecar.stop()
    tools.check_canary(bench, sidecar, evaluated_by=bench.sidecar())


def cut_power_after_requests(bench, namespace, count):
    """The power goes behind each of so many answered requests: the database of the requests is sound, and knows each of them."""
    disk = state_tools.LoopDisk(namespace, bench.home / "loop", bench.home / "database")
    sidecar, api = only_by_request(bench, start=False)
    state_tools.put_database(sidecar, disk.mount / "state.db", namespace)
    namespace.enter(sidecar)
    bench.tell(delay=0.2)
    sidecar.start()
    api.wait_until_up(sidecar)
    asked, cuts = [], []
    for number in range(1, count + 1):
        asked.append(until_accepted(api, checkpoints.write_hugging_face(bench.run, 5 * number)))
        cuts.append((disk.cut(), set(asked)))
    sidecar.kill()
    for copy, acknowledged in cuts:
        with disk.after(copy) as place:
            ask = lambda sql: state_tools.rows_inside(namespace, place / "state.db.jobs", sql, "-cmd", ".timeout 1000")  # noqa: E731, B023
            assert ask("PRAGMA integrity_check") == [("ok",)]
            known = {job for (job,) in ask("SELECT job_id FROM job")}
            assert acknowledged <= known, acknowledged - known
    bench.tell()
    sidecar.start()
    api.wait_until_up(sidecar)
    for job in asked:
        api.wait_for(job, "completed")
    assert sorted(line["global_step"] for line in sidecar.metrics_lines()) == [5 * number for number in range(1, count + 1)]
    sidecar.stop()
    disk.close()


def test_power_cut_db_api(bench, namespace):
    cut_power_after_requests(bench, namespace, 4)


@pytest.mark.full
def test_power_cut_db_api_50_times(bench, namespace):
    cut_power_after_requests(bench, namespace, 50)


def test_db_locked_api(bench):
    """Another process holds the database locked: questions are answered, a request at once, too, and no later than that it is taken."""
    sidecar, api = only_by_request(bench)
    checkpoint = checkpoints.write_hugging_face(bench.run, 5)
    api.wait_for(until_accepted(api, checkpoint), "completed")
    holder = hold_locked(sidecar)
    slowest = 0.0
    second = checkpoints.write_hugging_face(bench.run, 10)
    answers = []
    for _ in range(3):
        began = time.monotonic()
        assert api.get("/health")["status"] == "healthy"
        answers.append(submit(api, second))
        slowest = max(slowest, time.monotonic() - began)
    holder.execute("ROLLBACK")
    holder.close()
    print(f"the slowest question and request took {slowest:.3f} s")
    assert {status for status, _ in answers} <= {200, 503}, answers

    api.wait_for(until_accepted(api, second), "completed")
    assert sorted(line["global_step"] for line in sidecar.metrics_lines()) == [5, 10]
    sidecar.stop()
    tools.check_canary(bench, sidecar, evaluated_by=bench.sidecar())


@pytest.mark.parametrize("count", [15, pytest.param(2000, marks=pytest.mark.full)])
def test_backlog_2000_api(bench, count, figures):
    """Many complete checkpoints at the start: the API answers beside them."""
    bench.tell(samples=1)
    for step in range(1, count + 1):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar, api = serving(bench, "--set", "evaluate.policy=every", "--set", "watch.settle_time=1s", start=False)
    sidecar.start()
    api.wait_until_up(sidecar)
    seconds = []
    for _ in range(20 + count // 2):
        for path in ("/health", "/queue"):
            began = time.monotonic()
            api.get(path)
            seconds.append(time.monotonic() - began)
        time.sleep(0.02)
    seconds.sort()
    figures(f"API beside a backlog of {count}: p50 {1000 * seconds[len(seconds) // 2]:.1f} ms, "
            f"p99 {1000 * seconds[len(seconds) * 99 // 100]:.1f} ms (aim: 200 ms)")  # fmt: skip
    sidecar.stop()
    bench.tell()


def test_port_in_use(bench):
    """A port that somebody else has ends the start with its documented code and leaves the state untouched."""
    checkpoints.write_hugging_face(bench.run, 5)
    port = free_port()
    first, api = only_by_request(bench, port=port)
    other = bench.home / "other"
    other.mkdir()
    second = bench.sidecar("--set", f"server.listen=127.0.0.1:{port}", "--set", f"store.path={bench.home / 'other.db'}")
    second.command = [str(other) if word == str(bench.run) else word for word in second.command]
    log = first.log()

    assert second.start().wait(20) == 1

    said = second.log().removeprefix(log)
    assert f"127.0.0.1 port {port}: somebody else listens there" in said
    assert not list(other.iterdir()) and not list(bench.home.glob("other.db*"))
    assert api.get("/health")["status"] == "healthy"
    first.stop()
