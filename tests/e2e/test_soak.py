"""A long run of small checkpoints: what the agent takes does not grow with what it has done."""

import os
import pathlib
import time

import checkpoints
import pytest


def inotify_watches(pid):
    count = 0
    for path in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            count += path.read_text().count("inotify wd:")
        except OSError:
            pass
    return count


def most(count, pid):
    """Of several looks: a file is open while it is written."""
    seen = []
    for _ in range(10):
        seen.append(count(pid))
        time.sleep(0.03)
    return max(seen)


def look(sidecar):
    pid = sidecar.process.pid
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    sizes = [path.stat().st_size for path in sidecar.home.glob("state.db*") if path.is_file()]
    return {"rss_kib": int(status.split("VmRSS:")[1].split()[0]), "threads": int(status.split("Threads:")[1].split()[0]),
            "fds": most(lambda p: len(os.listdir(f"/proc/{p}/fd")), pid), "watches": most(inotify_watches, pid),
            "children": most(lambda _: len(sidecar.children()), pid),
            "database": sum(sizes), "log": sidecar.log_path.stat().st_size}  # fmt: skip


def soak(bench, count, every):
    """Saves and prunes to two; looks at the agent every so many checkpoints, when it has caught up."""
    sidecar = bench.sidecar().start()
    looks = []
    for number in range(1, count + 1):
        checkpoints.write_hugging_face(bench.run, number)
        if number > 2:
            checkpoints.prune_hugging_face(bench.run, 2)
        sidecar.wait_for(lambda s, n=number: s.query(f"SELECT 1 FROM evaluations WHERE step = {n} AND state = 'published'"),
                         what=f"checkpoint {number}")  # fmt: skip
        if number % every == 0:
            looks.append(look(sidecar))
    assert sidecar.stop() == 0
    assert len(sidecar.metrics_lines()) == count
    return looks


def check(looks, every, warm):
    looks = looks[warm:]
    first, last = looks[0], looks[-1]
    print(f"RSS {first['rss_kib'] / 1024:.1f} MiB, {last['rss_kib'] / 1024:.1f} MiB at the end; {last}")
    for name in ("threads", "watches", "children"):
        assert {seen[name] for seen in looks} == {first[name]}, (name, looks)
    assert max(seen["fds"] for seen in looks) - min(seen["fds"] for seen in looks) <= 1, looks  # one that is being written
    for seen in looks:
        assert abs(seen["rss_kib"] - first["rss_kib"]) <= 2048, looks
    checkpoints_done = every * (len(looks) - 1)
    # What is remembered of a checkpoint is bounded: rows, answers and lines of the fake evaluator's six samples.
    assert (last["database"] - first["database"]) / checkpoints_done <= 16 * 1024, looks
    assert (last["log"] - first["log"]) / checkpoints_done <= 2048, looks


def test_150_checkpoints_leave_the_agent_as_it_was(bench):
    check(soak(bench, 150, 30), 30, warm=1)


@pytest.mark.full
def test_2000_checkpoints_leave_the_agent_as_it_was(bench, figures):
    looks = soak(bench, 2000, 100)
    figures(f"soak: RSS after 300, 1000 and 2000 checkpoints {[looks[i]['rss_kib'] for i in (2, 9, 19)]} KiB; {looks[-1]}")
    check(looks, 100, warm=2)
