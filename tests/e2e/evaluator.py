"""The real evalcar-evaluator, spoken to as the agent speaks to it."""

import json
import os
import socket
import subprocess


class Evaluator:
    """One process. `heard`: all its messages so far."""

    def __init__(self, bin_dir, *arguments, environment=None, log=subprocess.DEVNULL):
        ours, theirs = socket.socketpair()
        with theirs:
            command = [str(bin_dir / "evalcar-evaluator"), "--fd", str(theirs.fileno()), "--device", "cpu", *arguments]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=log, stderr=log,
                                            env=dict(os.environ, **(environment or {})))  # fmt: skip
        ours.settimeout(120)  # a net: nothing here takes so long
        self.socket = ours
        self.lines = ours.makefile("r", encoding="utf-8")
        self.heard = []
        self.wait_for("hello")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lines.close()
        self.socket.close()
        self.process.wait(60)

    def say(self, kind, **message):
        self.socket.sendall((json.dumps({"type": kind, **message}) + "\n").encode())

    def wait_for(self, *kinds, where=lambda message: True):
        """The next message of one of these kinds for which `where` holds. An error is never passed over."""
        for line in self.lines:
            message = json.loads(line)
            self.heard.append(message)
            if message["type"] in kinds and where(message):
                return message
            assert message["type"] != "error", message
        raise AssertionError(f"the evaluator ended; it said {self.heard[-5:]}")

    def load(self, folder, job="1"):
        self.say("load", id=job, dir=str(folder), weights="regular", dtype="auto", base_model="")
        return self.wait_for("loaded")

    def evaluate(self, data, tasks, job="1", series="", **settings):
        given = dict(tasks=tasks, data_dir=str(data), tasks_dir="", limit=None, offset=0, batch_size=0, max_new_tokens=4,
                     max_pixels=1605632, min_pixels=3136, attn_implementation="", compat="lmms-eval", gen_kwargs="",
                     num_fewshot=None, seed=0, bootstrap_iters=100)  # fmt: skip
        self.say("evaluate", id=job, series=series, settings={**given, **settings})

    def tick(self):
        """The last that was told."""
        return next(message["tick"] for message in reversed(self.heard) if message["type"] == "progress")
