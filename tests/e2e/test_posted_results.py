"""Results reach a real HTTP server: all of them, once, in order, signed, whatever happens on the way."""

import hashlib
import hmac
import json
import os
import pathlib
import socket
import subprocess
import threading

import checkpoints
import pytest
from webhook_receiver import Receiver

SECRET = b"a secret of tests"
NO_PROXY = {"no_proxy": "127.0.0.1,localhost", "NO_PROXY": "127.0.0.1,localhost"}


@pytest.fixture
def receiver():
    with Receiver() as made:
        yield made


def sidecar_to(bench, url, *arguments):
    secret = bench.home / "secret"
    secret.write_bytes(SECRET + b"\n")
    secret.chmod(0o600)
    return bench.sidecar("--set", f"publish.webhook_url={url}", "--set", f"publish.webhook_secret_file={secret}", *arguments,
                         environment=NO_PROXY)


def test_each_result_is_posted_as_its_line_and_signed(bench, receiver):
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = sidecar_to(bench, f"http://127.0.0.1:{receiver.port}/hook")

    assert sidecar.once() == 0, sidecar.log()

    written = (bench.run / "_evalcar" / "metrics.jsonl").read_bytes().splitlines()
    finals = [line for line in written if json.loads(line)["final"]]
    assert len(finals) == 2
    assert [body for _, _, body in receiver.posts] == finals
    for path, fields, body in receiver.posts:
        line = json.loads(body)
        assert path == "/hook"
        assert fields["Content-Type"] == "application/json"
        assert fields["X-Evalcar-Delivery"] == f"{line['run']}/{line['seq']}"
        assert fields["Idempotency-Key"] == f'"{line["run"]}/{line["seq"]}"'
        assert fields["X-Evalcar-Signature-256"] == "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest()


def test_a_receiver_that_is_down_gets_everything_once_it_is_up_also_after_a_kill(bench):
    port_holder = Receiver()
    port = port_holder.port
    port_holder.close()
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = sidecar_to(bench, f"http://127.0.0.1:{port}/").start()
    sidecar.wait_for(lambda s: "webhook: result" in s.log(), what="a failed try")
    assert sidecar.published() == {(5, "regular")}  # nothing waited for it
    heartbeat = bench.run / "_evalcar" / "status.json"
    sidecar.wait_for(lambda s: "webhook: result" in json.loads(heartbeat.read_text())["agent"].get("warning", ""), what="a warning")
    sidecar.kill()
    checkpoints.write_hugging_face(bench.run, 10)

    receiver = Receiver(port)
    try:
        assert sidecar.once() == 0, sidecar.log()
        assert [line["global_step"] for line in receiver.lines()] == [5, 10]
        assert sidecar.once() == 0
        assert len(receiver.posts) == 2  # no one twice
    finally:
        receiver.close()


def never(connection):
    """Takes the post and says nothing."""
    while connection.recv(65536):
        pass


def closes(connection):
    connection.recv(65536)


def no_http(connection):
    connection.sendall(b"\0" * 4096 + b"\r\n\x1b[2J forged\r\n")


def endless(*pieces):
    """Says the first piece, and the last one again for as long as somebody listens."""

    def answer(connection):
        connection.recv(65536)
        connection.sendall(pieces[0])
        while True:
            connection.sendall(pieces[-1])

    return answer


HOSTILE = {
    "never": never, "closes": closes, "no-http": no_http,
    "endless-fields": endless(b"HTTP/1.1 500 No\r\n", b"X: " + b"y" * 8000 + b"\r\n"),
    "endless-field": endless(b"HTTP/1.1 500 No\r\nX: ", b"y" * 65536),
    "endless-100": endless(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "endless-body": endless(b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 0x10000 + b"\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_receiver_keeps_nothing_from_being_measured_or_from_ending(bench, answer):
    met = threading.Event()

    def serve(listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            met.set()
            with connection:
                try:
                    answer(connection)
                except OSError:
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        checkpoints.write_hugging_face(bench.run, 5)
        sidecar = sidecar_to(bench, f"http://127.0.0.1:{listener.getsockname()[1]}/").start()
        sidecar.wait_for(lambda s: (5, "regular") in s.published())
        assert met.wait(60)
        checkpoints.write_hugging_face(bench.run, 10)
        sidecar.wait_for(lambda s: (10, "regular") in s.published())
        if answer is not never:
            sidecar.wait_for(lambda s: "webhook: result 1: " in s.log(), what="a failed try")
        pages = pathlib.Path(f"/proc/{sidecar.process.pid}/statm").read_text().split()[1]
        assert int(pages) * os.sysconf("SC_PAGE_SIZE") < 100 << 20
        assert sidecar.stop(60) == 0
        listener.shutdown(socket.SHUT_RDWR)
    assert "\x1b" not in sidecar.log()


@pytest.mark.parametrize("url", ["ftp://example.org/", "http://", "https://me:secret@example.org/", "http://a b/", "example.org"])
def test_a_url_that_cannot_be_posted_to_is_refused(bench, url):
    done = subprocess.run([bench.evalcar, "run", str(bench.run), "--tasks", "docvqa_val", "--set", f"publish.webhook_url={url}"],
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode == 2 and "publish.webhook_url" in done.stderr


def test_a_secret_that_everybody_may_read_is_refused(bench):
    secret = bench.home / "open"
    secret.write_text("x")
    os.chmod(secret, 0o644)
    sidecar = bench.sidecar("--set", "publish.webhook_url=http://127.0.0.1:9/", "--set", f"publish.webhook_secret_file={secret}")
    assert sidecar.once() == 2
    assert "publish.webhook_secret_file" in sidecar.log() and "chmod 600" in sidecar.log()
