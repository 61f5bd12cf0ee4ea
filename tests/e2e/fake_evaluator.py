#!/usr/bin/python3 -IS
"""An evaluator without a model, for tests of the agent: it speaks the protocol, hashes the weights for real, and misbehaves
where FAKE_EVALUATOR (a JSON file, read anew at each step) says so.

    {"samples": 6, "delay": 0.0, "log": "FILE", "die_at_sample": 3, "die_once": "FILE", "garbage": true, "hang": true,
     "error": {...}, "hello": {...}, "refuse": "text", "failing_tasks": {"textvqa_val": "why: its data are not there"},
     "broken_data": {"textvqa_val": "why: they are there"}, "data": {"textvqa_val": "their version"},
     "broken_tasks": {"textvqa_val": "why: the evaluator cannot do it"}, "prompts": {"docvqa_val": "another"},
     "at_sample": {"doc": 3, "once": "FILE", "do": "die|hang|wait|beat|say|error|flood|fork", …}, "values": {"docvqa_val": null},
     "values_of_steps": {"500": 0.7}, "load_after": "FILE", "check_delay": 0.0,
     "flags": {"docvqa_val": ["all 6 answers are the same"]}, "devices": {…}, "interim_least": 20, "pictures": {"0": ["<64 hex>.jpg"]},
     "interim": {"weights_sha256": "0…"}}

Weights are read when the file `load_after` is there, if it is named.

Interim scores come where the agent asks for them, of parts with `interim_least` documents; `interim` overrides fields of these messages.

It is the device, too (`at_sample`, one or a list of them, when it comes to that document; `min_batch`: only where so many prompts go at once, 32 if nothing is
said of it; `once`: not again when the file is there; `print`: what it writes to standard error before):
    die      by "signal" (9), or with the exit code "exit"
    hang     says nothing any more; beat: says the same progress for ever
    wait     for the file "until", and goes on
    say      "bytes" (hexadecimal, "times" of them) go raw to the agent
    error    the message of that kind: {"error": {"kind": "device_fault", …}}; goes on after it if "goes_on" (a device that lies)
    eat      goes into the control group "cgroup" and takes memory until it is killed
    fork     starts a child that would outlive it, with its pid in the log; then it is as before

Answers are a function of the weights' hash, the task, its prompt and the document: whoever measures the same weights gets the
same numbers, so that a mislabelled result shows."""

import argparse
import hashlib
import json
import math
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time


def settings():
    path = os.environ.get("FAKE_EVALUATOR", "")
    if not path or not os.path.exists(path):
        return {}
    with open(path) as file:
        return json.load(file)


def prompt(task):
    return settings().get("prompts", {}).get(task, "")


def fingerprint(task):
    return hashlib.sha256(f"{task} {prompt(task)}".encode()).hexdigest()


def question(task):
    """What a task asks; a prompt that is another by the checkpoint's own template asks the same."""
    return hashlib.sha256(f"question {task} {settings().get('questions', {}).get(task, '')}".encode()).hexdigest()


def answer(sha256, task, doc_id):
    return hashlib.sha256(f"{sha256} {task} {doc_id}{prompt(task)}".encode()).hexdigest()[:8]


def data_of(task):
    """What the real one says of a task's data: (why they cannot be read, what changes with them)."""
    missing = settings().get("failing_tasks", {}).get(task, "")
    return missing, "" if missing else settings().get("data", {}).get(task, "v1")


def check(arguments):
    """The subcommand of that name."""
    parser = argparse.ArgumentParser()
    for name in ("--tasks", "--data", "--tasks-dir"):
        parser.add_argument(name, default="")
    tasks = parser.parse_args(arguments).tasks.split(",")
    if settings().get("log"):
        with open(settings()["log"], "a") as file:
            file.write("check\n")
    time.sleep(settings().get("check_delay", 0))
    found = [(task, *data_of(task)) for task in tasks]
    print(json.dumps({"tasks": [{"task": task, "error": error, "error_kind": "data" if error else "", "circumstances": version}
                                for task, error, version in found]}, separators=(",", ":")))  # fmt: skip
    return 1 if any(error for _, error, _ in found) else 0


def tell_of_birth(fake):
    """What the agent gave this process, in the log."""
    with open("/proc/self/oom_score_adj") as file:
        oom_score = file.read().strip()
    ranks = sorted(name for name in os.environ if name in ("RANK", "WORLD_SIZE", "LOCAL_RANK") or name.startswith("SLURM_"))
    fake.log("born", json.dumps({"pid": os.getpid(), "group": os.getpgid(0), "nice": os.nice(0), "oom_score": int(oom_score),
                                 "core": resource.getrlimit(resource.RLIMIT_CORE), "ranks": ranks,
                                 "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}))  # fmt: skip


def expected_value(sha256, task, samples):
    """The metric of a task: the mean of made-up scores."""
    return sum(int(answer(sha256, task, doc), 16) / 0xFFFFFFFF for doc in range(samples)) / samples


def shuffled(task, samples):
    """The documents of a task, in the order in which they are answered where interim scores are asked for."""
    return sorted(range(samples), key=lambda doc: hashlib.sha256(f"{task} {doc}".encode()).digest())


def parts_of(task, samples, fractions, least):
    """[(fraction, the documents answered by then)] of those parts that get a score."""
    cuts = [(fraction, math.ceil(fraction * samples)) for fraction in fractions]
    return [(fraction, shuffled(task, samples)[:cut]) for fraction, cut in cuts if least <= cut < samples]


def interim_value(sha256, task, documents):
    return sum(int(answer(sha256, task, doc), 16) / 0xFFFFFFFF for doc in documents) / len(documents)


class Fake:
    def __init__(self, fd):
        self.socket = socket.socket(fileno=fd)
        self.unread = b""
        self.taken_back = set()
        self.prefetched = None
        self.lock = threading.Lock()
        self.sha256 = self.step = ""
        self.answered = {}
        self.batch_size = 0

    def send(self, **message):
        with self.lock:
            self.socket.sendall((json.dumps(message) + "\n").encode())

    def log(self, *words):
        if settings().get("log"):
            with open(settings()["log"], "a") as file:
                file.write(" ".join(str(word) for word in words) + "\n")

    def next_message(self, wait=True):
        """The agent's next message; None: there is none yet. Its end is a bye."""
        while b"\n" not in self.unread:
            if not wait and not select.select([self.socket], [], [], 0)[0]:
                return None
            data = self.socket.recv(1 << 20)
            if not data:
                return {"type": "bye"}
            self.unread += data
        line, self.unread = self.unread.split(b"\n", 1)
        return json.loads(line)

    def serve(self):
        while True:
            message = self.next_message()
            kind = message["type"]
            if kind == "hello":
                self.send(type="hello", protocol=settings().get("protocol", 4), version="fake", device="cpu",
                          device_name="none", torch_version="none", warning="")
            elif kind == "load":
                self.answered = {}
                self.load(message)
            elif kind == "answered":
                self.answered[(message["task"], message["fingerprint"], message["doc_id"])] = message["text"]
            elif kind == "evaluate":
                self.evaluate(message)
            elif kind == "prefetch":
                self.prefetch(message)
            elif kind == "bye":
                return

    def prefetch(self, message):
        """Reads nothing: it is enough that a load of the same says so."""
        self.prefetched = {key: message[key] for key in ("dir", "weights", "dtype", "base_model")}
        self.log("prefetch", os.path.basename(message["dir"]), message["weights"], message["dtype"], message["base_model"])

    def load(self, message):
        wanted = (message.get("settings") or {}).get("tasks", [])
        if wanted and all(data_of(task)[0] for task in wanted):
            self.send(type="error", id=message["id"], kind="data", stage="preparing", retryable=False, fatal=False,
                      message="\n".join(f"{task}: {data_of(task)[0]}" for task in wanted))  # fmt: skip
            return
        self.step = os.path.basename(message["dir"]).split("-")[0]  # of a lease's name
        self.log("load", message["dir"], message["weights"])
        self.log("job", message["id"])
        if settings().get("hang"):
            signal.pause()
        if settings().get("garbage"):
            self.socket.sendall(b"this is no message\n")
            return
        if settings().get("error"):
            self.send(**{"type": "error", "id": message["id"], "kind": "unsupported", "stage": "loading",
                         "message": "made up", "retryable": False, "fatal": False, **settings()["error"]})
            return
        while not os.path.exists(settings().get("load_after", "/")):
            time.sleep(0.01)
        base = ["--model_name_or_class", message["base_model"]] if message["base_model"] else []
        done = subprocess.run([os.environ["EVALCAR"], "inspect", message["dir"], "--weights", message["weights"], "--hash",
                               "--json", *base], capture_output=True, text=True)
        if done.returncode != 0:
            self.send(type="error", id=message["id"], kind="corruption", stage="loading", message=done.stderr[:500],
                      retryable=False, fatal=False)
            return
        self.sha256 = json.loads(done.stdout)["weights_sha256"]
        prefetched = self.prefetched is not None and all(message[key] == value for key, value in self.prefetched.items())
        self.prefetched = None
        self.send(type="loaded", id=message["id"], weights_sha256=self.sha256, architecture="fake", dtype="float32",
                  tensors=1, bytes=1, seconds=0.1, prefetched=prefetched)

    def evaluate(self, message):
        job = message["id"]
        tasks = [task for task in message["settings"]["tasks"] if task not in message.get("measured", [])]
        samples, limit = settings().get("samples", 6), message["settings"].get("limit") or 0
        if limit >= 1:  # of a fraction, `samples` is what is left
            samples = min(samples, int(limit))
        self.batch_size = message["settings"]["batch_size"]
        self.log("batch", self.batch_size)
        total = samples * len(tasks)
        done = 0
        failing = ("failing_tasks", "broken_data", "broken_tasks")
        ready = [task for task in tasks if not any(task in settings().get(kind, {}) for kind in failing)]
        self.send(type="prepared", id=job, tasks=[{"task": task, "sha256": fingerprint(task)} for task in ready])
        least = settings().get("interim_least", 20)
        parts = {task: dict(parts_of(task, samples, message.get("interim_at", []), least)) for task in tasks}
        fractions = sorted({fraction for task in tasks for fraction in parts[task]})
        told = set()
        for fraction in [*fractions, 1]:
            for task in tasks:
                for doc in sorted(parts[task].get(fraction, [])) if fraction < 1 else range(samples):
                    if (task, doc) in told:
                        continue
                    told.add((task, doc))
                    if (task, fingerprint(task), doc) not in self.answered:
                        if self.cancelled(job):
                            self.send(type="error", id=job, kind="cancelled", stage="evaluating", message="cancelled",
                                      retryable=False, fatal=False)  # fmt: skip
                            return
                        time.sleep(settings().get("delay", 0))
                        self.log("generate", self.sha256[:12], task, doc)
                        self.misbehave(doc)
                        if self.act(job, doc):
                            return
                        self.send(type="sample", id=job, task=task, doc_id=doc, text=answer(self.sha256, task, doc),
                                  output_tokens=1, fingerprint=fingerprint(task))
                    done += 1
                    self.send(type="progress", id=job, stage="evaluating", task=task, done=done, total=total, tick=done)
            reached = {task: parts[task][fraction] for task in ready if fraction in parts[task]}
            if reached:
                self.log("interim", self.sha256[:12], fraction)
                self.send(**{"type": "interim", "id": job, "weights_sha256": self.sha256, "fraction": fraction, "seconds": 0.1,
                             "tasks": [self.interim_score(task, documents, samples) for task, documents in reached.items()],
                             **settings().get("interim", {})})  # fmt: skip
        results = [self.score(job, task, samples) for task in tasks]
        self.log("result", self.sha256[:12])  # before: the agent may end us as soon as it has it
        self.send(type="result", id=job, weights_sha256=self.sha256, tasks=results, seconds=0.5,
                  attn_implementation="none")

    def cancelled(self, job):
        """Whether the agent has taken this job back. What is next comes, too, while one runs."""
        while message := self.next_message(wait=False):
            if message["type"] == "bye":
                os._exit(0)
            elif message["type"] == "prefetch":
                self.prefetch(message)
            else:
                self.log("cancelled", message["id"])
                self.taken_back.add(message["id"])
        return job in self.taken_back

    def interim_score(self, task, documents, samples):
        metric = {"name": "anls", "filter": "none", "value": interim_value(self.sha256, task, documents), "stderr": 0.05,
                  "stderr_source": "", "missing": "", "higher_is_better": True}  # fmt: skip
        return {"task": task, "fingerprint": fingerprint(task), "n": len(documents), "documents": samples, "metrics": [metric],
                "notes": json.dumps({"counted_as_misses": 2} if task == "mmmu_val" else {})}

    def batch(self):
        return self.batch_size or 32

    def act(self, job, doc):
        """What `at_sample` says; True: the job is over."""
        acts = settings().get("at_sample", [])
        return any(self.act_once(job, doc, one) for one in (acts if isinstance(acts, list) else [acts]))

    def act_once(self, job, doc, act):
        if doc != act.get("doc", -1) or self.batch() < act.get("min_batch", 0):
            return False
        if act.get("once"):
            if os.path.exists(act["once"]):
                return False
            open(act["once"], "w").close()
        self.log("act", act["do"], "batch", self.batch())
        print(act.get("print", ""), file=sys.stderr, flush=True)
        if act["do"] == "die":
            if "exit" in act:
                os._exit(act["exit"])
            os.kill(os.getpid(), act.get("signal", signal.SIGKILL))
        elif act["do"] == "hang":
            time.sleep(1000)
        elif act["do"] == "wait":
            while not os.path.exists(act["until"]):
                self.cancelled(job)
                time.sleep(0.01)
        elif act["do"] == "beat":
            while True:
                self.send(type="progress", id=job, stage="evaluating", task="", done=1, total=2, tick=1)
                time.sleep(0.1)
        elif act["do"] == "say":
            for _ in range(act.get("times", 1)):
                self.socket.sendall(bytes.fromhex(act["bytes"]))
        elif act["do"] == "error":
            self.send(**{"type": "error", "id": job, "kind": "internal", "stage": "evaluating", "message": "made up",
                         "retryable": False, "fatal": False, **act["error"]})
            return not act.get("goes_on")
        elif act["do"] == "eat":
            with open(os.path.join(act["cgroup"], "cgroup.procs"), "w") as file:
                file.write(str(os.getpid()))
            eaten = []
            while True:
                eaten.append(os.urandom(1 << 20))
        elif act["do"] == "fork":
            self.log("child", subprocess.Popen(["sleep", "1000"]).pid)
        return False

    def misbehave(self, doc):
        mode = settings()
        if doc != mode.get("die_at_sample"):
            return
        once = mode.get("die_once")
        if once and os.path.exists(once):
            return
        if once:
            open(once, "w").close()
        print("fake: dying as told", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    def score(self, job, task, samples):
        failing = {kind: settings().get(name, {}).get(task, "")
                   for kind, name in (("data", "failing_tasks"), ("data ", "broken_data"), ("internal", "broken_tasks"))}
        for doc in range(samples):
            if any(failing.values()):
                break
            text = self.answered.get((task, fingerprint(task), doc), answer(self.sha256, task, doc))
            line = {"doc_id": doc, "target": "x", "filtered_resps": [text], "resps": [[text]], "anls": int(text, 16)}
            pictures = settings().get("pictures", {}).get(str(doc), [])
            self.send(type="scored", id=job, task=task, doc_id=doc, line=json.dumps(line), fingerprint=fingerprint(task),
                      **({"pictures": pictures} if pictures else {}))  # fmt: skip
        for kind, error in failing.items():
            if error:
                return {"task": task, "version": "", "alias": task, "fingerprint": "", "num_fewshot": 0, "n": 0,
                        "n_original": 0, "n_effective": 0, "metrics": [], "lmms_results": "{}", "lmms_config": "{}", "notes": "{}",
                        "error": error, "error_kind": kind.strip(), "circumstances": data_of(task)[1] if kind.strip() == "data" else ""}
        value = settings().get("values", {}).get(task, expected_value(self.sha256, task, samples))
        value = settings().get("values_of_steps", {}).get(self.step, value)
        metric = {"name": "anls", "filter": "none", "value": value, "stderr": 0.01, "stderr_source": "", "missing": "",
                  "higher_is_better": True}
        results = {"alias": task, "anls,none": value, "anls_stderr,none": 0.01}
        notes = {"flags": settings()["flags"][task]} if task in settings().get("flags", {}) else {}
        return {"task": task, "version": "Yaml", "alias": task, "fingerprint": fingerprint(task), "num_fewshot": 0, "n": samples,
                "n_original": samples, "n_effective": samples, "metrics": [metric],
                "lmms_results": json.dumps(results), "lmms_config": "{}", "notes": json.dumps(notes), "error": "",
                "question": question(task)}


def main():
    if sys.argv[1:2] == ["check"]:
        return check(sys.argv[2:])
    if sys.argv[1:2] == ["devices"]:
        print(json.dumps({"devices": {"torch": "none", "nccl": "", "driver": "", "gpus": [], **settings().get("devices", {})}}))
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--gpu-memory-utilization", default="")
    parser.add_argument("--share-gpu", action="store_true")
    for option in ("--picture-cache", "--preparation-cache", "--sample-pictures"):
        for ending in ("", "-bytes", "-keep-free"):
            parser.add_argument(option + ending, default="")
    parser.add_argument("--encoded-pictures-bytes", default="")
    parser.add_argument("--version", action="store_true")
    arguments = parser.parse_args()
    if arguments.version:
        print("fake evaluator")
        return 0
    if settings().get("refuse"):
        print(settings()["refuse"], file=sys.stderr)
        return 2
    fake = Fake(arguments.fd)
    if settings().get("log_arguments"):
        fake.log("arguments", json.dumps(sys.argv))
    tell_of_birth(fake)
    fake.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
