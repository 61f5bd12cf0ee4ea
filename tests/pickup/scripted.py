"""An agent of files alone: it writes status.json and metrics.jsonl, and says what it is told to say."""

import json
import os
import pathlib
import threading

ANLS = "eval/docvqa_val/anls"


class ScriptedAgent:
    """In a `with` its heart beats, ten times a second, once the first checkpoint is there. `agent` is the member of that name of its
    status, `rows` are the evaluations by step; `more` are other members."""

    def __init__(self, run):
        self.run = pathlib.Path(run)
        self.folder = self.run / "_evalcar"
        self.agent = {"pid": 1, "state": "running"}
        self.rows, self.more = {}, {}
        self.is_silent = False
        self.seq = self.beats = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._live)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()

    def _live(self):
        while not self._ends.wait(0.1):
            if not self.is_silent and any(self.run.glob("checkpoint-*")):
                self.beat()

    def beat(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.beats += 1
        status = {"agent": self.agent, "evaluations": list(self.rows.values()), "time": f"beat {self.beats}", **self.more}
        scratch = self.folder / "status.json.tmp"
        scratch.write_text(json.dumps(status))
        os.replace(scratch, self.folder / "status.json")

    def row(self, step, state, reason=None, progress=0.0, **more):
        """What the next heartbeat says of this step."""
        self.rows[step] = {"step": step, "checkpoint_type": "regular", "state": state, "reason": reason, "progress": progress, "generation": 1,
                           "evaluation_id": step, "tasks": ["docvqa_val"], "updated_at": "2026-01-01T00:00:00Z", **more}  # fmt: skip

    def publish(self, step, value, metric=ANLS, **more):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.seq += 1
        row = {"seq": self.seq, "run": "r", "global_step": step, "checkpoint_type": "regular", "final": True, "metrics": {metric: value},
               "evaluation": f"{self.seq:016x}", "time": "2026-01-01T00:00:01Z", **more}  # fmt: skip
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.row(step, "published", progress=1.0)
