"""Rows of part D: what strangers send to the HTTP API. Each test is one row; afterwards the agent answers, and where it matters a
checkpoint that is written then gets its number once."""

import concurrent.futures
import json
import os
import pathlib
import resource
import socket
import subprocess
import sys
import time
import urllib.parse

import checkpoints
import pytest
import tools
from http_server import Api, free_port, serving

TOKEN = "0123456789abcdef0123"


def raw(port, data, timeout=30, patience=None):
    """What comes back for these bytes until the other side closes, or nothing comes for `patience` seconds."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        try:
            connection.sendall(data)
        except OSError:
            pass  # it was closed on us: so it should be
        connection.settimeout(patience or timeout)
        answer = b""
        while True:
            try:
                piece = connection.recv(65536)
            except OSError:
                return answer
            if not piece:
                return answer
            answer += piece


def head(method, path, *fields, host="127.0.0.1"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *fields, "", ""]).encode()


def code(answer):
    return int(answer.split(b" ", 2)[1]) if answer else None


def stored_jobs(sidecar):
    import sqlite3

    with sqlite3.connect(f"file:{sidecar.database}.jobs?mode=ro", uri=True) as book:
        return book.execute("SELECT count(*) FROM job").fetchone()[0]


def quiet(bench, *arguments, **options):
    """An agent that serves and evaluates nothing by itself."""
    return serving(bench, "--set", "evaluate.eval_strategy=no", *arguments, **options)


def token_file(bench):
    token = bench.home / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    return token


def with_token(bench):
    return quiet(bench, "--set", f"server.token_file={token_file(bench)}", token=TOKEN)


def test_json_malformed_wrong_types_missing_fields(bench):
    """Refused with 422, nothing stored."""
    sidecar, api = quiet(bench)
    for body in (b"", b"{", b"[1,2", b"\xff\xfe", b"null", {}, [], {"model": 1}, {"model": "m", "tasks": {}}, {"tasks": ["a"]},
                 {"model": "m", "tasks": [None]}, {"model": "m", "tasks": ["docvqa_val"], "limit": "many"}):  # fmt: skip
        assert api.ask("POST", "/evaluate", body)[0] == 422, body
    assert stored_jobs(sidecar) == 0 and api.get("/queue")["queue_size"] == 0


def test_json_bomb(bench):
    """Depth, breadth, numbers beyond a double and names given twice are refused at once, and the stack holds."""
    sidecar, api = quiet(bench)
    many = ",".join(["0"] * 12_000)
    for bomb in ('{"model":' + "[" * 30_000, "[" * 60_000, '{"a":' * 10_000, '{"model":"m","tasks":["a"],"limit":1e999}',
                 '{"model":"a","model":"b","tasks":[]}', f'{{"model":[{many}]}}'):  # fmt: skip
        status, answer = api.ask("POST", "/evaluate", bomb.encode())
        assert status == (413 if len(bomb) > 64 * 1024 else 400), (bomb[:40], answer)
        assert len(json.dumps(answer)) < 20_000
    assert api.ask("POST", "/evaluate", ("{" + ",".join(f'"k{i}":1' for i in range(100_000)) + "}").encode())[0] == 413
    assert stored_jobs(sidecar) == 0


def test_body_huge_and_chunked_endless(bench):
    """10 GiB announced, chunks without end: 413 or closed, and the memory stays."""
    sidecar, api = quiet(bench)
    api.get("/health")
    before = tools.rss_bytes(sidecar.process.pid)
    announced = raw(api.port, head("POST", "/evaluate", "Content-Type: application/json", f"Content-Length: {10 << 30}") + b"{")
    assert code(announced) == 413
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    endless = raw(api.port, head("POST", "/evaluate", "Content-Type: application/json", "Transfer-Encoding: chunked") + chunk * 800)
    assert code(endless) in (413, None)
    assert tools.rss_bytes(sidecar.process.pid) - before < 8 << 20
    api.get("/health")


def test_header_no_newline(bench):
    """A head without an end is closed at its limit, long before 1 GiB has been sent."""
    sidecar, api = quiet(bench)
    api.get("/health")
    before = tools.rss_bytes(sidecar.process.pid)
    for start in (b"GET /health HTTP/1.1\r\nX: ", b"G", b"GET /"):
        sent = 0
        with socket.create_connection(("127.0.0.1", api.port), timeout=30) as connection:
            try:
                connection.sendall(start)
                while sent < 1 << 30:
                    sent += connection.send(b"x" * 65536)
            except OSError:
                pass
        assert sent < 64 << 20
    assert tools.rss_bytes(sidecar.process.pid) - before < 8 << 20
    api.get("/health")


def test_slowloris_500(bench):
    """500 connections that dribble do not keep another one from its answer."""
    _, api = quiet(bench)
    slow = [socket.create_connection(("127.0.0.1", api.port)) for _ in range(500)]
    try:
        for round_ in range(3):
            for connection in slow:
                try:
                    connection.send(b"GET /health HTTP/1.1\r\nHo"[round_ * 8 : round_ * 8 + 8])
                except OSError:
                    pass  # some may have been closed
            assert api.get("/health")["status"] == "healthy"
    finally:
        for connection in slow:
            connection.close()


def test_fd_exhaustion_accept(bench):
    """More connections than descriptors: no spinning, and all is well when they have gone."""
    sidecar, api = quiet(bench)
    heartbeat = pathlib.Path(f"{sidecar.database}.status.json")
    tools.eventually(heartbeat.exists, timeout=60, what="the end of the start")  # which needs descriptors of its own
    pid = sidecar.process.pid
    used = len(os.listdir(f"/proc/{pid}/fd"))
    old = resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 20, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
    crowd = [socket.create_connection(("127.0.0.1", api.port)) for _ in range(60)]
    try:
        before = tools.cpu_seconds(pid)
        time.sleep(2)
        assert tools.cpu_seconds(pid) - before < 1  # of two
    finally:
        for connection in crowd:
            connection.close()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, old)
    tools.eventually(lambda: api.get("/health"), what="an answer")


ROUTES = [("GET", "/health"), ("GET", "/tasks"), ("GET", "/models"), ("GET", "/queue"), ("GET", "/jobs/x"), ("DELETE", "/jobs/x"),
          ("POST", "/evaluate"), ("POST", "/merge"), ("GET", "/metrics"), ("GET", "/"), ("GET", "/page/data"), ("GET", "/page/events"), ("GET", "/page/samples"),
          ("POST", "/page/retry"), ("POST", "/page/cancel"), ("POST", "/page/pin"), ("POST", "/page/unpin"),
          ("POST", "/page/backfill"), ("GET", "/page/pictures/" + "0" * 64), ("GET", "/favicon.ico"), ("GET", "/nothing")]  # fmt: skip


def test_host_rebinding(bench):
    """A foreign name in the Host field is refused on every route, as are two of them and none."""
    _, api = quiet(bench)
    for method, path in ROUTES:
        for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "0x7f.1", "2130706433"):
            assert code(raw(api.port, head(method, path, host=host))) == 403, (method, path, host)
        assert code(raw(api.port, head(method, path, "Host: evil.example"))) == 400
        assert code(raw(api.port, f"{method} {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())) == 400
    assert code(raw(api.port, head("GET", "/health", host="localhost:1"))) == 200


def test_csrf_simple_post(bench):
    """What a page of another site can send without asking is refused, with and without an Origin."""
    sidecar, api = quiet(bench)
    folder = checkpoints.write_hugging_face(bench.run, 5)
    body = json.dumps({"model": "m", "tasks": ["docvqa_val"], "model_args": {"model": str(folder)}})
    for fields in (["Origin: https://evil.example", "Content-Type: text/plain"], ["Content-Type: text/plain"], [],
                   ["Origin: null", "Content-Type: application/json"], ["Content-Type: application/x-www-form-urlencoded"],
                   ["Origin: http://evil.example", "Content-Type: application/json"]):  # fmt: skip
        answer = raw(api.port, head("POST", "/evaluate", *fields, f"Content-Length: {len(body)}") + body.encode())
        assert code(answer) in (403, 422), fields
        assert b"access-control" not in answer.lower()
    assert code(raw(api.port, head("OPTIONS", "/evaluate", "Origin: http://evil.example"))) in (403, 405)
    assert stored_jobs(sidecar) == 0


@pytest.mark.parametrize("tries", [900, pytest.param(10_000, marks=pytest.mark.full)])
def test_auth_missing_wrong_prefix(bench, figures, tries):
    """401 for whatever is not the token, on every route; how long it takes tells nothing (shown, not asserted)."""
    _, api = with_token(bench)
    assert api.get("/health")
    stranger = Api(api.port)
    wrong = [None, "", TOKEN[:-1], TOKEN + "0", TOKEN[1:], TOKEN.upper(), "x" * 20]
    for method, path in ROUTES:
        for token in wrong:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            status, answer = stranger.ask(method, path, headers=headers)
            assert status == 401 and TOKEN not in json.dumps(answer), (method, path, token)
    spent = {}
    with socket.create_connection(("127.0.0.1", api.port)) as connection:
        for right in [0, 10, 19] * (tries // 3):
            guess = TOKEN[:right] + "z" * (20 - right)
            start = time.perf_counter()
            connection.sendall(f"GET /health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {guess}\r\n\r\n".encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1 401")
            spent.setdefault(right, []).append(time.perf_counter() - start)
    figures("answer to a wrong token, median: " + ", ".join(
        f"{right} characters right {sorted(times)[len(times) // 2] * 1e6:.0f} us" for right, times in spent.items()))


def test_path_escape_and_output_dir_escape(bench):
    """No checkpoint and no output outside of the roots or inside a checkpoint; `<checkpoint>/eval` is accepted and never made."""
    sidecar, api = quiet(bench)
    folder = checkpoints.write_hugging_face(bench.run, 5)
    (bench.home / "secret").mkdir()
    (bench.run / "out").symlink_to(bench.home / "secret")

    def status(checkpoint, **fields):
        body = {"model": "m", "tasks": ["docvqa_val"], "model_args": {"pretrained": str(checkpoint)}, **fields}
        return api.ask("POST", "/evaluate", body)[0]

    outside = ["/etc", f"{bench.run}/../secret", f"{bench.run}/out", f"{bench.home}/secret", "/"]
    odd = ["../secret", f"{folder}\0", f"{folder} ", f"{bench.run}/%2e%2e/secret", "http://169.254.169.254/x", f"{folder}\n"]
    for path in outside:
        assert status(path) == 403, path
        assert status(folder, lmms_engine_kwargs={"model_path": path}) == 403, path
        assert status(folder, output_dir=f"{path}/x") == 403, path
        assert api.ask("POST", "/merge", {"checkpoint_path": path})[0] == 403, path
        assert api.ask("POST", "/merge", {"checkpoint_path": str(folder), "output_path": f"{path}/x"})[0] == 403, path
    for path in odd:
        assert status(path) == 422, path
        assert api.ask("POST", "/merge", {"checkpoint_path": path})[0] in (404, 422), path
    for place in (folder, folder / "x", folder / "eval" / "x", bench.run / "checkpoint-5-merged"):
        assert status(folder, output_dir=str(place)) == 403, place
        assert api.ask("POST", "/merge", {"checkpoint_path": str(folder), "output_path": str(place)})[0] == 403, place
    assert stored_jobs(sidecar) == 0
    before = sorted(path.name for path in folder.iterdir())
    job = api.submit(folder, output_dir=str(folder / "eval"))
    done = api.wait_for(job, "completed")
    assert "/_evalcar/results/5/" in done["result"]["out__checkpoint-5"]["results"]
    assert sorted(path.name for path in folder.iterdir()) == before
    assert list((bench.home / "secret").iterdir()) == []


def test_arg_smuggling_shell_meta_log_injection(bench):
    """Nothing of a request becomes an argument, a command or a line of its own in the log; no file appears."""
    bench.tell(log_arguments=True)
    sidecar, api = quiet(bench)
    folder = checkpoints.write_hugging_face(bench.run, 5)
    canary = bench.home / "touched"
    evil = [f"$(touch {canary})", f"`touch {canary}`", f"x;touch {canary}", f"a\ntouch {canary}", "a,b --x", "-h", "--device cuda",
            "\x1b[2J\x1b]0;owned\x07", "FAKE [error] all is lost\n[2026] evalcar: forged", "y" * 50_000]  # fmt: skip
    for text in evil:
        fields = {"model": text, "tasks": ["docvqa_val"], "gen_kwargs": None, "device": text,
                  "model_args": {"model": str(folder), text[:900]: text}}  # fmt: skip
        assert api.ask("POST", "/evaluate", {**fields, "tasks": [text]})[0] in (413, 422)
        status, answer = api.ask("POST", "/evaluate", fields)
        assert status == (413 if len(json.dumps(fields)) > 64 * 1024 else 200), (status, answer)
        if status == 200:
            api.wait_for(answer["job_id"], "completed")
    quotes = [f"until=\"'; touch {canary} #", "until='\\''", 'temperature="0" --x', f"temperature=0,$(touch {canary})", "--device=cuda", "=,=,"]
    evil += quotes
    for text in quotes:
        fields = {"model": "m", "tasks": ["docvqa_val"], "gen_kwargs": text, "model_args": {"model": str(folder)}}
        status, answer = api.ask("POST", "/evaluate", fields)
        assert status in (200, 422), (status, answer)
        if status == 200:
            api.wait_for(answer["job_id"], "completed", "failed")
    api.ask("GET", "/jobs/%0aforged%1b%5b2J")
    assert not canary.exists()
    log = sidecar.log()
    assert "\x1b" not in log and "\x07" not in log
    assert not any(line.startswith(("forged", "touch", "[2026] evalcar: forged")) for line in log.splitlines())
    assert max(map(len, log.splitlines())) < 4_000
    heard = [json.loads(line.split(" ", 1)[1]) for line in bench.heard("arguments")]
    assert heard and not any(text in argument for arguments in heard for argument in arguments for text in evil)


def test_xss(bench):
    """Markup in names comes back in JSON only, which no browser may take for anything else."""
    _, api = quiet(bench)
    for path in ("/jobs/%3Cscript%3Ealert(1)%3C/script%3E", "/%3Cscript%3E", "/jobs/<script>"):
        answer = raw(api.port, head("GET", path))
        assert code(answer) == 404
        assert b"Content-Type: application/json" in answer and b"X-Content-Type-Options: nosniff" in answer


def test_page_questions(bench):
    """What no page asks is refused in JSON, and nothing of it reaches a file or a statement; a flood is answered or refused."""
    sidecar, api = quiet(bench)
    checkpoints.write_hugging_face(bench.run, 5)
    tools.eventually(lambda: api.get("/page/data")["run"], what="the run")
    run = api.get("/page/data")["run"]
    for value in ("<script>alert(1)</script>", "../../etc/passwd", "x'--", "%", "y" * 4_000, "\u2028", "1;DROP TABLE run"):
        text = urllib.parse.quote(value)
        for path in (f"/page/data?run={text}", f"/page/events?run={text}", f"/page/samples?run={text}&evaluation=1",
                     f"/page/samples?run={run}&evaluation=99&task={text}&metric={text}"):  # fmt: skip
            answer = raw(api.port, head("GET", path))
            assert code(answer) == 404, (path, answer[:300])
            assert b"Content-Type: application/json" in answer and b"nosniff" in answer
        for name in ("evaluation", "offset", "filter"):
            assert code(raw(api.port, head("GET", f"/page/samples?run={run}&{name}={text}"))) == 422, (name, value)
        assert api.ask("POST", "/page/retry", {"run": value, "step": 5})[0] == 404
    for step in (-1, "5; x", None, 1e300, [5], {}):
        assert api.ask("POST", "/page/retry", {"run": run, "step": step})[0] == 422, step
    for number in ("-1", "1e9", "0x1", "99999999999999999999", "1" * 4_000):
        assert code(raw(api.port, head("GET", f"/page/samples?run={run}&evaluation=1&offset={number}"))) == 422
    assert code(raw(api.port, head("GET", "/page/data?run=a%00b"))) == 400
    with concurrent.futures.ThreadPoolExecutor(40) as crowd:
        codes = list(crowd.map(lambda _: api.ask("GET", f"/page/data?run={run}", timeout=120)[0], range(400)))
    assert set(codes) <= {200, 503} and 200 in codes
    assert api.get("/health") and sidecar.process.poll() is None


def test_page_streams_that_nobody_reads(bench):
    """Streams of events whose readers read nothing, or have gone, cost no memory and make room."""
    sidecar, api = quiet(bench)
    checkpoints.write_hugging_face(bench.run, 5)
    tools.eventually(lambda: api.get("/page/data")["run"], what="the run")
    before = tools.rss_bytes(sidecar.process.pid)
    ask = head("GET", "/page/events").replace(b"Connection: close\r\n", b"")
    for _ in range(10):
        for _ in range(16):
            connection = socket.create_connection(("127.0.0.1", api.port))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sendall(ask)
            connection.close()
    with concurrent.futures.ThreadPoolExecutor(40) as crowd:
        answers = list(crowd.map(lambda _: raw(api.port, ask, patience=2), range(40)))
    assert {code(answer) for answer in answers} <= {200, 503}
    tools.eventually(lambda: code(raw(api.port, ask, patience=2)) == 200, what="room for a page")
    assert tools.rss_bytes(sidecar.process.pid) - before < 8 << 20
    assert b"text/event-stream" in raw(api.port, ask, patience=2)


def test_ssrf(bench):
    """No name in a request makes the agent connect anywhere."""
    sidecar, api = serving(bench, "--set", "evaluate.eval_strategy=no", start=False)
    trace = tools.strace(sidecar, "connect,execve", follow=True)
    sidecar.start()
    api.wait_until_up(sidecar, timeout=120)
    folder = checkpoints.write_hugging_face(bench.run, 5)
    for url in ("http://169.254.169.254/latest/meta-data", "https://example.org/model", "//169.254.169.254/x", "Qwen/Qwen2.5-VL"):
        for arguments in ({"model": url}, {"pretrained": url}, {"model": str(folder), "server_url": url}):
            api.ask("POST", "/evaluate", {"model": url, "tasks": ["docvqa_val"], "model_args": arguments, "limit": 1})
        api.ask("POST", "/merge", {"checkpoint_path": url, "output_path": url})
    tools.eventually(lambda: api.get("/queue")["completed_jobs"] >= 1, timeout=120, what="a job")
    sidecar.stop(timeout=60)
    # The C library looks for its name service's daemon by a socket of this machine.
    assert "AF_INET" not in trace.read_text()
    assert tools.calls_in(trace, "execve"), "the trace holds nothing"


@pytest.mark.parametrize("total", [2_500, pytest.param(10_000, marks=pytest.mark.full)])
def test_queue_flood(bench, total):
    """Past the cap 429; what was accepted is there, and is done in the end."""
    bench.tell(delay=0.1, samples=2)
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sidecar, api = quiet(bench)
    body = {"model": "m", "tasks": ["docvqa_val"], "model_args": {"model": str(folder)}}
    # All are for the same numbers: one evaluation answers all that were taken.
    bench.tell(at_sample={"doc": 0, "do": "wait", "until": str(bench.home / "go")})
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: api.ask("POST", "/evaluate", body, timeout=120), range(total)))
    taken = [answer["job_id"] for status, answer in answers if status == 200]
    assert {status for status, _ in answers} == {200, 429}
    assert 1_000 <= len(taken) < total and len(set(taken)) == len(taken)
    assert stored_jobs(sidecar) == len(taken)
    (bench.home / "go").touch()
    tools.eventually(lambda: api.get("/queue")["completed_jobs"] == len(taken), timeout=120, what="all jobs")
    assert len(bench.heard("load")) == 1


@pytest.mark.parametrize("moment", ["at once", "queued", "loading", "evaluating", "completed"])
def test_cancel_race(bench, moment):
    """A DELETE at any moment ends in a legal state, and the next job runs."""
    folder = checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(delay=0.1, samples=20)
    sidecar, api = quiet(bench)
    job = api.submit(folder, limit=10)
    if moment == "queued":
        tools.eventually(lambda: api.job(job).get("reason") is not None or api.job(job)["status"] == "running", what="a look")
    elif moment == "loading":
        api.wait_for(job, "running")
    elif moment == "evaluating":
        tools.eventually(lambda: bench.heard("generate"), what="an answer")
    elif moment == "completed":
        api.wait_for(job, "completed")
    status, answer = api.ask("DELETE", f"/jobs/{job}")
    expected = (400, "completed") if moment == "completed" else (200, "cancelled")
    assert (status, api.job(job)["status"]) == expected, answer
    assert api.wait_for(api.submit(folder, limit=2), "completed")["samples"] == {"docvqa_val": 2}
    assert api.job(job)["status"] == expected[1]
    states = {state for (state,) in sidecar.query("SELECT state FROM evaluations")}
    assert states <= {"published", "skipped"}, states


def test_client_gone(bench):
    """A peer that resets in the middle of its answer ends nothing."""
    sidecar, api = quiet(bench)
    for _ in range(200):
        connection = socket.create_connection(("127.0.0.1", api.port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.sendall(head("GET", "/tasks"))
        connection.close()
    assert api.get("/health") and sidecar.process.poll() is None


def test_job_id_hostile(bench):
    """No id reaches a file: 404, or the head's limit."""
    _, api = quiet(bench)
    for path in ("/jobs/../../etc/passwd", "/jobs/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/jobs/x", "/jobs/", "/jobs", "/jobs/'--",
                 "/jobs/00000000-0000-0000-0000-00000000000G"):  # fmt: skip
        for method in ("GET", "DELETE"):
            assert code(raw(api.port, head(method, path))) == 404, (method, path)
    assert code(raw(api.port, head("GET", "/jobs/" + "x" * (1 << 20)))) in (431, None)
    assert code(raw(api.port, head("GET", "/jobs/a%00b"))) == 400
    api.get("/health")


def test_restart_keeps_jobs(bench):
    """Submitted, killed -9, started: the same ids, in the right states; a canary gets its number once."""
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sidecar, api = serving(bench)
    done = api.wait_for(api.submit(folder, limit=1), "completed")
    bench.tell(at_sample={"doc": 2, "do": "wait", "until": str(bench.home / "go"), "once": str(bench.home / "once")})
    running, waiting = api.submit(folder, limit=4), api.submit(folder, limit=5)
    api.wait_for(running, "running")
    sidecar.kill()
    (bench.home / "go").touch()
    sidecar.start()
    api.wait_until_up(sidecar)
    assert api.job(done["job_id"])["metrics"] == done["metrics"]
    assert api.job(running)["status"] in ("queued", "running", "completed")
    for job, samples in ((running, 4), (waiting, 5)):
        assert api.wait_for(job, "completed")["samples"] == {"docvqa_val": samples}
    sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the watcher's own")
    tools.check_canary(bench, sidecar)


def test_unix_socket(bench):
    """Another user is refused; a stale file is replaced; a socket that lives keeps a second agent from starting."""
    path = bench.home / "api.sock"
    sidecar = bench.sidecar("--set", f"server.unix_socket={path}").start()
    ask = ("import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
           "s.sendall(b'GET /health HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n'); print(s.recv(9999).decode())")

    def answer(**options):
        done = subprocess.run([sys.executable, "-c", ask, str(path)], capture_output=True, text=True, timeout=30, **options)
        return done.stdout or done.stderr

    tools.eventually(path.exists, what="the socket")
    assert "200 OK" in answer()
    if os.getuid() == 0:
        os.chmod(bench.home, 0o755)
        for parent in list(bench.home.parents)[:-1]:
            os.chmod(parent, os.stat(parent).st_mode | 0o055)
        assert "403 Forbidden" in answer(user=65534)
    other = bench.home / "other"
    other.mkdir()
    second = bench.sidecar()
    second.command = [bench.evalcar, "run", str(other), "--tasks", "docvqa_val", "--set", f"store.path={bench.home}/other.db",
                      "--set", f"server.unix_socket={path}"]
    second.start()
    assert second.wait() != 0 and "somebody else answers there" in second.log()
    sidecar.kill()
    assert path.exists()
    sidecar.start()
    tools.eventually(lambda: "200 OK" in answer(), what="an answer again")
    assert sidecar.stop() == 0 and not path.exists()


def test_range_overlap(bench):
    """Ranges are not served, so a thousand of them cost nothing."""
    sidecar, api = quiet(bench)
    api.get("/health")
    before = tools.rss_bytes(sidecar.process.pid)
    ranges = "Range: bytes=" + ",".join(f"0-{i}" for i in range(1_000))
    for _ in range(20):
        assert code(raw(api.port, head("GET", "/tasks", ranges))) == 200
    assert tools.rss_bytes(sidecar.process.pid) - before < 4 << 20


def in_namespace(*addresses):
    """Runs what follows in a network namespace whose loopback has these addresses, too."""
    if os.getuid() != 0 or subprocess.run(["unshare", "-n", "ip", "link", "set", "lo", "up"], capture_output=True).returncode != 0:
        pytest.skip("no network namespace with an `ip` can be made here")
    return "ip link set lo up && " + "".join(f"ip addr add {address}/24 dev lo && " for address in addresses)


def test_other_addresses_in_a_network_namespace(bench, bin_dir):
    """On an address that others reach: no start without a token; with it lmms-engine's backend gets through."""
    address = "192.168.77.2"
    setup = in_namespace(address)
    token = token_file(bench)
    folder = checkpoints.write_hugging_face(bench.run, 5)
    port = free_port()
    bare = bench.sidecar("--set", f"server.listen={address}:{port}")
    bare.command = ["unshare", "-n", "sh", "-c", setup + 'exec "$@"', "sh", *bare.command]
    bare.start()
    assert bare.wait() == 2 and "server.token_file" in bare.log()
    driver = pathlib.Path(__file__).with_name("engine_backend.py")
    sidecar = bench.sidecar("--set", f"server.listen={address}:{port}", "--set", f"server.token_file={token}")
    standin = pathlib.Path(__file__).resolve().parents[2] / "agent" / "trainer" / "standin"
    script = setup + 'true; "$@" & trap "kill $!" EXIT; ' + (
        f"{sys.executable} {driver} http://evalcar:{TOKEN}@{address}:{port} http://{address}:{port} {folder}")
    sidecar.environment["PYTHONPATH"] = str(standin)
    done = subprocess.run(["unshare", "-n", "sh", "-c", script, "sh", *sidecar.command], env=sidecar.environment,
                          capture_output=True, text=True, timeout=240)
    assert "metrics eval/docvqa_val/anls" in done.stdout and "stranger 401" in done.stdout, done.stdout + done.stderr


STRANGERS = """
import http.client, sys, time
address, port, friend, token = sys.argv[1:]

def ask(source, host, *fields):
    connection = http.client.HTTPConnection(address, int(port), timeout=10, source_address=(source, 0))
    connection.putrequest("GET", "/queue", skip_host=True)
    for name, value in (("Host", host), *fields):
        connection.putheader(name, value)
    connection.endheaders()
    return connection.getresponse().status

for _ in range(600):
    try:
        ask(address, address)
        break
    except OSError:
        time.sleep(0.1)
bearer = ("Authorization", "Bearer " + token)
for what, status in {
    "friend": ask(friend, address), "friend, by name": ask(friend, "GPU7:" + port), "friend, other name": ask(friend, "evil.example"),
    "friend, page": ask(friend, address, ("Origin", "http://evil.example")), "stranger": ask(address, address),
    "stranger, by name": ask(address, "gpu7"), "stranger, token": ask(address, "gpu7:" + port, bearer),
    "stranger, token, other name": ask(address, "evil.example", bearer),
}.items():
    print(what, status, sep=": ", flush=True)
"""


def test_networks_that_need_no_token_and_names_that_are_ours(bench):
    """server.allow_from and server.allowed_hosts: a friend's network needs no token, but a name that is ours like everybody."""
    address, friend, port = "192.168.77.2", "10.9.0.2", str(free_port())
    setup = in_namespace(address, friend)
    sidecar = bench.sidecar("--set", f"server.listen={address}:{port}", "--set", f"server.token_file={token_file(bench)}",
                            "--set", 'server.allow_from=["10.9.0.0/24"]', "--set", 'server.allowed_hosts=["gpu7"]')  # fmt: skip
    script = setup + 'true; "$@" & trap "kill $!" EXIT; "$PYTHON" -c "$STRANGERS" ' + f"{address} {port} {friend} {TOKEN}"
    done = subprocess.run(["unshare", "-n", "sh", "-c", script, "sh", *sidecar.command], capture_output=True, text=True, timeout=240,
                          env={**sidecar.environment, "PYTHON": sys.executable, "STRANGERS": STRANGERS})  # fmt: skip
    assert done.stdout.splitlines() == [
        "friend: 200", "friend, by name: 200", "friend, other name: 403", "friend, page: 403", "stranger: 401", "stranger, by name: 401",
        "stranger, token: 200", "stranger, token, other name: 403"], done.stdout + done.stderr  # fmt: skip
