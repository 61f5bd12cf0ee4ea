"""What the live page of a run with 10,000 stored evaluations costs: its numbers (/page/data), and what a heartbeat costs the agent
while a page is open and while none is.

    EVALCAR_BUILD_DIR=build/dev build/venv/bin/python -m pytest -s tests/bench/test_page_bench.py"""

import json
import os
import pathlib
import socket
import sqlite3
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import checkpoints  # noqa: E402
from http_server import serving  # noqa: E402

STORED = 10_000
BEATS = 4


def copies(connection, table, key, changed):
    """Rows of the one evaluation that is there, once more for each further step; `changed`: column → SQL of `i`."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(changed.get(column, column) for column in columns)
    connection.execute(f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {STORED - 1}) "
                       f"INSERT INTO {table}({', '.join(columns)}) SELECT {values} FROM {table}, n WHERE {key}")  # fmt: skip


def fill(database):
    """The first step's evaluation, as if each of 10,000 steps had one."""
    with sqlite3.connect(database) as connection:
        (evaluation, checkpoint) = connection.execute("SELECT evaluation_id, checkpoint_id FROM evaluation").fetchone()
        (result,) = connection.execute("SELECT result_id FROM result").fetchone()
        new = {"checkpoint_id": f"{checkpoint} + i", "evaluation_id": f"{evaluation} + i", "result_id": f"{result} + i", "step": "step + i"}
        copies(connection, "checkpoint", f"checkpoint_id = {checkpoint}",
               {**new, "name": "'checkpoint-' || (step + i)", "path": "path || i", "inode": "inode + i"})  # fmt: skip
        copies(connection, "evaluation", f"evaluation_id = {evaluation}", new)
        copies(connection, "result", f"result_id = {result}", {**new, "weights_sha256": "weights_sha256 || i"})
        copies(connection, "metric", f"result_id = {result}", {**new, "value": "0.5 + i / 100000.0"})
        copies(connection, "evaluation_task", f"evaluation_id = {evaluation}", new)
        seq = {**new, "seq": "seq + i"}
        copies(connection, "publication", f"evaluation_id = {evaluation}", {**seq, "line": "replace(line, '\"seq\":1', '\"seq\":' || (seq + i))"})


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def listen(port, run):
    """A stream of the page's events: (connection, its file)."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=120)
    connection.sendall(f"GET /page/events?run={run} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    lines = connection.makefile("rb")
    return connection, lines


def next_event(lines):
    for line in lines:
        if line.startswith(b"data: "):
            return json.loads(line[6:])
    raise AssertionError("the stream ended")


def fetched(api, path):
    start = time.perf_counter()
    with urllib.request.urlopen(api.url + path, timeout=300) as answer:
        body = answer.read()
    return time.perf_counter() - start, body


def measure(bench):
    """Prints the figures; gives what each event told: (its version, how many numbers)."""
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar()
    assert sidecar.once() == 0, sidecar.log()
    fill(sidecar.database)
    sidecar, api = serving(bench)
    sidecar.wait_for(lambda _: api.get("/page/data")["run"], timeout=600, what="the run")
    run = api.get("/page/data")["run"]
    first, body = fetched(api, "/page/data")
    spent = sorted(fetched(api, "/page/data")[0] for _ in range(10))
    version = json.loads(body)["version"]
    _, nothing_new = fetched(api, f"/page/data?since={version}")
    bare = sorted(fetched(api, "/health")[0] for _ in range(10))

    def beats(stream):
        """The processor's time of a second while nothing happens."""
        before, start = processor_seconds(sidecar.process.pid), time.monotonic()
        if stream:
            told = [next_event(stream) for _ in range(BEATS)]
        else:
            told = []
            time.sleep(5 * BEATS)  # a heartbeat's pause
        return (processor_seconds(sidecar.process.pid) - before) / (time.monotonic() - start), told

    alone, _ = beats(None)
    connection, stream = listen(api.port, run)
    next_event(stream)
    watched, told = beats(stream)
    connection.close()
    numbers = len(json.loads(body)["metrics"])
    print(f"{STORED} evaluations, {numbers} numbers: /page/data is {len(body) / 1e6:.1f} MB; p50 {spent[5] * 1e3:.1f} ms, "
          f"{spent[5] / bare[5]:.0f} times /health; the first one {first / spent[5]:.1f} times as long; "
          f"to who has them {len(nothing_new) / 1e3:.1f} kB")
    print(f"an event is {len(json.dumps(told[-1])) / 1e3:.1f} kB; of a processor, idle {100 * alone:.2f} %, with a page open {100 * watched:.2f} %")
    return [(event["version"], numbers) for event in told]
