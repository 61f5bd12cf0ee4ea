"""A sidecar that serves, and plain questions to it."""

import json
import socket
import time
import urllib.error
import urllib.request


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Api:
    """The HTTP API at one address."""

    def __init__(self, port, host="127.0.0.1", token=None):
        self.url = f"http://{host}:{port}"
        self.port = port
        self.token = token

    def ask(self, method, path, body=None, headers=None, timeout=30):
        """(status, JSON) of an answer, whatever its code."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    def get(self, path):
        status, answer = self.ask("GET", path)
        assert status == 200, (path, status, answer)
        return answer

    def submit(self, checkpoint, tasks=("docvqa_val",), **fields):
        body = {"model": "qwen2_5_vl", "tasks": list(tasks), "model_args": {"model": str(checkpoint)}, **fields}
        status, answer = self.ask("POST", "/evaluate", body)
        assert status == 200, (status, answer)
        return answer["job_id"]

    def job(self, job_id):
        return self.get(f"/jobs/{job_id}")

    def wait_for(self, job_id, *states, timeout=60):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            job = self.job(job_id)
            if job["status"] in states:
                return job
            assert job["status"] in ("queued", "running"), job
            time.sleep(0.05)
        raise AssertionError(f"job did not become one of {states}: {job}")

    def wait_until_up(self, sidecar, timeout=60):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            assert sidecar.process.poll() is None, sidecar.log()
            try:
                return self.get("/health")
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the server does not answer:\n" + sidecar.log())


def serving(bench, *arguments, port=None, token=None, start=True, **options):
    """(sidecar, Api): an agent on the bench's output directory that serves on loopback."""
    port = port or free_port()
    sidecar = bench.sidecar("--set", f"server.listen=127.0.0.1:{port}", *arguments, **options)
    api = Api(port, token=token)
    if start:
        sidecar.start()
        api.wait_until_up(sidecar)
    return sidecar, api
