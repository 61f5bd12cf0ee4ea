"""The webhook's posts, as a real HTTP server receives them."""

import hashlib
import hmac
import json
import os
import shutil
import socket
import ssl
import subprocess

import pytest
from webhook_receiver import Receiver

SECRET = "a secret of tests"


@pytest.fixture
def receiver():
    with Receiver() as made:
        yield made


@pytest.fixture
def post(bin_dir):
    def post(url, count=1, **environment):
        names = {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1", **environment}
        done = subprocess.run([bin_dir / "webhook_probe", url, SECRET, str(count)], capture_output=True, text=True, timeout=300,
                              env={**os.environ, **names})  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return post


def test_results_arrive_in_order_named_and_signed(post, receiver):
    assert post(f"http://127.0.0.1:{receiver.port}/hook?a=b", count=40) == "delivered"

    assert receiver.seqs() == list(range(1, 41))
    for path, fields, body in receiver.posts:
        assert path == "/hook?a=b"
        assert fields["Content-Type"] == "application/json"
        assert fields["User-Agent"] == "evalcar/1.0"
        assert fields["X-Evalcar-Delivery"] == f"run-1/{json.loads(body)['seq']}"
        assert fields["X-Evalcar-Signature-256"] == "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        assert json.loads(body)["text"] == "ä"


def test_errors_are_tried_again_and_long_answers_do_not_matter(post, receiver):
    receiver.answers = [(500, {}, b""), (429, {}, b"slow down"), (404, {}, b""), (200, {}, b"x" * 10_000_000)]
    assert post(f"http://127.0.0.1:{receiver.port}/", count=2) == "delivered"
    assert receiver.seqs() == [1, 1, 1, 1, 2]


def test_a_redirect_is_not_followed(post, receiver):
    with Receiver() as elsewhere:
        receiver.answers = [(307, {"Location": f"http://127.0.0.1:{elsewhere.port}/"}, b"")] * 50
        said = post(f"http://127.0.0.1:{receiver.port}/")
        assert f"307 and points to http://127.0.0.1:{elsewhere.port}/" in said
        assert not elsewhere.posts


def test_a_body_that_is_refused_is_given_up_and_the_next_one_goes(post, receiver):
    receiver.answers = [(422, {}, b"")] * 3
    assert post(f"http://127.0.0.1:{receiver.port}/", count=2) == "delivered"
    assert receiver.seqs() == [1, 1, 1, 2]


def test_nobody_there_is_told_as_such(post):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        said = post(f"http://127.0.0.1:{free.getsockname()[1]}/")
    assert "webhook: result 1: " in said and "connect" in said.lower()


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not there")
def test_https_goes_only_to_a_certificate_that_is_trusted(post, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Receiver(context=context) as receiver:
        url = f"https://127.0.0.1:{receiver.port}/"
        assert "certificate" in post(url)
        assert not receiver.posts
        assert post(url, SSL_CERT_FILE=str(certificate)) == "delivered"
        assert receiver.seqs() == [1]
