"""Brings evalcar's scores into the training run that they are of. One file; it needs Python 3.9 and nothing else.

    from evalcar_trainer import EvalcarCallback                     # the Hugging Face Trainer
    trainer = Trainer(..., callbacks=[EvalcarCallback()])

    for row in follow(output_dir): ...                              # a loop of your own: results as they come
    row = wait_for(output_dir, step=500)                            # or the one that you need now

`evalcar run OUTPUT_DIR` evaluates beside the training and writes `_evalcar/metrics.jsonl`, one line a result. Here these lines
are read (never written), each is taken once, and those of a part of the documents (`"final": false`) are left out.

How it is cut: Reader and Heartbeat read the agent's files; _Watch is the background thread that calls them, and does nothing
else: it holds no lock, logs nothing and calls nothing of the trainer's, so neither can wait for the other. The callback, in
the trainer's own thread, takes what the thread found from a queue. What was logged is remembered in
`_evalcar/logged.jsonl`, a file of this program's own, so that a training that starts again logs nothing twice.
"""

import argparse
import collections
import contextlib
import copy
import errno
import hashlib
import json
import logging
import math
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time

__all__ = ["EvalcarCallback", "EvaluationMissing", "Heartbeat", "Reader", "follow", "wait_for"]

logger = logging.getLogger("evalcar")

STALE_AFTER = 60.0  # seconds without a heartbeat, after which nobody is waited for
SAY_AGAIN_AFTER = 60.0  # seconds between two lines about what is waited for
_LONGEST_LINE = 16 << 20  # of metrics.jsonl; more is no line of the agent's
_LONGEST_STATUS = 64 << 20
_ENDED = frozenset(("published", "quarantined", "lost", "skipped", "superseded"))  # states of an evaluation that is over


# ---- the agent's files --------------------------------------------------------------------------------------------------------


def _folder_of(output_dir, folder=None):
    """Where the agent publishes: `publish.dir` if that is set, else `_evalcar` in the output directory, or beside it where accelerate
    takes every entry of that for a checkpoint; its file `watched` names the directory then."""
    if folder:
        return os.path.abspath(os.fspath(folder))
    place, name = os.path.split(os.path.realpath(output_dir))
    try:
        with open(os.path.join(place, "_evalcar", "watched"), "rb") as file:
            if file.read(4097).removesuffix(b"\n") == os.fsencode(name):
                return os.path.join(place, "_evalcar")
    except OSError:
        pass
    return os.path.abspath(os.path.join(os.fspath(output_dir), "_evalcar"))


def _number(value):
    """The value as a float; None for what is no finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _row_of(line):
    """The row in a line of metrics.jsonl; None where it is not one that can be logged."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not isinstance(row.get("metrics"), dict):
        return None
    step, seq = row.get("global_step"), row.get("seq")
    if type(step) is not int or type(seq) is not int or step < 0:
        return None
    numbers = ((name, _number(value)) for name, value in row["metrics"].items())
    row["metrics"] = {name: value for name, value in numbers if value is not None}
    row["final"] = row.get("final", True) is True
    row["checkpoint_type"] = str(row.get("checkpoint_type", "regular"))
    return row


def _tasks_of(row):
    """The tasks that it has a number of, or tells why it has none: the second part of eval/<task>/<metric>."""
    missing = row.get("missing")
    names = (*row["metrics"], *(missing if isinstance(missing, dict) else ()))
    return {name.split("/")[1] for name in names if "/" in name}


def _place_of_name(name):
    """eval/<task> of eval/<task>/<metric>."""
    return "/".join(name.split("/")[:2])


def _replaced_in(rows):
    """{(step, seq): [eval/<task>, …]}: of which tasks the numbers of a row are superseded by others of these. A later row takes the place of
    an earlier one with the tasks that it has measured itself; a configuration may have had others before."""
    found = {}
    for row in sorted(rows, key=lambda row: -row["seq"]):
        if type(row.get("supersedes")) is not int:
            continue
        missing = row.get("missing")
        untold = (name for name in (missing if isinstance(missing, dict) else ()) if name.count("/") > 1)  # else the whole task failed
        measured = set(map(_place_of_name, (*row["metrics"], *untold))) | found.get((row["global_step"], row["seq"]), set())
        found.setdefault((row["global_step"], row["supersedes"]), set()).update(measured)
    return found


def _left_of(row, replaced):
    """Its numbers that no other row took the place of; `replaced`: of _replaced_in()."""
    gone = replaced.get((row["global_step"], row["seq"]), ())
    return {name: value for name, value in row["metrics"].items() if _place_of_name(name) not in gone}


def _key_of(row):
    """By what a row is known again: the agent may have lost its database, and number its lines anew."""
    key = row.get("evaluation")
    return key if isinstance(key, str) and key else "seq %d of %s" % (row["seq"], row.get("run"))


class Reader:
    """The rows of a metrics.jsonl, each once, in the order of the file. Not thread-safe.

    Only whole lines are read. When the file is another one (its inode changed, or it became shorter) it is read from its
    start, and what was seen before is passed over. `interim`: also the scores of a part of the documents."""

    def __init__(self, output_dir, interim=False, folder=None):
        self._place = (output_dir, folder)
        self._interim = interim
        self._file = None  # (device, inode)
        self._offset = 0
        self._seen = set()

    @property
    def path(self):
        """Asked for anew: the agent's folder comes with the first checkpoint, and may move."""
        return os.path.join(_folder_of(*self._place), "metrics.jsonl")

    def poll(self):
        """The rows that are new. No file is no error: the first result makes it. Raises OSError or ValueError."""
        try:
            file = open(self.path, "rb", buffering=0)
        except FileNotFoundError:
            return []
        with file:
            info = os.fstat(file.fileno())
            if (info.st_dev, info.st_ino) != self._file or info.st_size < self._offset:
                self._file, self._offset = (info.st_dev, info.st_ino), 0
            rows = []
            while True:
                try:
                    file.seek(self._offset)
                    text = file.read(_LONGEST_LINE) or b""
                except OSError:
                    if not rows:
                        raise
                    return rows  # what was read is not read again; the next call says what is wrong
                end = text.rfind(b"\n") + 1
                if end == 0:
                    if len(text) == _LONGEST_LINE:
                        raise ValueError("%s: a line of more than %d bytes" % (self.path, _LONGEST_LINE))
                    return rows
                rows.extend(self._new(text[:end]))
                self._offset += end

    def _new(self, text):
        for line in text.splitlines():
            row = _row_of(line)
            if row is None or not (row["final"] or self._interim):
                continue
            key = _key_of(row)
            if key not in self._seen:
                self._seen.add(key)
                yield row


class Heartbeat:
    """What the agent says of itself in status.json, and how long ago it said something new. Not thread-safe.

    Its age is taken by this machine's own clock, from when the file was seen to change: the agent may run elsewhere."""

    def __init__(self, output_dir, folder=None):
        self._place = (output_dir, folder)
        self.status = {}
        self.changes = 0
        self._text = b""
        self._changed_at = time.monotonic()

    @property
    def path(self):
        return os.path.join(_folder_of(*self._place), "status.json")

    def look(self):
        """Reads the file. No file is no error. Raises OSError or ValueError."""
        try:
            with open(self.path, "rb") as file:
                text = file.read(_LONGEST_STATUS)
        except FileNotFoundError:
            return
        if text == self._text:
            return
        status = json.loads(text)
        if not isinstance(status, dict):
            raise ValueError("%s: no JSON object" % self.path)
        self.status, self._text = status, text
        self.changes += 1
        self._changed_at = time.monotonic()

    def age(self):
        """Seconds since it changed; since this object was made, where there is none."""
        return time.monotonic() - self._changed_at

    def agent(self):
        agent = self.status.get("agent")
        return agent if isinstance(agent, dict) else {}

    def warning(self):
        """What the agent warns of, in one line; "" if of nothing."""
        warning = self.agent().get("warning")
        return " ".join(warning.split()) if isinstance(warning, str) else ""

    def rows(self):
        """All evaluations that status.json lists."""
        rows = self.status.get("evaluations")
        rows = rows if isinstance(rows, list) else []
        return [row for row in rows if isinstance(row, dict) and isinstance(row.get("state"), str)]

    def evaluations(self, step, kind=None):
        """The evaluations of a step (those of its newest generation)."""
        rows = [row for row in self.rows() if row.get("step") == step and kind in (None, row.get("checkpoint_type"))]
        newest = max(map(_generation_of, rows), default=0)
        return [row for row in rows if _generation_of(row) == newest]

    def describe(self):
        """In words, for people."""
        if not self.changes:
            return "no agent has been seen (%s is not there)" % self.path
        if self.agent().get("state") == "ended":
            return "the agent has ended (exit code %s)" % self.agent().get("exit_code")
        return "the agent's last heartbeat is %.0f s old" % self.age()


def _generation_of(evaluation):
    generation = evaluation.get("generation")
    return generation if type(generation) is int else 0


def _weights_of(thing):
    """(checkpoint_type, weights_sha256) of a row of either file; None where it does not tell the weights."""
    kind, sha256 = thing.get("checkpoint_type"), thing.get("weights_sha256")
    return (kind, sha256) if isinstance(kind, str) and isinstance(sha256, str) and sha256 else None


def _is_newest(row, evaluations):
    """Whether a row is of the weights that the newest generation of its step has, as far as that is told."""
    weights = _weights_of(row)
    return not evaluations or weights is None or any(_weights_of(each) == weights for each in evaluations)


def _is_of_last_save(row, saves, evaluations):
    """Whether a row is of the last save of its step, as far as is known: of what was there before that save (`saves`, of _Marks) only what
    is of the very same weights, which are not measured again. `evaluations`: of its step and kind."""
    _, after = saves.get(row["global_step"], ({}, 0))
    weights = _weights_of(row)
    again = any(each.get("state") == "superseded" and _weights_of(each) == weights for each in evaluations)
    return (row["seq"] > after or again) and _is_newest(row, evaluations)


def _over(evaluations):
    """Whether none of them will give another number."""
    return bool(evaluations) and all(row.get("state") in _ENDED for row in evaluations)


def _why(evaluations):
    """Why those that are over without a number are."""
    found = ["%s: %s" % (row.get("state"), row.get("reason") or "no reason given") for row in evaluations if row.get("state") != "published"]
    return "; ".join(found)


def _reason_of(evaluation):
    """In one line, and not too long; "" if none is given."""
    reason = evaluation.get("reason")
    reason = " ".join(reason.split()) if isinstance(reason, str) else ""
    return reason if len(reason) <= 300 else reason[:300] + "…"


def _is_hindered(evaluation):
    """Whether what it waits for is not its turn: it is not complete or has no lease yet, or was put back for a reason. One that failed is
    tried again by itself, and not for ever."""
    state = evaluation.get("state")
    return state in ("found", "complete") or (state != "failed" and bool(_reason_of(evaluation)))


class _Standstill:
    """For how many seconds an agent has been getting nowhere, by what its heartbeat tells.

    It gets on where an evaluation comes, ends, or is further than it ever was; a try that fails like the one before is nothing new.
    Time in which something is loaded or measured does not count, however long that takes."""

    _PLACES = {"found": 0, "complete": 1, "leased": 2, "failed": 2, "loading": 3, "evaluating": 4, "scored": 5}

    def __init__(self):
        self.seconds = 0.0
        self._furthest, self._looked_at = {}, None

    def look(self, heartbeat, now):
        passed = 0.0 if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        agent, rows = heartbeat.agent(), heartbeat.rows()
        works = agent.get("busy") is True or isinstance(agent.get("current"), dict)
        works = works or any(row.get("state") in ("loading", "evaluating") for row in rows)
        gets_on = False
        for row in rows:
            place = 6 if row.get("state") in _ENDED else self._PLACES.get(row.get("state"), 2)
            at, key = (place, _number(row.get("progress")) or 0.0), str(row.get("evaluation_id"))
            if key not in self._furthest or at > self._furthest[key]:
                self._furthest[key], gets_on = at, True
        if gets_on:
            self.seconds = 0.0
        elif not works:
            self.seconds += passed


# ---- for loops of your own ----------------------------------------------------------------------------------------------------


class EvaluationMissing(TimeoutError):
    """The result of a step did not come, and why."""

    def __init__(self, step, reason):
        super().__init__("no result of step %s: %s" % (step, reason))
        self.step, self.reason = step, reason


def follow(output_dir, *, poll_interval=10.0, interim=False, folder=None, stop=None):
    """Yields the rows of the run as they come, those that are there first; a corrected one has "supersedes".

    Ends when `stop`, a threading.Event, is set; without one it goes on for ever. A file that cannot be read for a while is
    read later."""
    stop = stop or threading.Event()
    reader, told = Reader(output_dir, interim, folder), None
    while True:
        ending = stop.is_set()
        rows = []
        try:
            rows = reader.poll()
            told = None
        except (OSError, ValueError) as error:
            if told != str(error):
                logger.info("%s; it is read again in %g s", error, poll_interval)
            told = str(error)
        yield from rows
        if ending or stop.wait(poll_interval):
            if ending:
                return


def wait_for(output_dir, step, *, kind="regular", metric=None, since=0, timeout=None, stale_after=STALE_AFTER, poll_interval=1.0, folder=None):
    """The newest result of a step's checkpoint; `metric`: the one that has this number ("eval/docvqa_val/anls").

    Of a step that was saved several times, the result of the newest save that the agent knows. Of one that you have just saved again it
    may not know yet: `since`, the highest `seq` before that save, leaves earlier results out, but that of the very same weights, which
    are not measured twice.

    It waits while the agent lives. Raises EvaluationMissing once the evaluation ended without a number, the agent said
    nothing for `stale_after` seconds, or `timeout` seconds are over."""
    reader, heartbeat = Reader(output_dir, folder=folder), Heartbeat(output_dir, folder=folder)
    started, rows, trouble = time.monotonic(), [], ""
    while True:
        waited = time.monotonic() - started
        changes = heartbeat.changes
        try:
            heartbeat.look()  # first, so that the rows are no older than what it says
            rows += [row for row in reader.poll() if row["global_step"] == step and row["checkpoint_type"] == kind]
            trouble = ""
        except (OSError, ValueError) as error:
            trouble = "; " + str(error)
        evaluations = heartbeat.evaluations(step, kind)
        # What it said before it could know of this checkpoint is not the end of it.
        is_news = changes > 1 or heartbeat.agent().get("state") == "ended"
        again = {_weights_of(each) for each in evaluations if is_news and each.get("state") == "superseded"} - {None}
        for row in reversed(rows):
            is_later = row["seq"] > since or _weights_of(row) in again
            if is_later and _is_newest(row, evaluations) and (metric is None or metric in row["metrics"]):
                return row
        earlier = {_weights_of(row) for row in rows if row["seq"] <= since}
        is_earlier = any(each.get("state") == "published" and _weights_of(each) in earlier for each in evaluations)
        if _over(evaluations) and is_news and not is_earlier:
            raise EvaluationMissing(step, (_why(evaluations) or "its results have no such number") + trouble)
        if heartbeat.age() >= stale_after:
            raise EvaluationMissing(step, heartbeat.describe() + trouble)
        if timeout is not None and waited >= timeout:
            raise EvaluationMissing(step, "not within %g s (%s)%s" % (timeout, heartbeat.describe(), trouble))
        time.sleep(poll_interval if timeout is None else max(0.0, min(poll_interval, timeout - waited)))


# ---- the background thread ----------------------------------------------------------------------------------------------------

# Seconds for which no look may succeed before something is wrong for good: a file server that is started anew takes minutes.
_PATIENCE = 1800.0


class _Marks:
    """_evalcar/logged.jsonl: which rows were handed to which loggers. One line a row and hand-over, appended whole.

    {"evaluation": …, "seq": 7, "global_step": 500, "to": ["trainer", "wandb"], "time": "…Z"}; and at each save {"places": {"wandb":
    "entity/project/run", "tensorboard": "DIR"}, "global_step": 500, "after": 4, "resumed_from": 0}, for `evalcar push`: rows of this step
    with a higher seq than `after` belong there, and those of steps up to `resumed_from`. The agent makes the folder with its first
    result, so it is there when there is something to remember."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "logged.jsonl")
        self.places = {}
        self.saves = {}  # step → (places, after) of its last save
        self.resumed_from = 0

    def read(self):
        """{key of a row: names of the loggers that have it}; `places` is then what was told last."""
        found = {}
        try:
            with open(self.path, "rb") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return found
        for line in lines:
            try:
                mark = json.loads(line)
                if isinstance(mark.get("places"), dict):
                    self.places = {name: place for name, place in mark["places"].items() if isinstance(place, str)}
                    if "global_step" in mark:
                        self.saves[int(mark["global_step"])] = (self.places, int(mark["after"]))
                        self.resumed_from = int(mark["resumed_from"])
                    continue
                found.setdefault(str(mark["evaluation"]), set()).update(str(name) for name in mark["to"])
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue  # torn, or of a later version: its row may be logged once more
        return found

    def append(self, marks):
        text = "".join(json.dumps(mark, separators=(",", ":")) + "\n" for mark in marks).encode()
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                text = b"\n" + text  # behind the torn tail of a process that was killed
            try:
                if os.write(descriptor, text) != len(text):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
                os.fsync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):  # it is written again: each second while a full disk is waited for
                    os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)


def _mark(row, loggers):
    return {"evaluation": _key_of(row), "seq": row["seq"], "global_step": row["global_step"], "to": sorted(loggers),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}  # fmt: skip


class _Watch(threading.Thread):
    """Looks at the agent's files every `poll_interval` seconds. Everything goes through its queues, and nothing is locked.

    found    what is new, for the trainer's thread: ("row", row, loggers that have it), ("trouble", text), ("unwritten", text),
             ("broken", text)
    marks    what is to be remembered, from there; where it cannot be written it is kept, and nothing else waits for it
    seen     a copy of the heartbeat as of the last look that succeeded, no newer than the rows; best: best.json. Both replaced as a whole
    trouble  why the last look did not succeed; "" if it did
    patient  set by the trainer's thread when it waits at the end: how long files may be out of reach is its to say, then"""

    def __init__(self, output_dir, folder=None, poll_interval=10.0):
        super().__init__(name="evalcar", daemon=True)
        self.found, self.marks = collections.deque(), collections.deque()
        self.seen = Heartbeat(output_dir, folder)
        self.best = {}
        self.places_before, self.saves_before = {}, {}  # of an earlier training: where it logged, and `saves` of _Marks
        self.looks = 0
        self.poll_interval = poll_interval
        self._folder = _folder_of(output_dir, folder)
        self._heartbeat = copy.copy(self.seen)
        self._reader, self._marks = Reader(output_dir, folder=folder), _Marks(self._folder)
        self.marks_path = self._marks.path
        self._logged = None
        self.trouble, self._unwritten, self.patient = "", "", False
        self._succeeded_at, self._is_broken = time.monotonic(), False
        self._ends, self._wake = threading.Event(), threading.Event()
        self.looked = threading.Event()  # at least once

    def run(self):
        while True:
            ending = self._ends.is_set()
            self._wake.clear()
            self._look()
            self.looked.set()
            if ending or self._is_broken:
                return
            self._wake.wait(self.poll_interval)

    def has_folder(self):
        """Whether an agent has been here, in this training or before."""
        return os.path.isdir(self._folder)

    def hurry(self):
        """The next look is now."""
        self._wake.set()

    def end(self, patience=30.0):
        """A last look, and the end; waits for it so long."""
        self._ends.set()
        self._wake.set()
        if self.is_alive():
            self.join(patience)

    def _look(self):
        self.remember()
        try:
            if self._logged is None:
                self._logged = self._marks.read()
                self.places_before, self.saves_before = dict(self._marks.places), dict(self._marks.saves)
            self._heartbeat.look()  # before the rows, so that these are no older than what it says
            rows = self._reader.poll()
            try:
                self._read_best()  # before they are taken: it may tell which way they are ranked
            finally:
                self.found.extend(("row", row, frozenset(self._logged.get(_key_of(row), ()))) for row in rows)
            self.seen = copy.copy(self._heartbeat)
        except Exception as error:  # the training goes on, whatever it is
            text = "%s: %s" % (type(error).__name__, error)
            waits = self.patient and isinstance(error, OSError)
            if time.monotonic() - self._succeeded_at >= _PATIENCE + 2 * self.poll_interval and not waits:
                self._is_broken = True
                self.found.append(("broken", text))
            elif text != self.trouble:
                self.found.append(("trouble", text))
            self.trouble = text
        else:
            self._succeeded_at, self.trouble = time.monotonic(), ""
        self.looks += 1

    def remember(self):
        try:
            if self.marks and self.has_folder():
                marks = list(self.marks)
                self._marks.append(marks)
                for _ in marks:
                    self.marks.popleft()
            self._unwritten = ""
        except Exception as error:  # what is read is of use without it
            text = "%s: %s" % (type(error).__name__, error)
            if text != self._unwritten:
                self.found.append(("unwritten", text))
            self._unwritten = text

    def _read_best(self):
        try:
            with open(os.path.join(self._folder, "best.json"), "rb") as file:
                best = json.loads(file.read(1 << 20))
        except FileNotFoundError:
            best = {}
        self.best = best if isinstance(best, dict) else {}


# ---- where numbers go ---------------------------------------------------------------------------------------------------------


def _is_a(thing, name):
    """By the name of its class or of one above it: nothing is imported for it."""
    return any(each.__name__ == name for each in type(thing).__mro__)


def _logs(callback):
    return getattr(getattr(type(callback), "on_log", None), "__qualname__", "TrainerCallback.on_log") != "TrainerCallback.on_log"


def _may_ask_others(callback):
    """Whether its on_log, which the Trainer calls on all ranks, may need them all: on one alone it would wait for ever. transformers' own
    do not."""
    return type(callback).__module__.split(".")[0] != "transformers" and not getattr(callback, "logs_on_first_rank", False)


class _Loggers:
    """The loggers of a Trainer, each given a row at the row's own step.

    Trainer.log knows one step only, the current one, and what subclasses make of it (averages since the last call) belongs
    to that. So here is done what it does, but at another step: an entry of state.log_history, and each callback's on_log.
    TensorBoard and W&B are given the names as they are, which the Trainer's own callbacks would change."""

    def __init__(self, handler, several=False):
        self.handler, self.several = handler, several
        self._defined = set()

    def names(self):
        """`trainer` for state.log_history, `tensorboard`, `wandb`, and other callbacks by the names of their classes."""
        return ["trainer", *self._callbacks()]

    def _callbacks(self):
        found = {}
        for callback in getattr(self.handler, "callbacks", ()):
            if _is_a(callback, "TensorBoardCallback"):
                found["tensorboard"] = callback
            elif _is_a(callback, "WandbCallback"):
                found["wandb"] = callback
            elif _logs(callback) and not (self.several and _may_ask_others(callback)):
                found.setdefault(type(callback).__name__, callback)
        return found

    def left_out(self):
        """The names of the callbacks that are given nothing, since there are several ranks."""
        given = self._callbacks().values()
        theirs = [callback for callback in getattr(self.handler, "callbacks", ()) if _logs(callback) and not any(callback is each for each in given)]
        return sorted({type(callback).__name__ for callback in theirs if _may_ask_others(callback)}) if self.several else []

    def log(self, name, row, epoch, args, state, control):
        if name == "trainer":
            state.log_history.append({**row["metrics"], **({} if epoch is None else {"epoch": epoch}), "step": row["global_step"]})
            return
        callback = self._callbacks()[name]
        send = {"tensorboard": self._to_tensorboard, "wandb": self._to_wandb}.get(name, self._to_callback)
        send(callback, row, epoch, args, state, control)

    def places(self, args):
        """Where TensorBoard's and W&B's callbacks log to, for those who come later."""
        places, callbacks = {}, self._callbacks()
        writer = getattr(callbacks.get("tensorboard"), "tb_writer", None)
        if getattr(writer, "log_dir", None):
            places["tensorboard"] = os.path.abspath(str(writer.log_dir))
        run = getattr(getattr(callbacks.get("wandb"), "_wandb", None), "run", None)
        if run is not None:
            places["wandb"] = "/".join((run.entity or "", run.project or "", run.id))
        return places

    def _to_callback(self, callback, row, epoch, args, state, control):
        values = dict(row["metrics"])
        if epoch is not None:
            values["epoch"] = epoch
        then = copy.copy(state)
        then.global_step, then.epoch = row["global_step"], epoch
        rest = ("model", "processing_class", "tokenizer", "optimizer", "lr_scheduler", "train_dataloader", "eval_dataloader")
        control = copy.copy(control) if self.several else control  # what is asked for on one rank alone, the others would not do
        callback.on_log(args, then, control, logs=values, **{name: getattr(self.handler, name) for name in rest if hasattr(self.handler, name)})

    def _to_tensorboard(self, callback, row, epoch, args, state, control):
        closed = callback.tb_writer is None  # training is over
        if closed:
            callback._init_summary_writer(args)
        _to_summary_writer(callback.tb_writer, row)
        if closed:
            callback.tb_writer.close()
            callback.tb_writer = None

    def _to_wandb(self, callback, row, epoch, args, state, control):
        run = getattr(getattr(callback, "_wandb", None), "run", None)
        if run is None:
            raise RuntimeError("W&B has no run")
        _to_wandb_run(run, row, self._defined)


def _to_summary_writer(writer, row):
    for key, value in row["metrics"].items():
        writer.add_scalar(key, value, row["global_step"])
    writer.flush()


_WANDB_STEP = "evalcar/global_step"


def _to_wandb_run(run, row, defined):
    """W&B's own step only goes up; so these have an axis of theirs, which may go back."""
    for key in row["metrics"]:
        if key not in defined:
            run.define_metric(_WANDB_STEP, hidden=True)
            run.define_metric(key, step_metric=_WANDB_STEP)
            defined.add(key)
    run.log({**row["metrics"], _WANDB_STEP: row["global_step"]})


# ---- which checkpoint is the best ---------------------------------------------------------------------------------------------

# Other names of metrics in the tasks that evalcar brings along.
_ALIASES = {"accuracy": ("exact_match", "mmmu_acc")}


def _plain(wanted):
    """A metric's name without what says nothing of it: `docvqa_val/anls` of `eval_docvqa_val/anls,none`."""
    for prefix in ("eval_ema/", "eval_avg/", "eval_", "eval/"):
        wanted = wanted[len(prefix) :] if wanted.startswith(prefix) else wanted
    return wanted[: -len(",none")] if wanted.endswith(",none") else wanted


def _less_is_better(wanted):
    """Whether it is one of those of evalcar's metrics of which the lower value is the better one."""
    metric = wanted.rpartition("/")[2].split(",")[0]
    return metric == "loss" or metric.endswith(("perplexity", "bits_per_byte"))


def _is_told_less(args):
    """Whether the training itself says that less is better. That more is, transformers says of every name that does not end in "loss",
    without being asked: it tells nothing."""
    return args.greater_is_better is False and not args.metric_for_best_model.endswith("loss")


def _greater_is_better(args):
    """As the training says, but for the names that are known: while nothing tells what the metric says of itself."""
    return args.greater_is_better is not False and not _less_is_better(args.metric_for_best_model)


def _direction_in(best, wanted):
    """Whether more of the metric is better, as the agent's best.json tells; None where it tells nothing of it."""
    greater = best.get("greater_is_better")
    is_known = best.get("best") and _plain(str(best.get("metric"))) == _plain(wanted)
    return greater if is_known and isinstance(greater, bool) else None


def metric_in(metrics, wanted):
    """The name under which a row has the metric that is meant: with or without "eval/", and with or without the "eval_" that
    the Trainer puts before every name, or lmms-eval's ",none" behind it; None if it has it not."""
    names = [wanted, wanted[: -len(",none")]] if wanted.endswith(",none") else [wanted]
    if wanted.startswith("eval_"):
        names += [name[len("eval_") :] for name in names]
    names += ["eval/" + name for name in names]
    for name in list(names):
        head, slash, tail = name.rpartition("/")
        names += [head + slash + other for other in _ALIASES.get(tail, ())]
    return next((name for name in names if name in metrics), None)


def _told(sha256):
    return sha256 if isinstance(sha256, str) and sha256 else None


def _question_of(row, name):
    """What the task of a metric asked, as the row tells it; None if it does not."""
    questions = row.get("question_sha256")
    task = name.partition("/")[2].rpartition("/")[0]
    return _told(questions.get(task)) if isinstance(questions, dict) else None


class _Scores:
    """The scores of metric_for_best_model by step, and what follows from them whatever the order in which they came.

    Only those of the settings with which was measured last (by `seq`), and of the question that the task asked then: of 64 documents and
    of all of them, say, there are two scales. A row that does not tell one of them, an older agent's, goes with all."""

    def __init__(self, wanted, greater_is_better):
        self.wanted, self.greater = wanted, greater_is_better
        self._taken = []  # (step, (settings or None, question or None), score)
        self._newest = (-1, (None, None))  # seq, settings and question
        self._of = {}

    def take(self, row):
        name = metric_in(row["metrics"], self.wanted)
        if name is None:
            return
        series = _told(row.get("settings_sha256")), _question_of(row, name)
        if series[0] is not None and row["seq"] >= self._newest[0]:
            self._newest = (row["seq"], series)
        self._taken.append((row["global_step"], series, row["metrics"][name]))
        self._of = None

    @property
    def of(self):
        """{step: score}"""
        if self._of is None:
            self._of = {step: score for step, series, score in self._taken if self._counts(series)}
        return self._of

    def _counts(self, series):
        settings, question = self._newest[1]
        return series[0] in (None, settings) and (question is None or series[1] in (None, question))

    def passed_over(self):
        """Steps that have scores of other settings or questions alone."""
        return sorted({step for step, _, _ in self._taken} - set(self.of))

    def better(self, value, than, threshold=0.0):
        return (value > than if self.greater else value < than) and abs(value - than) > threshold

    def ranked(self):
        """Steps, the best first; of equals the first."""
        return sorted(self.of, key=lambda step: (-self.of[step] if self.greater else self.of[step], step))

    def since_improvement(self, threshold):
        """How many known scores, in the order of the steps, came after the last that gained more than `threshold`. As transformers
        counts: each is held against the best before it, and that moves at every gain, however small."""
        best, count = None, 0
        for step in sorted(self.of):
            value = self.of[step]
            if best is None or self.better(value, best, threshold):
                count = 0
            else:
                count += 1
            if best is None or self.better(value, best):
                best = value
        return count


# ---- an agent of our own ------------------------------------------------------------------------------------------------------


def _program(given):
    """The agent's: what the user says, EVALCAR, on PATH, or where this file was installed or built with it."""
    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.path.join(here, place, "bin", "evalcar") for place in ("../../..", "../../build", "../../build/release", "../../build/dev")]
    for place in (given, os.environ.get("EVALCAR"), shutil.which("evalcar"), *places):
        if place and (place == given or os.access(place, os.X_OK)):
            return os.path.normpath(place)
    raise FileNotFoundError("the program `evalcar` was not found: give its place by evalcar=, EVALCAR or PATH")


def _log_place(output_dir):
    """Beside the agent's database: in the output directory nothing may be made before its first checkpoint."""
    state = os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "evalcar")
    os.makedirs(state, exist_ok=True)
    return os.path.join(state, "%s-%d.log" % (os.path.basename(os.path.normpath(output_dir)) or "run", os.getpid()))


# Seconds for an agent that was started here to begin watching; it takes well below one.
_START_PATIENCE = 30.0
# Seconds until the heartbeat of an agent that is being started shows, at the latest: it looks at the folder, and writes every few seconds.
_SHOWS_ITSELF = _START_PATIENCE + 10.0


class _Agent:
    """`evalcar run`, started by the training, in a session of its own: what is sent to the training's process group, such as
    Ctrl-C, is not sent to it. It is told the training's process: should that die, the agent finishes what is left, and ends."""

    def __init__(self, program, output_dir, flags, settings):
        self.log, self.output_dir = _log_place(output_dir), os.path.abspath(output_dir)
        self.command = [_program(program), "--log-file", self.log, "run", self.output_dir, *flags]
        for key, value in {"watch.exit_with_pid": os.getpid(), **settings}.items():
            self.command += ["--set", "%s=%s" % (key, str(value).lower() if isinstance(value, bool) else value)]
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:  # what it says before its own log is open
            begin = log.tell()
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        # A training whose first checkpoints come and go before the agent looks would miss their scores.
        until = time.monotonic() + _START_PATIENCE
        while time.monotonic() < until and self.process.poll() is None and not self._watches(begin):
            time.sleep(0.02)

    def _watches(self, begin):
        """Whether its log has said so, behind what was there before."""
        with open(self.log, "rb") as log:
            log.seek(begin)
            return b" watching " in log.read(65536)

    def ended(self):
        """How it ended, with the last lines that it said; "" while it runs."""
        if self.process is None or self.process.poll() is None:
            return ""
        said = []
        with contextlib.suppress(OSError), open(self.log, "rb") as log:  # somebody may have removed it
            log.seek(max(0, os.fstat(log.fileno()).st_size - 2000))
            said = log.read().decode(errors="replace").strip().splitlines()[-3:]
        return "evalcar ended with code %d: %s (%s)" % (self.process.returncode, " | ".join(said), self.log)

    def stop(self, patience=60.0):
        """Ends it in good order; if that takes too long, with all its processes."""
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            try:
                self.process.wait(10.0)
            except subprocess.TimeoutExpired:  # in a call of the kernel's that does not come back
                logger.warning("evalcar (process %d) was killed, and has not ended yet", self.process.pid)


def _agent_settings(args, eval_steps, snapshot_dir, given):
    """What follows from the training's own arguments, for the agent that it starts; `given` goes first."""
    settings = {}
    if eval_steps:
        settings["evaluate.eval_steps"] = eval_steps
    if snapshot_dir:
        settings["watch.snapshot_dir"] = os.path.abspath(os.fspath(snapshot_dir))
    if args.metric_for_best_model is not None and args.metric_for_best_model not in ("loss", "eval_loss"):
        settings["publish.metric_for_best_model"] = "eval/" + _plain(args.metric_for_best_model)
        if _is_told_less(args):  # else what the metric says of itself counts
            settings["publish.greater_is_better"] = False
    if args.load_best_model_at_end:
        settings["publish.keep_best"] = 1
    return {**settings, **(given or {})}


# ---- weights between two checkpoints ------------------------------------------------------------------------------------------


def _is_memory(folder):
    """Whether the file system of this folder is a part of the memory."""
    folder, longest, kind = os.path.realpath(folder), "", ""
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            place = line.split(" ")[1].replace("\\040", " ")
            if (folder + "/").startswith(place.rstrip("/") + "/") and len(place) >= len(longest):
                longest, kind = place, line.split(" ")[2]
    return kind in ("tmpfs", "ramfs")


def _memory_groups():
    """(folder, names of its files) of each control group, of versions 1 and 2, that limits this process's memory: its own and all
    around it."""
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as groups:
        for line in groups:
            _, kinds, path = line.rstrip("\n").split(":", 2)
            if kinds and "memory" not in kinds.split(","):
                continue
            top = "/sys/fs/cgroup/memory" if kinds else "/sys/fs/cgroup"
            names = ("limit_in_bytes", "usage_in_bytes", "total_inactive_file ") if kinds else ("max", "current", "inactive_file ")
            parts = [part for part in path.split("/") if part not in ("", "..")]
            for end in range(len(parts) + 1):
                yield os.path.join(top, *parts[:end]), names


def _free_memory():
    """Bytes of memory that the machine has left, or the control groups of this process, if they have less."""
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
    for folder, (most, used, unneeded) in _memory_groups():
        try:
            with open(folder + "/memory." + most) as limit, open(folder + "/memory." + used) as now, open(folder + "/memory.stat") as stat_file:
                given_back = next(int(line.split()[1]) for line in stat_file if line.startswith(unneeded))
                free = min(free, int(limit.read()) - int(now.read()) + given_back)
        except (OSError, ValueError, StopIteration):  # there is no limit, or none that is shown here
            continue
    return free


def _room(folder):
    """Bytes that may be written there."""
    info = os.statvfs(folder)
    room = info.f_bavail * info.f_frsize
    try:
        return min(room, _free_memory()) if _is_memory(folder) else room
    except (OSError, StopIteration):  # no Linux
        return room


class _Snapshots:
    """Weights alone, for evaluations between two checkpoints: at most two, each whole by a rename, which the agent takes and
    removes. Their folder bears the name of the output directory and a hash of its real path, as the agent's database does."""

    MOST = 2
    _NAME, _WRITING, _MISSED = "weights-of-step-", ".writing-", "not-written.json"

    def __init__(self, place, output_dir):
        real = os.path.realpath(output_dir)
        name = "%s-%s" % (os.path.basename(real), hashlib.sha256(os.fsencode(real)).hexdigest()[:8])
        self.folder = os.path.join(os.path.abspath(os.fspath(place)), name)
        self.unusable = ""  # why nothing is written
        self.missed = 0  # evaluations for which nothing was written

    @staticmethod
    def refusal(args, model):
        """Why there can be none, in words; "" if nothing stands in the way. The same on every rank."""
        if args.load_best_model_at_end:
            return "load_best_model_at_end needs checkpoints that stay"
        if not hasattr(_bare(model), "save_pretrained"):
            return "the model has no save_pretrained"
        # Of DTensor (FSDP2, tensor parallelism), DeepSpeed ZeRO-3, FSDP without and with use_orig_params.
        sharded = ("placements", "ds_id", "_is_flat_param", "_fsdp_flattened")
        wrapped = ("FullyShardedDataParallel", "XlaFullyShardedDataParallel", "SpmdFullyShardedDataParallel")
        if any(hasattr(each, name) for each in model.parameters() for name in sharded) or any(
            _is_a(each, name) for each in model.modules() for name in wrapped
        ):
            return "the model is sharded, no rank has all of its weights"
        return ""

    def place_of(self, step):
        return os.path.join(self.folder, "%s%d" % (self._NAME, step))

    def steps(self):
        """Of those that are there."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        ends = [name[len(self._NAME) :] for name in names if name.startswith(self._NAME)]
        return sorted(int(end) for end in ends if end.isdecimal())

    def begin(self, start_step):
        """Removes what a killed training left: what is not whole, and what this one writes again."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        info = os.lstat(self.folder)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
            raise PermissionError("%s is not a folder of this user" % self.folder)
        self.missed = 0
        for name in os.listdir(self.folder):
            if name.startswith(self._WRITING):
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
        self.forget_missed()
        for step in self.steps():
            if step > start_step:
                self.remove(step)

    def write(self, step, model, processor):
        """Why it was not written; "" if it was. Raises what goes wrong, and leaves nothing then."""
        if self.unusable:
            return self.unusable
        model, there = _bare(model), self.steps()
        if len(there) >= self.MOST:
            return "the weights of steps %s wait in %s (watch.snapshot_dir)" % (" and ".join(map(str, there)), self.folder)
        needed = sum(each.numel() * each.element_size() for each in model.parameters())
        # Itself, the host's copies of what is being written, and as much again that stays free.
        if _room(self.folder) < 3 * needed:
            return "%s has no room for three times %.1f GB" % (self.folder, needed / 1e9)
        scratch = os.path.join(self.folder, "%s%d-%d" % (self._WRITING, os.getpid(), step))
        try:
            model.save_pretrained(scratch, max_shard_size="2GB")
            if hasattr(processor, "save_pretrained"):
                processor.save_pretrained(scratch)
            os.rename(scratch, self.place_of(step))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return ""

    def miss(self, step, why):
        """Nothing was written for the evaluation of this step: counted, and left for the agent, whose status tells it."""
        self.missed += 1
        if self.unusable:
            return
        scratch = os.path.join(self.folder, "%s%d.json" % (self._WRITING, os.getpid()))
        try:
            with open(scratch, "w", encoding="utf-8") as file:
                json.dump({"count": self.missed, "step": step, "reason": why}, file)
            os.rename(scratch, os.path.join(self.folder, self._MISSED))
        except OSError:
            pass  # there may be no room for it, either; the log has it

    def forget_missed(self):
        try:
            os.remove(os.path.join(self.folder, self._MISSED))
        except OSError:
            pass

    def remove(self, step):
        """It is not there after a rename; the agent may be removing it, too."""
        scratch = os.path.join(self.folder, "%s%d-%d" % (self._WRITING, os.getpid(), step))
        try:
            os.rename(self.place_of(step), scratch)
        except FileNotFoundError:
            return
        shutil.rmtree(scratch, ignore_errors=True)


def _bare(model):
    """Without what torch.compile and DDP put around it."""
    while True:
        if _is_a(model, "OptimizedModule"):
            model = model._orig_mod
        elif _is_a(model, "DistributedDataParallel") or _is_a(model, "DataParallel"):
            model = model.module
        else:
            return model


# ---- the Hugging Face Trainer -------------------------------------------------------------------------------------------------


def _handler_calling(callback):
    """The Trainer's CallbackHandler. It hands no way to the other callbacks to those that it calls, but is among the callers."""
    frame = sys._getframe(1)
    for _ in range(16):
        frame = frame.f_back
        if frame is None:
            return None
        handler = frame.f_locals.get("self")
        callbacks = getattr(handler, "callbacks", None)
        if isinstance(callbacks, list) and any(each is callback for each in callbacks):
            return handler
    return None


def _in_words(values):
    """The numbers of a row, each with its standard error."""
    parts = []
    for name, value in values.items():
        if not (name.endswith("_stderr") and name[: -len("_stderr")] in values):
            error = values.get(name + "_stderr")
            parts.append("%s %.4g%s" % (name, value, "" if error is None else " ± %.2g" % error))
    return ", ".join(parts) or "no number"


def _is_loadable(args, folder):
    """Whether the Trainer can load this at its end: weights alone, but for DeepSpeed and FSDP, which load what they saved beside them
    and raise where that is not there."""
    try:
        from accelerate.state import AcceleratorState

        shared = AcceleratorState._shared_state  # what the Trainer asks
    except (ImportError, AttributeError):
        shared = {}
    if shared.get("deepspeed_plugins") or shared.get("deepspeed_plugin") or (not shared and getattr(args, "deepspeed", None)):
        with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, "latest"), encoding="utf-8") as latest:
            name = latest.read(1000).strip()
            return name.startswith("global_step") and os.path.isdir(os.path.join(folder, name))
        return False
    if shared.get("fsdp_plugin") or (not shared and getattr(args, "fsdp", None)):
        with contextlib.suppress(OSError):
            return any(name.startswith("pytorch_model_fsdp") for name in os.listdir(folder))
        return False
    return True


class _Save:
    """A step that was handed over. Its folder may have been there before: of a training that was resumed from an earlier step, or begun
    anew in the same place. `before`: (run, generation) of what the agent had then, None if it can have had nothing; what is of this
    save has a higher generation. `changes`: how often the heartbeat had changed. `seq`: of the last row before."""

    def __init__(self, changes, before, seq=0):
        self.changes, self.before, self.seq = changes, before, seq

    def is_of_it(self, evaluation):
        if self.before is None:
            return True
        run, generation = self.before
        return evaluation.get("run") != run or _generation_of(evaluation) > generation


class EvalcarCallback:
    """Scores of `evalcar run`, which evaluates beside the training, in the Trainer that they are of.

        trainer = Trainer(..., callbacks=[EvalcarCallback()])

    Each result is logged once, at its own step. The Trainer's own evaluations (`eval_strategy`) are not run: where one is
    due a checkpoint is saved, the agent evaluates it, and its score counts for metric_for_best_model, load_best_model_at_end
    and early stopping when it comes. When training ends it waits for the scores that are still to come.

    output_dir            of the training; default: that of TrainingArguments
    folder                where the agent publishes, if `publish.dir` is set
    poll_interval         seconds between two looks at its files, in a thread of their own
    timeout               seconds that the end of the training may be kept waiting for scores; None: while the agent lives
    stale_after           seconds without a heartbeat, after which the agent is taken for dead
    stuck_after           seconds that the end of the training waits for an agent that lives, but says that it cannot measure (the device is
                          busy, data are missing, …) and gets nowhere; time in which it measures does not count. None: for ever
    replace_evaluations   False: the Trainer's own evaluations stay as they are
    eval_steps            a checkpoint is saved for evaluation every so many steps, whatever `eval_strategy` says
    early_stopping_patience, early_stopping_threshold
                          as of transformers' EarlyStoppingCallback, on these scores; if the Trainer has that callback, it is
                          given the scores

    start                 True: `evalcar run` is started with the training, on the first rank, and ended when everything is evaluated.
                          `tasks` (a list), `data` (the data sets' folder), `eval_device` ("cuda:1"; numbered as the training's own are),
                          `evalcar` (the program), `config` (a file) and `settings` ({"evaluate.max_new_tokens": 8}) are for it
    snapshot_dir          "/dev/shm/evalcar": where an evaluation is due and no save, the weights alone are written there instead of a
                          checkpoint (but for the first one), for the agent to take and remove; at most two, and none where there is no
                          room. With start=True the agent is told; else it needs the same as `watch.snapshot_dir`

    All of it is done on the first rank alone. Where there are several, what was decided is told to the others before a
    checkpoint is saved, so that all of them stop, and load the same, at the same step. Callbacks that are not transformers' own
    are given results then only if they have `logs_on_first_rank = True`: their on_log is called on that rank alone."""

    def __init__(self, output_dir=None, *, folder=None, poll_interval=10.0, timeout=None, stale_after=STALE_AFTER, stuck_after=600.0,
                 replace_evaluations=True, eval_steps=None, early_stopping_patience=None, early_stopping_threshold=0.0, start=False,
                 tasks=None, data=None, eval_device=None, evalcar=None, config=None, settings=None, snapshot_dir=None):  # fmt: skip
        self.output_dir, self.folder = output_dir, folder
        self.poll_interval, self.timeout, self.stale_after, self.stuck_after = poll_interval, timeout, stale_after, stuck_after
        self.replace_evaluations, self.eval_steps = replace_evaluations, eval_steps
        self.early_stopping_patience, self.early_stopping_threshold = early_stopping_patience, early_stopping_threshold
        self.start, self.tasks, self.data, self.eval_device = start, tasks, data, eval_device
        self.evalcar, self.config, self.settings = evalcar, config, settings
        self.snapshot_dir = snapshot_dir
        self._training = None

    def __getattr__(self, name):
        """All events of the Trainer that are none here, those of later versions too: nothing is done."""
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(name)

    def on_train_begin(self, args, state, control, model=None, **_):
        earlier, self._training = self._training, _Training(self, args, state, _handler_calling(self))
        self._training.begin(args, model, earlier)

    def on_step_end(self, args, state, control, **parts):
        if self._training is not None:
            self._training.step(args, state, control, parts)

    def on_epoch_end(self, args, state, control, **parts):
        if self._training is not None:
            self._training.epoch(args, state, control, parts)

    def on_save(self, args, state, control, **_):
        if self._training is not None:
            self._training.saved(args, state, control)

    def on_train_end(self, args, state, control, **_):
        if self._training is not None:
            self._training.end(args, state, control)
            self._training = None


def _nothing(*_, **__):
    return None


class _Training:
    """One call of Trainer.train(), as the callback sees it. Only the Trainer's thread is in here."""

    _LOGGER_PATIENCE = 3  # tries to log, after which a logger is left alone
    _TURN = 1.0  # seconds of the wait at the end
    _FIRST_LOOK = 10.0  # seconds: a file system that does not answer would not take the checkpoints, either

    def __init__(self, options, args, state, handler):
        self.options, self.output_dir = options, options.output_dir or args.output_dir
        self.first, self.several = state.is_world_process_zero, args.world_size > 1
        self.start_step = state.global_step
        self.loggers = _Loggers(handler, self.several)
        self.watch = self.agent = self.snapshots = None
        self.scores, self.metric_is_checked = None, False
        if args.metric_for_best_model is not None:
            self.scores = _Scores(args.metric_for_best_model, _greater_is_better(args))
        # A scheduler that goes by the evaluations cannot wait for them.
        plateau = "plateau" in str(getattr(args, "lr_scheduler_type", "")).lower()
        self.replaces = options.replace_evaluations and not plateau
        if plateau and options.replace_evaluations and self.first:
            logger.warning("the learning rate follows the evaluations (reduce_lr_on_plateau), so the Trainer's own are not replaced")
        self.saved_steps, self.epochs = set(), {}
        self.handed = {}  # step → _Save
        self.removed = {}  # step → how often the heartbeat had changed when its checkpoint was not there and the agent knew nothing of it
        self.unread = {}  # step → the same, when its result was published and its row not there
        self.over, self.noted = {}, None  # step → why it has no number ("" if it has), of those that are over; the heartbeat that last told some
        self.results = {}  # step → its rows: (checkpoint_type, time, tasks)
        self.weights = {}  # step → those that its rows are of
        self.seen = Heartbeat(self.output_dir, options.folder)  # as of the last _take(): all rows that it speaks of were taken, or are held
        # (row, its loggers, the last step that had ended): of steps that were not saved yet, or of which an earlier save was known
        self.held, self.awaits = [], False  # whether some of them go by what the heartbeat will tell
        self.at_end_of = (None, None)  # the last step that ended, and the heartbeat as it was then
        self.names_before, self.agent_was_here = None, True  # what lay in the output directory when the training began
        self.unlogged = []  # [row, its loggers, those that have it]
        self.logged_seqs = set()
        self.failures = collections.Counter()  # of a logger, in a row
        self.places = {}
        self.told, self.warned, self.heard = set(), set(), None
        self.could_show_since, self.is_alone = None, False  # since when an agent could; whether it was told that none is there
        self.tried_at_look = 0
        self.off = False
        self.ending = self.waited = self.agent_is_gone = False
        self.said_at = None  # when it was told what the end waits for
        self.limited = self.save_total_limit = None  # the arguments whose limit was lifted, and what it was
        self.at_epoch_end = False

    def begin(self, args, model, earlier=None):
        """`earlier`: a training that began with the same callback, and has not ended: an exception did it, or the Trainer began anew with
        smaller batches (auto_find_batch_size)."""
        if earlier is not None and earlier.limited is args:
            args.save_total_limit = earlier.save_total_limit
        if self.options.snapshot_dir:
            refused = _Snapshots.refusal(args, model)
            self.snapshots = None if refused else _Snapshots(self.options.snapshot_dir, self.output_dir)
            if refused and self.first:
                logger.warning("snapshot_dir is not used: %s; a checkpoint is saved where an evaluation is due", refused)
        if not self.first:
            return
        self._tell_direction(args)
        if self.snapshots is not None:
            self._safely(self._begin_snapshots)
        if earlier is not None and earlier.watch is not None:
            earlier.watch.end(self._FIRST_LOOK)
        if self.options.start:
            self._safely(self._start_agent, args, None if earlier is None else earlier.agent)
        self.watch = _Watch(self.output_dir, self.options.folder, self.options.poll_interval)
        self._safely(self._look_around)
        try:
            self.watch.start()
            self.watch.looked.wait(self._FIRST_LOOK)  # what lies there now is of an earlier training
        except RuntimeError as error:  # a limit of threads
            self.off = True
            logger.warning("%s: no results are taken up; they can be sent %s", error, self._later())
        if self.loggers.handler is None:
            logger.warning("the Trainer's other callbacks were not found: results go to state.log_history alone")
        if self.loggers.left_out():
            logger.warning("%s: no results are handed to it: of several ranks on_log would be called on the first one alone, where it would wait for"
                           " ever if it asks the others; one that does not ask them says so by an attribute, logs_on_first_rank = True",
                           ", ".join(self.loggers.left_out()))  # fmt: skip

    def _look_around(self):
        self.names_before = set(os.listdir(self.output_dir)) if os.path.isdir(self.output_dir) else set()
        self.agent_was_here = self.watch.has_folder()
        if self.agent_was_here or self.start_step:  # else the first checkpoint is what it begins with
            self.could_show_since = time.monotonic()

    def _begin_snapshots(self):
        """A folder that is not ours is never written to. All ranks go on as if it were: this one says why nothing is written."""
        try:
            self.snapshots.begin(self.start_step)
        except OSError as error:
            self.snapshots.unusable = str(error)
            raise

    def _start_agent(self, args, earlier):
        """`earlier`: of the training before. What it was told may be of another folder or metric; two do not work in one folder."""
        options, flags = self.options, []
        if options.config:
            flags += ["--config", os.fspath(options.config)]
        if options.tasks:
            flags += ["--tasks", options.tasks if isinstance(options.tasks, str) else ",".join(options.tasks)]
        if options.data:
            flags += ["--data", os.path.abspath(os.fspath(options.data))]
        if options.eval_device:
            flags += ["--device", options.eval_device]
        agent = _Agent(options.evalcar, self.output_dir, flags, _agent_settings(args, options.eval_steps, options.snapshot_dir, options.settings))
        if earlier is not None and not earlier.ended():
            if earlier.command == agent.command:
                self.agent = earlier
                return
            if earlier.output_dir == agent.output_dir:
                earlier.stop()
        agent.start()
        self.agent = agent
        logger.info("evalcar was started (process %d, log %s)", agent.process.pid, agent.log)

    def _end_agent(self):
        """It is ended when nothing is left to evaluate; else it goes on, and ends by itself."""
        said = self.agent.ended()
        if said:
            self._tell("%s", said)
        elif self._pending():
            logger.info("evalcar (process %d) evaluates what is left, and ends with this process or after it", self.agent.process.pid)
        else:
            self.agent.stop()

    def _end_snapshots(self):
        """Nobody takes them any more: those that are over, or all of them, if the agent is gone."""
        agent_is_gone = self.watch.seen.age() >= self.options.stale_after or (self.agent is not None and self.agent.ended())
        left, pending = self.snapshots.steps(), self._pending(bool(agent_is_gone))
        for step in left:
            if step not in pending or agent_is_gone:
                self.snapshots.remove(step)
        lost = [str(step) for step in left if step in pending]
        if lost and agent_is_gone:
            self._tell("the weights of step %s are removed from %s: nobody takes them", ", ".join(lost), self.snapshots.folder)
        self.snapshots.forget_missed()
        try:
            os.rmdir(self.snapshots.folder)
        except OSError:  # some are left, or the agent removed it
            pass

    # -- events

    def step(self, args, state, control, parts):
        self.at_epoch_end = False
        due = bool(self.options.eval_steps) and state.global_step % self.options.eval_steps == 0
        taken = self.first and bool(self.watch.found)
        if taken:
            self._safely(self._take, args, state, control)  # a row of this step is not of these weights
        if self.first:
            self.at_end_of = (state.global_step, self.watch.seen)
            if self.agent is not None and self.watch.seen is not self.heard:
                self._safely(self._tell_warning)
        self._replace(args, state, control, due, parts)
        if self.first:
            is_told_more = self.awaits and self.watch.seen is not self.seen
            news = taken or self.watch.found or is_told_more or (self.unlogged and self.watch.looks > self.tried_at_look)
            if news:
                self._safely(self._take, args, state, control)
            if news and not self.several:
                self._decide(args, state, control)
        self._decide_before_save(args, state, control)

    def epoch(self, args, state, control, parts):
        self.at_epoch_end = True
        self._replace(args, state, control, False, parts)
        self._decide_before_save(args, state, control)
        epochs = getattr(state, "num_train_epochs", 0) or 0
        last = bool(epochs) and state.epoch is not None and round(state.epoch, 6) >= epochs
        self.ending = control.should_training_stop or last or 0 < state.max_steps <= state.global_step
        if self.ending and not control.should_save:
            self._wait(args, state, control)

    def _decide_before_save(self, args, state, control):
        """Where there are several ranks, on all of them: what is saved now has the Trainer delete all but the best checkpoint."""
        if not self.several or not control.should_save:
            return
        if self.first:
            self._safely(self._take, args, state, control)
        self._decide(args, state, control)

    def saved(self, args, state, control):
        step = state.global_step
        self.saved_steps.add(step)
        if self.first:
            seen = self._seen_before(step)
            self._safely(self._take, args, state, control)
            self._hand_over(step, state.epoch, seen)
            if self.snapshots is not None:
                self._safely(self.snapshots.remove, step)  # the checkpoint came after it
            self._safely(self._tell_places, args, step)  # its results may come when nobody is there any more
            logger.info("checkpoint-%d is handed over to evalcar", step)
            self._safely(self._tell_if_alone, args)
            self._safely(self._take, args, state, control)
        self._decide(args, state, control)
        if self.ending or (self.at_epoch_end and control.should_training_stop):
            self._wait(args, state, control)

    def end(self, args, state, control):
        if not self.waited:
            self._wait(args, state, control)
        if self.limited is args:
            args.save_total_limit = self.save_total_limit
        if not self.first:
            return
        if self.agent is not None:
            self._safely(self._end_agent)
        if self.snapshots is not None:
            self._safely(self._end_snapshots)
        self.watch.end()
        self._safely(self._take, args, state, control)
        if not self.watch.is_alive():  # what came since its last look
            self.watch.remember()
        if self.watch.marks:
            self._tell("what was logged could not be remembered in %s: it is logged again if the training is resumed", self.watch.marks_path)
        others = sum(not self._may_be_ours(row["global_step"]) for row, _, _ in self.held)
        if others:
            logger.info("%d results of checkpoints that this training did not save are not logged", others)

    # -- the Trainer's own evaluations

    def _replace(self, args, state, control, due, parts):
        """On every rank alike, but that the first one writes the snapshot. The first evaluation gets a checkpoint: before there is
        one the agent makes nothing in the output directory, and takes nothing."""
        if control.should_evaluate and self.replaces:
            control.should_evaluate = False
            due = True
        if not due or state.global_step in self.saved_steps:
            return
        if self.snapshots is None or control.should_save or not (self.saved_steps or self.start_step):
            control.should_save = True
        elif self.first and state.global_step not in self.handed:
            self._safely(self._write_snapshot, args, state, parts)

    def _write_snapshot(self, args, state, parts):
        step = state.global_step
        why_not = self.snapshots.write(step, parts.get("model"), parts.get("processing_class", parts.get("tokenizer")))
        if why_not:
            self.snapshots.miss(step, why_not)
            # At 1, 2, 4, 8, …: where every second one is missed, that is no news.
            first_of_many = self.snapshots.missed & (self.snapshots.missed - 1) == 0
            logger.log(logging.WARNING if first_of_many else logging.INFO, "step %d is not evaluated (%d so far): %s", step,
                       self.snapshots.missed, why_not)  # fmt: skip
            return
        self._hand_over(step, state.epoch)
        self._tell_places(args, step)
        logger.info("the weights of step %d are handed over to evalcar", step)

    def _seen_before(self, step):
        """The heartbeat as it was before this step was saved, if no earlier training can have a result of it: whatever was told since
        then is of these weights, though other callbacks of the save may have worked for long. Else None."""
        ended, seen = self.at_end_of
        if ended != step or step in self.handed or self.names_before is None or "checkpoint-%d" % step in self.names_before:
            return None
        is_silent = not seen.changes and self.agent_was_here  # an agent that begins may know more
        was_told = seen.evaluations(step) or seen.status.get("open_left_out") or any(row["global_step"] == step for row, _, _ in self.held)
        return None if is_silent or was_told else seen

    def _hand_over(self, step, epoch, seen=None):
        """`seen`: as of _seen_before(). What has come since then is taken, too. Rows of a step that was known before are held until the
        agent tells the weights of its new generation."""
        self.epochs[step] = epoch
        earlier = self.handed.get(step)  # its weights alone, which are the same
        seqs = [row["seq"] for row, _, then in self.held if row["global_step"] == step and then != step]
        before = (self._known_before(step), max(seqs, default=0)) if earlier is None else (earlier.before, earlier.seq)
        self.over.pop(step, None)
        self.handed[step] = save = _Save((seen or self.watch.seen).changes, *before)
        if seen and save.before is None:
            early = [("row", row, loggers) for row, loggers, _ in self.held if row["global_step"] == step]
            self.held = [each for each in self.held if each[0]["global_step"] != step]
            self.watch.found.extendleft(reversed(early))

    def _known_before(self, step):
        """(run, generation) of the newest that the agent had of this step when the step ended; None if nothing is known of one."""
        ended, seen = self.at_end_of
        evaluations = (seen if ended == step else self.watch.seen).evaluations(step)
        if evaluations:
            return (evaluations[0].get("run"), _generation_of(evaluations[0])) if _generation_of(evaluations[0]) else None
        # Of a long list the heartbeat tells a part.
        runs = [(row["seq"], row.get("run")) for row, _, then in self.held if row["global_step"] == step and then != step]
        return (max(runs, key=lambda each: each[0])[1], 1) if runs else None

    # -- results

    def _safely(self, work, *arguments):
        """What is wrong here does not end the training. Every cause is told once."""
        if self.off:
            return
        try:
            work(*arguments)
        except Exception as error:
            self._tell("%s: %s", type(error).__name__, error)

    def _tell(self, text, *values):
        if text % values not in self.told:
            self.told.add(text % values)
            logger.warning(text, *values)

    def _tell_warning(self):
        """The agent's: once, however its numbers change. Of one that was started here nobody reads the log."""
        self.heard = self.watch.seen
        warning = self.heard.warning()
        plain = warning.translate(str.maketrans("", "", "0123456789"))
        if warning and plain not in self.warned:
            self.warned.add(plain)
            logger.warning("evalcar warns: %s", warning)

    def _tell_if_alone(self, args):
        """Once for each time that no agent is there: what is saved is evaluated late then, or never."""
        now, seen = time.monotonic(), self.watch.seen
        if self.could_show_since is None:
            self.could_show_since = now
        patience = max(self.options.stale_after, _SHOWS_ITSELF) + 2 * self.watch.poll_interval  # its age is as of the last look
        ended = self._own_end()
        is_alone = bool(ended) or (seen.age() >= patience and now - self.could_show_since >= patience)
        if is_alone and not self.is_alone:
            options = " --set publish.dir=%s" % shlex.quote(os.path.abspath(os.fspath(self.options.folder))) if self.options.folder else ""
            replaces = self.replaces and getattr(args, "eval_strategy", "no") != "no"
            logger.warning("%s%s: nobody evaluates what is saved%s. The agent's heartbeat is looked for in %s; it is started by: evalcar run %s%s",
                           ended or seen.describe(), "; " + self.watch.trouble if self.watch.trouble else "",
                           ", and the Trainer's own evaluations are replaced" if replaces else "", seen.path,
                           shlex.quote(os.path.abspath(os.fspath(self.output_dir))), options)  # fmt: skip
        self.is_alone = is_alone

    def _later(self):
        return "later: evalcar push --output-dir %s" % self.output_dir

    def _take(self, args, state, control):
        """Takes what the thread found, and logs it."""
        self.seen = self.watch.seen  # before the rows: those that it speaks of were found before it
        rows = []
        while self.watch.found:
            what, *found = self.watch.found.popleft()
            if what == "row":
                rows.append(found)
            elif what == "trouble":
                logger.info("%s; it is tried again in %g s", found[0], self.watch.poll_interval)
            elif what == "unwritten":
                self._tell("%s: what was logged cannot be remembered now; it is tried again", found[0])
            else:
                self.off = True
                logger.warning("%s, for %g minutes: no more results are taken up; they can be sent %s", found[0], _PATIENCE / 60, self._later())
        replaced = _replaced_in([row for row, _ in rows])
        for row, loggers in rows:
            save = self.handed.get(row["global_step"])
            if save is not None and save.before is None:
                self._receive(row, loggers, state, replaced)
            else:
                self.held.append((row, loggers, self.at_end_of[0]))
        self._release(state)
        self._note_ended()
        self._log(args, state, control)

    def _note_ended(self):
        """Those that are over, for when the heartbeat says no more of them."""
        if self.seen is self.noted:
            return
        self.noted = self.seen
        rows = [row for row in self.seen.rows() if type(row.get("step")) is int]
        is_open = {row["step"] for row in rows if row["state"] not in _ENDED}
        for step in {row["step"] for row in rows} & set(self.handed) - (set(self.over) - is_open):
            evaluations = self._evaluations(step)
            if self._is_over(step, evaluations):
                self.over[step] = _why(evaluations)
            else:
                self.over.pop(step, None)

    def _release(self, state):
        """Takes those of the rows that are held which are of this training's weights, as the heartbeat tells them. A row of an earlier
        save is one where that had the same ones: they are not measured again, and other places than that training's lack it."""
        ours = [each for each in self.held if self._is_ours(*each)]
        self.awaits = len(ours) < sum(self._may_be_ours(row["global_step"]) for row, _, _ in self.held)
        if not ours:
            return
        replaced = _replaced_in([row for row, _, _ in self.held])
        self.held = [each for each in self.held if not any(each is one for one in ours)]
        for row, loggers, _ in sorted(ours, key=lambda each: each[0]["seq"]):
            kept = ()
            if row["global_step"] in self.handed:  # whoever has it has it of that training
                kept = [name for name in loggers if name in self.places and self.watch.places_before.get(name) == self.places[name]]
                loggers = ()
            self._receive(row, loggers, state, replaced, kept)

    def _may_be_ours(self, step):
        """Of a step that this training saved, or was resumed behind."""
        return step in self.handed or step <= self.start_step

    def _is_ours(self, row, loggers, then):
        step, weights = row["global_step"], _weights_of(row)
        save = self.handed.get(step)
        if save is None and step <= self.start_step:
            return _is_of_last_save(row, self.watch.saves_before, self.seen.evaluations(step, row["checkpoint_type"]))
        if save is None or save.before is None:
            return False
        evaluations = [each for each in self.seen.evaluations(step) if save.is_of_it(each)]
        came_since = then is not None and then >= step
        if weights is not None and any(_weights_of(each) == weights for each in evaluations):
            return True
        # An older agent's, or the heartbeat tells a part of a long list.
        is_untold = any(each.get("state") == "published" and _weights_of(each) is None for each in evaluations)
        is_left_out = not self.seen.evaluations(step) and bool(self.seen.status.get("evaluations_left_out"))
        return came_since and (is_untold or is_left_out)

    def _receive(self, row, loggers, state, replaced, have=()):
        """`replaced`: of _replaced_in(), by those that came with it. `loggers`: that were given it by this training, before it was resumed;
        `have`: those that need it no more."""
        step = row["global_step"]
        self.results.setdefault(step, []).append((row["checkpoint_type"], str(row.get("time", "")), _tasks_of(row)))
        self.weights.setdefault(step, set()).add(_weights_of(row))
        if self.scores is not None:
            self.scores.take(row)
            self._check_metric(row)
        left = _left_of(row, replaced)
        if loggers or self._in_history({**row, "metrics": left or row["metrics"]}, state):
            self.logged_seqs.add(row["seq"])
            return
        if row["metrics"] and not left:
            self.watch.marks.append(_mark(row, ()))
            return
        row = {**row, "metrics": left}
        correction = " (a correction)" if row.get("supersedes") in self.logged_seqs else ""
        logger.info("checkpoint-%d, %s: %s%s", step, row["checkpoint_type"], _in_words(row["metrics"]), correction)
        for name, why in sorted(row["missing"].items() if isinstance(row.get("missing"), dict) else ()):
            logger.info("checkpoint-%d: no %s: %s", step, name, why)
        if row["metrics"]:
            self.unlogged.append([row, self.loggers.names(), list(have)])

    def _check_metric(self, row):
        """A name that no task gives is told with the first result, not at the end of a long training."""
        whole = row.get("checkpoint_type") == "regular" and row.get("final", True) and row["metrics"] and not row.get("missing")
        if self.metric_is_checked or not whole or "ema" in self.scores.wanted:
            return
        self.metric_is_checked = True
        if self.replaces and not self.scores.of:
            self._tell("no result has %s (metric_for_best_model), so no best checkpoint can be chosen by it; the results have %s",
                       self.scores.wanted, ", ".join(sorted(row["metrics"])))  # fmt: skip

    def _in_history(self, row, state):
        """_evalcar/ may have been deleted, and the trainer's state may know it all the same."""
        entries = (entry for entry in state.log_history if entry.get("step") == row["global_step"])
        return bool(row["metrics"]) and any(all(entry.get(name) == value for name, value in row["metrics"].items()) for entry in entries)

    def _log(self, args, state, control):
        """Each row to each of its loggers; what fails is tried again at the next look."""
        self.tried_at_look = self.watch.looks
        left = []
        for row, names, have in self.unlogged:
            for name in [name for name in names if name not in have]:
                if self.failures[name] >= self._LOGGER_PATIENCE:
                    continue
                try:
                    self.loggers.log(name, row, self._epoch_of(row["global_step"], state), args, state, control)
                    have.append(name)
                    self.failures[name] = 0
                except Exception as error:  # a logger's trouble is not the training's
                    self.failures[name] += 1
                    self._tell("%s: %s: %s", name, type(error).__name__, error)
                    if self.failures[name] == self._LOGGER_PATIENCE:
                        logger.warning("%s is given no more results; they can be sent %s", name, self._later())
            if any(name not in have and self.failures[name] < self._LOGGER_PATIENCE for name in names):
                left.append([row, names, have])
                continue
            self.logged_seqs.add(row["seq"])
            self.watch.marks.append(_mark(row, have))
            self.watch.hurry()
        self.unlogged = left

    def _tell_places(self, args, step):
        self.places = self.loggers.places(args) or self.places
        if self.places:
            after = self.handed[step].seq
            self.watch.marks.append({"places": self.places, "global_step": step, "after": after, "resumed_from": self.start_step})
            self.watch.hurry()  # should this process be killed, it is known where its results belong

    def _epoch_of(self, step, state):
        if step in self.epochs or not state.epoch or not state.global_step:
            return self.epochs.get(step, state.epoch)
        return state.epoch * step / state.global_step

    # -- the best checkpoint, and when to stop

    def _decide(self, args, state, control):
        """On every rank alike: what the first one knows."""
        decision = self._agree(self._at_first(self._decision, args, state))
        if decision is None:
            return
        best, stop = decision
        if best is not None:  # else it is what it was, until the end is there
            state.best_global_step, state.best_metric, state.best_model_checkpoint = best
        if stop and not control.should_training_stop:
            control.should_training_stop = True
            if self.first:
                step = self.scores.ranked()[0]
                logger.info("training stops early: too little was gained lately (the best score: %.6g of step %d)", self.scores.of[step], step)

    def _decision(self, args, state):
        """(the best checkpoint that is there, whether it is time to stop); None while nothing is known."""
        if self.scores is None or not self.scores.of:
            return None
        greater = _direction_in(self.watch.best, args.metric_for_best_model)
        if greater is not None and not _is_told_less(args):
            self.scores.greater = greater
            self._tell_direction(args)
        others = self.scores.passed_over()
        if others:
            self._tell("%d scores, the last of step %d, are of other settings than the newest one: they are not ranked with it",
                       len(others), others[-1])  # fmt: skip
        return self._best_there(args, state), self._is_time_to_stop()

    def _tell_direction(self, args):
        if self.scores is not None and args.greater_is_better and not self.scores.greater:
            self._tell("of %s (metric_for_best_model) the lower score is taken for the better one, although greater_is_better is True, as"
                       " transformers sets it for every name that does not end in \"loss\"", args.metric_for_best_model)  # fmt: skip

    def _best_there(self, args, state):
        """(step, score, folder) of the best checkpoint that the Trainer has: it is the one that its retention must spare. Weights
        that were measured alone (snapshot_dir) are no checkpoint of its, however good they were. None: it is what it was, while one that
        was the best with other settings waits to be measured with the newest."""
        for step in self.scores.passed_over():
            was_best = state.best_model_checkpoint == os.path.join(args.output_dir, "checkpoint-%d" % step)
            if was_best and any(row.get("state") not in _ENDED for row in self.watch.seen.evaluations(step)):
                return None
        for step in self.scores.ranked():
            folder = os.path.join(args.output_dir, "checkpoint-%d" % step)
            if os.path.isdir(folder):
                return step, self.scores.of[step], folder
        return None

    def _is_time_to_stop(self):
        patience, threshold = self.options.early_stopping_patience, self.options.early_stopping_threshold
        theirs = next((each for each in getattr(self.loggers.handler, "callbacks", ()) if _is_a(each, "EarlyStoppingCallback")), None)
        if theirs is not None and patience is None:
            patience, threshold = theirs.early_stopping_patience, theirs.early_stopping_threshold or 0.0
        if patience is None:
            return False
        count = self.scores.since_improvement(threshold)
        if theirs is not None:
            theirs.early_stopping_patience_counter = count
        return count >= patience

    def _at_first(self, work, *arguments, otherwise=None):
        """What it gives on the first rank; whatever is wrong there, the other ranks do not wait for ever."""
        if self.first:
            try:
                return work(*arguments)
            except Exception as error:
                self._tell("%s: %s", type(error).__name__, error)
        return otherwise

    def _agree(self, value):
        if not self.several:
            return value
        import torch.distributed

        box = [value]
        torch.distributed.broadcast_object_list(box, src=0)
        return box[0]

    # -- the end

    def _wait(self, args, state, control):
        """Until every checkpoint that was handed over has its scores, or there is no hope for them. The other ranks wait for
        the first in short turns: no collective of theirs runs into its time-out."""
        self.waited = True
        interval, started, standstill = self.options.poll_interval, time.monotonic(), _Standstill()
        if self.first:
            self.watch.poll_interval, self.watch.patient = min(interval, self._TURN), True
        while not self._agree(self._at_first(self._wait_a_turn, args, state, control, started, standstill, otherwise=True)):
            pass
        self._decide(args, state, control)
        if args.load_best_model_at_end:
            self._place_best(args, state)
        if self.first:
            self.watch.poll_interval = interval

    def _wait_a_turn(self, args, state, control, started, standstill):
        """Whether that is the end."""
        looks = self.watch.looks
        self.watch.hurry()
        until = time.monotonic() + self._TURN
        while self.watch.looks < looks + 1 and self.watch.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        self._safely(self._take, args, state, control)
        standstill.look(self.watch.seen, time.monotonic())
        if self._has_ended(started, standstill):
            return True
        self._safely(self._tell_warning)
        if self.said_at is None or time.monotonic() - self.said_at >= SAY_AGAIN_AFTER:
            self.said_at = time.monotonic()
            warning = self.watch.seen.warning()
            logger.info("training is over; waiting for %s%s", "; ".join(self._pending().values()), warning and "; evalcar warns: " + warning)
        time.sleep(self._TURN / 2)
        return False

    def _pending(self, agent_is_gone=False):
        """{step: in words}, of those whose scores may come yet. An agent that was killed did not tell of its last ones: its rows do."""
        found, told = {}, set()
        # Of a long list the heartbeat tells the newest of those that ended; an agent that begins anew tells none.
        is_short = bool(self.seen.status.get("evaluations_left_out")) and not self.seen.status.get("open_left_out")
        for step in sorted(self.handed):
            evaluations = self._evaluations(step)
            if self._is_over(step, evaluations, agent_is_gone):
                continue
            if not evaluations and (step in self.results or (step in self.over and is_short) or self._is_missed(step)):
                continue
            waits = self._open(evaluations, agent_is_gone)
            states = ", ".join(self._state_of(row, told) for row in waits)
            nothing = "its result is not there yet" if evaluations else "the agent has told nothing of it yet"
            found[step] = "step %d (%s)" % (step, states or nothing)
        return found

    def _open(self, evaluations, agent_is_gone):
        return [row for row in evaluations if row.get("state") not in _ENDED and not (agent_is_gone and self._has_result(row))]

    def _is_over(self, step, evaluations, agent_is_gone=False):
        """Whether evaluations are told of this step, and none of them will give another number."""
        save = self.handed[step]
        is_news = save.before is not None or self.seen.changes > save.changes or (agent_is_gone and step in self.results)
        is_unread = save.before and self._is_unread(step, evaluations)
        return bool(evaluations) and not self._open(evaluations, agent_is_gone) and is_news and not is_unread

    def _evaluations(self, step):
        """What the agent tells of the checkpoint that this training saved."""
        return [row for row in self.seen.evaluations(step) if self.handed[step].is_of_it(row)]

    def _is_unread(self, step, evaluations):
        """Whether a row of what is published may come yet, by two later states at the latest: a file server may show them out of turn."""
        published = (_weights_of(row) for row in evaluations if row.get("state") == "published" and not row.get("requested"))
        if set(published) <= self.weights.get(step, set()) | {None}:
            return False
        return self.seen.changes < self.unread.setdefault(step, self.seen.changes) + 2

    @staticmethod
    def _state_of(evaluation, told):
        """In words; a reason that was `told` is not told again."""
        progress, reason = _number(evaluation.get("progress")), _reason_of(evaluation)
        text = str(evaluation.get("state")) + (" %.0f %%" % (100 * progress) if progress else "")
        if reason and reason not in told:
            told.add(reason)
            text += ": " + reason
        return text

    def _has_result(self, evaluation):
        """Whether there is a row that is newer than what the heartbeat says."""
        kind, since, tasks = evaluation.get("checkpoint_type"), evaluation.get("updated_at"), evaluation.get("tasks")
        if evaluation.get("requested") or not isinstance(tasks, list) or not isinstance(since, str):
            return False  # of the same tasks as another one, with other settings
        rows = self.results.get(evaluation["step"], ())
        return any(kind == of and time >= since and set(map(str, tasks)) <= names for of, time, names in rows)

    def _is_missed(self, step):
        """Whether its checkpoint was removed before the agent knew of it: it is not there, and two later states do not tell it."""
        place = "" if self.snapshots is None else self.snapshots.place_of(step)
        if os.path.isdir(os.path.join(self.output_dir, "checkpoint-%d" % step)) or os.path.isdir(place):
            self.removed.pop(step, None)
            return False
        if self.seen.status.get("open_left_out"):
            return False  # of a long backlog it tells a part: this step may be of the rest
        return self.seen.changes >= self.removed.setdefault(step, self.seen.changes) + 2

    def _has_ended(self, started, standstill):
        pending, seen = self._pending(), self.seen
        if pending and not self.off and self.watch.is_alive():
            gone = self._gone()
            over = self.options.timeout is not None and time.monotonic() - started >= self.options.timeout
            is_silent = seen.age() >= self.options.stale_after
            stuck = "" if self.options.stuck_after is None or standstill.seconds < self.options.stuck_after else self._hindrance(pending)
            if not (over or gone or is_silent or stuck):
                return False
            why = gone or ("%g s are over" % self.options.timeout if over else seen.describe() if is_silent else stuck)
            why += "; " + self.watch.trouble if self.watch.trouble else ""
            pending = self._pending(agent_is_gone=True)
            if pending:
                self._tell("%s: no result of %s; they can be sent %s", why, "; ".join(pending.values()), self._later())
        for step in sorted(set(self.handed) - set(pending)):
            why = _why(self._evaluations(step)) or self.over.get(step, "")
            if not why and step in self.removed:
                why = "its checkpoint was removed before evalcar knew of it"
            if why and step not in self.results:
                self._tell("no result of step %d: %s", step, why)
        return self.off or not self.unlogged  # what a logger refuses is given up after some tries

    def _hindrance(self, steps):
        """Why the agent measures nothing, if it says that something is wrong; "" where the steps may be waiting for their turn."""
        seen = self.seen
        told = [self._evaluations(step) for step in steps]
        waits = [row for rows in told for row in rows if row.get("state") not in _ENDED]
        left_out = bool(seen.status.get("open_left_out")) and not all(told)
        if any(row.get("state") == "failed" and row.get("next_try_at") for row in waits):
            return ""  # a pause between two tries may be long, whatever else is warned of
        if not seen.warning() and (left_out or not all(map(_is_hindered, waits))):
            return ""
        return "evalcar has measured nothing for %g s%s" % (self.options.stuck_after, seen.warning() and ", and warns: " + seen.warning())

    def _own_end(self):
        """How the agent that was started here ended, unless another one is at work."""
        said = self.agent.ended() if self.agent is not None else ""
        return said if said and self.watch.seen.agent().get("pid", self.agent.process.pid) == self.agent.process.pid else ""

    def _gone(self):
        """The same, told at the second look, which sees its last rows."""
        said = self._own_end()
        if not said:
            return ""
        first, self.agent_is_gone = not self.agent_is_gone, True
        return "" if first else said

    def _place_best(self, args, state):
        """Where the best checkpoint is: its folder, or, if retention took it, the weights that the agent kept. Else the next."""
        place = self._agree(self._at_first(self._best_place, args))
        if place is None:
            return
        state.best_global_step, state.best_metric, state.best_model_checkpoint = place
        # With a limit of one the Trainer would now delete every checkpoint but the best: all of them, where that is kept elsewhere.
        if args.save_total_limit == 1 and os.path.dirname(os.path.abspath(place[2])) != os.path.abspath(args.output_dir):
            self.limited, self.save_total_limit, args.save_total_limit = args, args.save_total_limit, None

    def _best_place(self, args):
        """(step, score, folder) of the best checkpoint that can be loaded; None if there is none. Waits for best.json."""
        if self.scores is None:
            return None
        patience = time.monotonic() + 10
        ranked = self.scores.ranked()
        # best.json is written after the last row.
        while ranked and not self._place_of(args, ranked[0]) and not self._kept_of(ranked[0]) and self._may_be_kept() and time.monotonic() < patience:
            self.watch.hurry()
            time.sleep(0.1)
        places = ((step, self.scores.of[step], self._place_of(args, step)) for step in ranked)
        place = next((each for each in places if each[2] is not None), None)
        if not ranked and not self.replaces:
            pass  # the Trainer chose by its own evaluations
        elif not ranked:
            self._tell("no result has %s (metric_for_best_model): no best checkpoint is loaded for it", args.metric_for_best_model)
        elif place is None or place[0] != ranked[0]:
            instead, kept = "none is loaded" if place is None else "that of step %d is loaded" % place[0], self._kept_of(ranked[0])
            if kept:
                self._tell("of the best checkpoint, of step %d, only the weights are left (%s), of which DeepSpeed and FSDP load none; %s",
                           ranked[0], kept, instead)  # fmt: skip
            else:
                self._tell("the best checkpoint, of step %d, is on disk no more (publish.keep_best = %s, publish.metric_for_best_model = %s); %s",
                           ranked[0], self.watch.seen.agent().get("keep_best"), self.watch.seen.agent().get("metric_for_best_model"),
                           instead)  # fmt: skip
        return place

    def _may_be_kept(self):
        return self.watch.is_alive() and self.watch.seen.agent().get("keep_best") != 0

    def _kept_of(self, step):
        """The weights of this step that the agent has kept; None if it has not."""
        best = self.watch.best.get("best")
        best = best.get("regular") if isinstance(best, dict) else None
        kept = best.get("kept_path") if isinstance(best, dict) and best.get("step") == step else None
        return kept if isinstance(kept, str) and os.path.isdir(kept) else None

    def _place_of(self, args, step):
        folder = os.path.join(args.output_dir, "checkpoint-%d" % step)
        if os.path.isdir(folder):
            return folder
        kept = self._kept_of(step)
        return kept if kept and _is_loadable(args, kept) else None


# ---- afterwards: evalcar push -------------------------------------------------------------------------------------------------


def _push_arguments(arguments):
    parser = argparse.ArgumentParser(prog="evalcar push", description="Sends results that the training no longer logged to TensorBoard and W&B.")
    parser.add_argument("--output-dir", required=True, help="of the training")
    parser.add_argument("--folder", help="where the agent publishes, if publish.dir is set")
    parser.add_argument("--since", type=int, default=0, metavar="SEQ", help="only rows with a higher seq")
    parser.add_argument("--tensorboard", metavar="DIR", help="of the event files; default: where the training logged")
    parser.add_argument("--wandb", metavar="ENTITY/PROJECT/RUN", help="default: the run to which the training logged")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be sent")
    return parser.parse_args(arguments)


def _send_to_tensorboard(place, rows):
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        from tensorboardX import SummaryWriter
    with SummaryWriter(log_dir=place) as writer:
        for row in rows:
            _to_summary_writer(writer, row)


def _send_to_wandb(place, rows):
    import wandb

    entity, project, run_id = (["", ""] + place.split("/"))[-3:]
    run = wandb.init(entity=entity or None, project=project or None, id=run_id, resume="allow")
    defined = set()
    for row in rows:
        _to_wandb_run(run, row, defined)
    run.finish()


def _belongs(row, name, marks, heartbeat):
    """Whether it is of a checkpoint of the training that logged last: one that it saved, or was resumed behind."""
    step = row["global_step"]
    if not marks.saves:  # an older version's
        return True
    places, _ = marks.saves.get(step, ({}, 0))
    is_here = step <= marks.resumed_from or places.get(name) == marks.places.get(name)
    return is_here and _is_of_last_save(row, marks.saves, heartbeat.evaluations(step, row["checkpoint_type"]))


def push(arguments):
    """Sends what is in metrics.jsonl and was not handed over yet. The exit code: 0 sent, 1 failed, 2 nowhere to send it, 3 nothing."""
    options = _push_arguments(arguments)
    marks = _Marks(_folder_of(options.output_dir, options.folder))
    try:
        heartbeat = Heartbeat(options.output_dir, options.folder)
        heartbeat.look()
        logged, rows = marks.read(), Reader(options.output_dir, folder=options.folder).poll()
    except (OSError, ValueError) as error:
        print("evalcar push: %s" % error, file=sys.stderr)
        return 1
    replaced = _replaced_in(rows)
    rows = [{**row, "metrics": _left_of(row, replaced)} for row in rows if row["seq"] > options.since]
    rows = [row for row in rows if row["metrics"]]
    places = {name: getattr(options, name) or marks.places.get(name) for name in ("tensorboard", "wandb")}
    is_named = bool(options.tensorboard or options.wandb)
    if is_named:  # those alone
        places = {name: getattr(options, name) for name in places}
    places = {name: place for name, place in places.items() if place}
    if rows and not places:
        print("evalcar push: the training logged to neither TensorBoard nor W&B: name the place by --tensorboard or --wandb", file=sys.stderr)
        return 2
    code, others = 3, 0
    for name, place in sorted(places.items()):
        late = [row for row in rows if name not in logged.get(_key_of(row), ())]
        theirs = [] if is_named else [row for row in late if not _belongs(row, name, marks, heartbeat)]
        late, others = [row for row in late if row not in theirs], max(others, len(theirs))
        for row in late:
            print("%s %s: step %d, %s: %s" % (name, place, row["global_step"], row["checkpoint_type"], _in_words(row["metrics"])))
        if not late or options.dry_run:
            code = 0 if late and code == 3 else code
            continue
        try:
            {"tensorboard": _send_to_tensorboard, "wandb": _send_to_wandb}[name](place, late)
            marks.append([_mark(row, [name]) for row in late])
            code = 0 if code == 3 else code
        except Exception as error:  # one place in trouble does not keep the other from its rows
            print("evalcar push: %s: %s: %s" % (name, type(error).__name__, error), file=sys.stderr)
            code = 1
    if others:
        print("%d results are of checkpoints that the last training here did not save; to send them all the same, name the place by"
              " --tensorboard or --wandb" % others, file=sys.stderr)  # fmt: skip
    elif code == 3:
        print("nothing to send: every result of %s was logged" % options.output_dir, file=sys.stderr)
    return code


if __name__ == "__main__":
    if sys.argv[1:2] != ["push"]:
        sys.exit("usage: %s push --output-dir DIR ..." % sys.argv[0])
    sys.exit(push(sys.argv[2:]))
