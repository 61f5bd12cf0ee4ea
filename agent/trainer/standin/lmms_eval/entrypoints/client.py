"""lmms-eval's clients of an evaluation server, on the standard library alone (Python 3.9 or newer).

Unlike the original's, `evaluate` takes lmms-engine's `lmms_engine_kwargs`, the token comes from the file that EVALCAR_TOKEN_FILE
names (or from the URL: http://evalcar:TOKEN@host:8000), and no call waits for ever. What lmms-engine's training asks for while
the server is away is asked for again with each look at the job, until the server has it."""

import asyncio
import base64
import json
import logging
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

from lmms_eval.entrypoints import _lmms_engine

TIMEOUT = 20.0  # seconds; the server answers at once
TRIES = 3  # while it is being restarted
PAUSE = 1.0
TRAINING_TIMEOUT = 5.0  # a training step waits for this answer
AWAY = (429, 502, 503, 504)  # answers that mean: later

log = logging.getLogger("evalcar")


class ServerError(RuntimeError):
    """An answer with a code of 400 or more."""

    def __init__(self, status, detail):
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail


def _split_credentials(base_url):
    """(URL without a user, Authorization or None)."""
    parts = urllib.parse.urlsplit(base_url.rstrip("/"))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"expected a URL such as http://host:8000, not {base_url!r}")
    place = parts.netloc.rpartition("@")[2]
    url = urllib.parse.urlunsplit((parts.scheme, place, parts.path, "", ""))
    if parts.password is None:
        return url, None
    pair = f"{urllib.parse.unquote(parts.username or '')}:{urllib.parse.unquote(parts.password)}"
    return url, "Basic " + base64.b64encode(pair.encode()).decode()


def _token():
    path = os.environ.get("EVALCAR_TOKEN_FILE")
    if not path:
        return None
    with open(path, encoding="utf-8") as file:
        return file.readline().strip()


class EvalClient:
    def __init__(self, base_url="http://localhost:8000", timeout=None):
        self.base_url, self._authorization = _split_credentials(base_url)
        self.timeout = TIMEOUT if timeout is None else timeout
        if token := _token():
            self._authorization = f"Bearer {token}"
        self._asked = {}  # by the name that we gave: the request that nobody took yet, or the name that the server gave the job
        self._open = urllib.request.build_opener(_NoRedirect).open
        _lmms_engine.mend()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Nothing is held open between two requests."""

    def _request(self, method, path, body=None, tries=1, timeout=None):
        return json.loads(self._ask(method, path, body, tries, timeout))

    def _ask(self, method, path, body=None, tries=1, timeout=None):
        request = urllib.request.Request(self.base_url + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if self._authorization:
            request.add_header("Authorization", self._authorization)
        for left in reversed(range(tries)):
            try:
                with self._open(request, timeout=timeout or self.timeout) as answer:
                    return answer.read()
            except urllib.error.HTTPError as error:
                with error:
                    raise ServerError(error.code, _detail(error.read())) from None
            except OSError:
                if left == 0:
                    raise
                time.sleep(PAUSE)
        raise AssertionError("not reached")

    def health(self):
        return self._request("GET", "/health")

    def is_healthy(self):
        try:
            return self.health().get("status") == "healthy"
        except (OSError, RuntimeError, ValueError):
            return False

    def is_measuring(self):
        """Whether the agent loads or evaluates anything now, whoever asked for it."""
        lines = self._ask("GET", "/metrics").decode(errors="replace").splitlines()
        return any(re.match(r'evalcar_current_step\b|evalcar_evaluations\{.*state="(loading|evaluating)".*\} [^0]', line) for line in lines)

    def list_tasks(self):
        return self._request("GET", "/tasks").get("tasks", [])

    def list_models(self):
        return self._request("GET", "/models").get("models", [])

    def get_queue_status(self):
        return self._request("GET", "/queue")

    def evaluate(self, model, tasks, model_args=None, num_fewshot=None, batch_size=None, device=None, limit=None, gen_kwargs=None,
                 log_samples=True, predict_only=False, num_gpus=1, output_dir=None, lmms_engine_kwargs=None):  # fmt: skip
        fields = {"model": model, "tasks": tasks, "model_args": model_args, "num_fewshot": num_fewshot, "batch_size": batch_size,
                  "device": device, "limit": limit, "gen_kwargs": gen_kwargs, "log_samples": log_samples,
                  "predict_only": predict_only, "num_gpus": num_gpus, "output_dir": output_dir,
                  "lmms_engine_kwargs": lmms_engine_kwargs}  # fmt: skip
        # A request that was answered by nobody may have been taken all the same: what is asked for twice is measured once.
        fields = {name: value for name, value in fields.items() if value is not None}
        if lmms_engine_kwargs is None:
            return self._request("POST", "/evaluate", fields, TRIES)
        return self._evaluate_in_training(fields)

    def _evaluate_in_training(self, fields):
        try:
            return self._request("POST", "/evaluate", fields, timeout=min(self.timeout, TRAINING_TIMEOUT))
        except (OSError, ServerError) as error:
            if isinstance(error, ServerError) and error.status not in AWAY:
                raise
            log.warning("%s: nobody takes the evaluation (%s); it will be asked for again", self.base_url, error)
        job_id = f"unsent-{uuid.uuid4()}"
        self._asked[job_id] = fields
        return {"job_id": job_id, "status": "queued", "position_in_queue": 0, "message": "The server is away"}

    def _name_of(self, job_id):
        """The server's name of a job; what it has not got yet it is asked for first."""
        asked = self._asked.get(job_id, job_id)
        if isinstance(asked, dict):
            asked = self._asked[job_id] = self._request("POST", "/evaluate", asked)["job_id"]
        return urllib.parse.quote(asked, safe="")

    def get_job(self, job_id):
        job = self._request("GET", f"/jobs/{self._name_of(job_id)}")
        _lmms_engine.remember(job)
        return job

    def cancel_job(self, job_id):
        return self._request("DELETE", f"/jobs/{self._name_of(job_id)}")

    def wait_for_job(self, job_id, poll_interval=5.0, timeout=None, verbose=True):
        start = time.monotonic()
        while True:
            job = self.get_job(job_id)
            status = job.get("status")
            if verbose:
                print(f"Job {job_id[:8]}... {status}")
            if status == "completed":
                return job
            if status in ("failed", "cancelled"):
                raise RuntimeError(f"Job {status}: {job.get('error') or 'no reason was given'}")
            if timeout is not None and time.monotonic() - start > timeout:
                raise TimeoutError(f"Job {job_id} did not complete within {timeout} seconds")
            time.sleep(poll_interval)

    def merge_checkpoint(self, checkpoint_path, output_path=None, checkpoint_type="regular"):
        return self._request("POST", "/merge", {"checkpoint_path": checkpoint_path, "output_path": output_path,
                                                "checkpoint_type": checkpoint_type})  # fmt: skip


class AsyncEvalClient:
    """The same calls, awaited."""

    def __init__(self, base_url="http://localhost:8000", timeout=None):
        self._client = EvalClient(base_url, timeout)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self._client.close()

    def __getattr__(self, name):
        call = getattr(self._client, name)

        async def awaited(*arguments, **options):
            return await asyncio.to_thread(call, *arguments, **options)

        return awaited


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token elsewhere."""

    def redirect_request(self, *_):
        return None


def _detail(body):
    try:
        return json.loads(body)["detail"]
    except (ValueError, KeyError, TypeError):
        return body[:500].decode(errors="replace")
