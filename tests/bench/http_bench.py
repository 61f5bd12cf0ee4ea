"""2,000 requests of status from 50 clients at once while an evaluation runs: how long each takes, what it costs the agent, and the
same questions to lmms-eval's own server in the same minute.

    EVALCAR_BUILD_DIR=build/dev build/venv/bin/python -m pytest -s tests/bench/test_http_bench.py"""

import http.client
import pathlib
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import checkpoints  # noqa: E402
from http_server import serving  # noqa: E402

CLIENTS = 50
REQUESTS = 2_000


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
