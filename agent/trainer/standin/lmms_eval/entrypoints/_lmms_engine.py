"""What lmms-engine 0.1.4's EvalServerBackend does with an answer, mended for as long as its class is what it was then:

- metrics are logged as its documentation says, `eval/<task>/<metric>`, not `eval/<task>_<metric>`;
- they are taken from the answer itself, so that trainer and server need no common file system;
- a job leaves the pending ones only when its numbers are taken (those of the last one were lost), and an error of the moment
  (the server is restarted) is tried again at the next look instead of dropping the job.

An lmms-engine whose class has other parts is left as it is."""

import collections
import json
import logging
import math
import os
import sys
import time

log = logging.getLogger("evalcar")
PARTS = ("_poll_results", "_parse_eval_results", "check_and_get_completed", "submit_eval")
_metrics = collections.OrderedDict()  # path of a results file → {task: {metric: value}}
_KEPT = 1000
PATIENCE = 3600.0  # seconds
QUEUED, RUNNING = 0, 1
NOWHERE, OVER = (-1,), (2,)  # places of jobs: before and behind all others
_handed_over = set()  # ids of jobs whose numbers wait to be taken


def remember(job):
    """The numbers of a completed job, by the file that it names."""
    for files in (job.get("result") or {}).values():
        if job.get("metrics") and isinstance(files, dict) and files.get("results"):
            _metrics[files["results"]] = job["metrics"]
            while len(_metrics) > _KEPT:
                _metrics.popitem(last=False)


def parse_results(_backend, result_data):
    metrics = {}
    for files in (result_data or {}).values():
        path = files.get("results")
        tasks = _metrics.get(path)
        if tasks is None and path:
            tasks = _from_file(path)
        for task, values in (tasks or {}).items():
            for name, value in values.items():
                if isinstance(value, (int, float)) and math.isfinite(value) and not name.endswith("_stderr"):
                    metrics[f"eval/{task}/{name}"] = float(value)
    return metrics


def _from_file(path):
    try:
        with open(path, encoding="utf-8") as file:
            tasks = json.load(file)["results"]
    except (OSError, ValueError, KeyError) as error:
        log.error("%s: %s", path, error)
        return {}
    return {task: {key.split(",")[0]: value for key, value in values.items() if "_stderr," not in key and "," in key}
            for task, values in tasks.items()}  # fmt: skip


def patience():
    """How long a server may be silent, or unable to measure, before its scores are given up."""
    try:
        return float(os.environ.get("EVALCAR_PATIENCE", PATIENCE))
    except ValueError:
        return PATIENCE


def is_final(error):
    """Whether asking again gives the same answer: not where the server is away or busy, or a token is to be put right."""
    status = getattr(error, "status", None)
    return status is not None and 400 <= status < 500 and status not in (401, 408, 429)


class Wait:
    """For how many seconds nobody has been getting on with the jobs, and why not."""

    def __init__(self):
        self.seconds, self.why, self.warning = 0.0, "", ""
        self._furthest = {}
        self._looked_at = time.monotonic()

    def look(self, client, answers):
        """`answers`: how far each job is, as look_at() tells it. A server that measures, however long, is not given up; one that says
        of itself that something is wrong, and lets the jobs wait, is like one that says nothing."""
        now = time.monotonic()
        passed, self._looked_at = now - self._looked_at, now
        told = {job_id: place for job_id, place in answers.items() if place is not None}
        gets_on = any(place > self._furthest.get(job_id, NOWHERE) for job_id, place in told.items())
        self._furthest.update({job_id: max(place, self._furthest.get(job_id, NOWHERE)) for job_id, place in told.items()})
        if gets_on or not answers:
            self.seconds = 0.0
        elif not told:
            self.seconds += passed
            self.why = "has been silent for"
        elif all(place[0] == QUEUED for place in told.values()):
            self._queued(client, passed)

    def _queued(self, client, passed):
        try:
            warning = client.health().get("warning") or ""
            works = bool(warning) and client.is_measuring()
        except Exception:  # noqa: BLE001: it answers for the jobs, so it lives; this time does not count
            return
        if not warning:
            self.seconds = 0.0  # their turn comes
        elif not works:
            self.seconds += passed
            self.why = "has been warning that %s, and has measured nothing, for" % warning
            if self.warning != plain(warning):
                log.warning("the evaluation server warns: %s", warning)
            self.warning = plain(warning)


def plain(text):
    """Without its numbers, which change all the time."""
    return "".join(character for character in text if not character.isdigit())


def place_of(job):
    """How far an open job is: only where this rises does anybody get on with it. A try that fails like the one before does not."""
    progress = job.get("progress") if isinstance(job.get("progress"), dict) else {}
    done = progress.get("fraction") if progress.get("stage") == "evaluating" else 0
    done, ahead = (value if isinstance(value, (int, float)) else 0 for value in (done, job.get("position_in_queue")))
    return RUNNING if job.get("status") == "running" else QUEUED, done, -ahead


def look_at(backend, job_id, step, failures):
    """Takes what there is to know of a job, and tells how far it is: a place_of(). None where the server said nothing, or nothing that
    lasts."""
    try:
        job = backend.client.get_job(job_id)
    except Exception as error:  # noqa: BLE001: of whatever kind, training goes on
        failures[job_id] += 1
        if failures[job_id] == 1 or is_final(error):
            log.warning("evaluation of step %s: %s", step, error)
        if is_final(error):
            backend.pending_evals.pop(job_id, None)
        return OVER if is_final(error) else None
    failures.pop(job_id, None)
    status = job.get("status")
    if status in ("queued", "running"):
        return place_of(job)
    metrics = backend._parse_eval_results(job.get("result") or {}) if status == "completed" else {}
    if metrics:
        log.info("evaluation of step %s: %s", step, metrics)
        _handed_over.add(job_id)
        backend.results_queue.put((job_id, step, metrics))
    else:
        log.error("evaluation of step %s: %s: %s", step, status, job.get("error") or "no metrics")
        backend.pending_evals.pop(job_id, None)
    return OVER


def poll_results(backend):
    """In place of the loop of the backend's thread. A completed job stays among the pending ones until its numbers were taken."""
    failures, wait = collections.Counter(), Wait()
    while True:
        time.sleep(backend.poll_interval)
        asked = {job_id: step for job_id, step in list(backend.pending_evals.items()) if job_id not in _handed_over}
        wait.look(backend.client, {job_id: look_at(backend, job_id, step, failures) for job_id, step in asked.items()})
        if wait.seconds > patience():
            log.error("the evaluation server %s %.0f s: the scores of steps %s are not waited for any more. What it measures is in metrics.jsonl",
                      wait.why, patience(), ", ".join(map(str, asked.values())))  # fmt: skip
            for job_id in asked:
                backend.pending_evals.pop(job_id, None)
            wait = Wait()


def take_completed(backend):
    taken = []
    while not backend.results_queue.empty():
        job_id, step, metrics = backend.results_queue.get_nowait()
        taken.append((step, metrics))
        backend.pending_evals.pop(job_id, None)
        _handed_over.discard(job_id)
    return taken


def mend():
    module = sys.modules.get("lmms_engine.eval.backends")
    backend = getattr(module, "EvalServerBackend", None)
    if backend is None or not all(hasattr(backend, name) for name in PARTS):
        return
    backend._parse_eval_results = parse_results
    backend._poll_results = poll_results
    backend.check_and_get_completed = take_completed
