"""2,000 requests of status from 50 clients at once while an evaluation runs: how long each takes, what it costs the agent, and the
same questions to lmms-eval's own server in the same minute.

    EVALCAR_BUILD_DIR=build/dev build/venv/bin/python -m pytest -s tests/bench/test_http_bench.py"""

import pathlib
import random
import re
import selectors
import socket
import sqlite3
import sys
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


class Client:
    """One connection, which asks again as soon as it has its answer. It knows only answers with a Content-Length."""

    def __init__(self, host, port, paths):
        self.socket = socket.create_connection((host, port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.requests = [f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode() for path in paths]
        self.seconds, self.errors = [], []
        self.left = REQUESTS // CLIENTS

    def ask(self):
        self.received = b""
        self.begun = time.perf_counter()
        self.socket.send(self.requests[self.left % len(self.requests)])

    def take(self):
        """What has come. True: there is nothing more to ask."""
        data = self.socket.recv(1 << 16)
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head) if found else None
        if data and (length is None or len(body) < int(length[1])):
            return False
        self.seconds.append(time.perf_counter() - self.begun)
        if not head.startswith(b"HTTP/1.1 200 "):
            self.errors.append(self.received[:100])
        self.left = self.left - 1 if data else 0
        if self.left > 0:
            self.ask()
        return self.left == 0


def hammer(host, port, paths):
    """Seconds of each request; every client keeps its connection. One thread asks for all of them: fifty would wait for each other
    (Python runs one at a time), and that would be measured."""
    clients = [Client(host, port, paths[number % len(paths):] + paths[:number % len(paths)]) for number in range(CLIENTS)]
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
        start = time.perf_counter()
        for client in clients:
            client.ask()
        open_clients = CLIENTS
        while open_clients > 0:
            for key, _ in selector.select(60):
                if key.data.take():
                    selector.unregister(key.fileobj)
                    open_clients -= 1
        wall = time.perf_counter() - start
    for client in clients:
        client.socket.close()
    return sorted(second for client in clients for second in client.seconds), [error for client in clients for error in client.errors], wall


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
    hammer("127.0.0.1", api.port, ["/health"])  # all connections were there once
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
