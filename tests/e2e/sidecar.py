"""Runs `evalcar run` beside a test and looks at what it says and writes."""

import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import time


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


class Sidecar:
    """One agent on one output directory. Environment and arguments can be added; `log` is its standard error."""

    def __init__(self, bin_dir, home, run, *, tasks="docvqa_val", evaluator=None, arguments=(), environment=None):
        self.evalcar = str(bin_dir / "evalcar")
        self.home = pathlib.Path(home)
        self.run = pathlib.Path(run)
        self.database = self.home / "state.db"
        self.log_path = self.home / "agent.log"
        self.environment = dict(os.environ, EVALCAR=self.evalcar, XDG_STATE_HOME=str(self.home / "state"), **(environment or {}))
        if evaluator:
            self.environment["EVALCAR_EVALUATOR"] = str(evaluator)
        self.command = [self.evalcar, "run", str(run), "--tasks", tasks, "--set", f"store.path={self.database}",
                        "--set", "limits.retry_delay=100ms", *arguments]
        self.process = None

    def start(self, *arguments):
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen([*self.command, *arguments], stderr=log, stdout=log, env=self.environment)
        return self

    def once(self, *arguments, timeout=600):
        """Runs until everything is done; returns the exit code."""
        self.start("--once", *arguments)
        return self.wait(timeout)

    def wait(self, timeout=300):
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError("evalcar did not end:\n" + self.log()) from None

    def stop(self, timeout=120):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def children(self):
        pid = self.process.pid
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def evaluators(self):
        """The children that evaluate: a look at the tasks' data is a child of its own, which may outlast the first result."""
        commands = {child: command_of(child) for child in self.children()}
        return [child for child, command in commands.items() if command and b"\0check\0" not in command]

    def handles_sigterm(self):
        """A process that has only just begun is ended by the signal itself."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigCgt:", "SigBlk:"))]
        return any(mask >> (signal.SIGTERM - 1) & 1 for mask in masks)

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def query(self, sql):
        if not self.database.exists():
            return []
        connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=10)
        try:
            return connection.execute(sql).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error) and "unable to open" not in str(error):  # not: made just now
                raise
            return []
        finally:
            connection.close()

    def states(self):
        """{(step, kind): (state, reason)} of the newest generation."""
        rows = self.query("SELECT step, checkpoint_type, state, reason FROM evaluations ORDER BY evaluation_id")
        return {(step, kind): (state, reason) for step, kind, state, reason in rows}

    def wait_for(self, condition, timeout=300, what="the condition"):
        """Polls until condition(self) is true; returns the seconds it took."""
        start = time.monotonic()
        while time.monotonic() - start < timeout:
            if condition(self):
                return time.monotonic() - start
            assert self.process.poll() is None, "evalcar ended early:\n" + self.log()
            time.sleep(0.02)
        raise AssertionError(f"{what} did not come in {timeout} s; states {self.states()}; log:\n{self.log()}")

    def published(self):
        return {key for key, (state, _) in self.states().items() if state == "published"}

    def metrics_lines(self):
        path = self.run / "_evalcar" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
