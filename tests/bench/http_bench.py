"""2,000 requests of status from 50 clients at once while an evaluation runs: how long each takes, what it costs the agent, and the
same questions to lmms-eval's own server in the same minute.

    EVALCAR_BUILD_DIR=build/dev build/venv/bin/python -m pytest -s tests/bench/test_http_bench.py"""

import http.client
import pathlib
import random
import sqlite3
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import checkpoints  # noqa: E402
from http_server import serving  # noqa: E402

CLIENTS = 50
REQUESTS = 2_000
STORED = 10_000  # jobs that ended: as many as are kept


def rss_mb(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def hammer(host, port, paths):
    """Seconds of each request; every client keeps its connection."""
    spent, errors, lock = [], [], threading.Lock()
    barrier = threading.Barrier(CLIENTS)

    def client(number):
        connection = http.client.HTTPConnection(host, port, timeout=60)
        mine = []
        barrier.wait()
        for i in range(REQUESTS // CLIENTS):
            path = paths[(number + i) % len(paths)]
            start = time.perf_counter()
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    errors.append((path, answer.status))
            except OSError as error:
                errors.append((path, repr(error)))
                connection.close()
            mine.append(time.perf_counter() - start)
        connection.close()
        with lock:
            spent.extend(mine)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(spent), errors, time.perf_counter() - start


def fill_book(path, job_id):
    """Ended jobs like that one, until there are STORED; their ids."""
    with sqlite3.connect(path) as book:
        columns = [row[1] for row in book.execute("PRAGMA table_info(job)") if row[1] not in ("number", "job_id")]
        names = ", ".join(columns)
        ids = [f"00000000-0000-4000-8000-{number:012}" for number in range(1, STORED)]
        book.executemany(f"INSERT INTO job(job_id, {names}) SELECT ?, {names} FROM job WHERE job_id = ?", ((each, job_id) for each in ids))
    return ids


def measure_results(bench):
    """Prints how long the results of a stored evaluation take among 10,000; gives the answers that were not as the first one's."""
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sidecar, api = serving(bench)
    job = api.submit(folder, limit=3)
    told = api.wait_for(job, "completed")
    assert sidecar.stop() == 0
    ids = fill_book(f"{sidecar.database}.jobs", job)
    sidecar.start()
    api.wait_until_up(sidecar)
    spent, wrong = [], []
    for each in random.Random(1).sample(ids, 500):
        start = time.perf_counter()
        answer = api.job(each)
        spent.append(time.perf_counter() - start)
        if {**answer, "job_id": job} != told:
            wrong.append(answer)
    spent.sort()
    print(f"results of one of {STORED} stored evaluations (GET /jobs/ID, a connection each): p50 {at(spent, 0.5):.2f} ms  p99 {at(spent, 0.99):.2f} ms")
    return wrong


def at(spent, share):
    return spent[min(len(spent) - 1, int(len(spent) * share))] * 1e3


def measure(bench, real):
    """Prints the figures; gives (errors of ours, growth of the agent in MB)."""
    bench.tell(delay=0.05, samples=100_000)
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sidecar, api = serving(bench)
    job = api.submit(folder)
    api.wait_for(job, "running")
    hammer("127.0.0.1", api.port, ["/health"])  # all threads of the clients were there once
    before = rss_mb(sidecar.process.pid)
    ours, errors, wall = hammer("127.0.0.1", api.port, ["/health", "/queue", f"/jobs/{job}"])
    growth = rss_mb(sidecar.process.pid) - before
    assert api.job(job)["status"] == "running"
    print(f"evalcar           p50 {at(ours, 0.5):7.2f} ms  p99 {at(ours, 0.99):7.2f} ms  {len(ours) / wall:7.0f} requests/s"
          f"  {len(errors)} errors, agent +{growth:.1f} MB")
    if real is not None:
        theirs, their_errors, wall = hammer("127.0.0.1", real.api.port, ["/health", "/queue"])
        print(f"lmms-eval 0.7.3   p50 {at(theirs, 0.5):7.2f} ms  p99 {at(theirs, 0.99):7.2f} ms  {len(theirs) / wall:7.0f} requests/s"
              f"  {len(their_errors)} errors")
        print(f"ratio of p99      {at(theirs, 0.99) / at(ours, 0.99):.1f}")
    return errors, growth
