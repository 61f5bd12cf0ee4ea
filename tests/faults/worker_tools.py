"""The scripted device: one checkpoint and an evaluator that misbehaves at a document, as tests/e2e/fake_evaluator.py says."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import time

import checkpoints
import pytest
import sidecar as sidecar_module
import tools


def deed(bench, do, *, doc=3, once=False, **more):
    """What the evaluator does when it comes to a document; `once`: only the first process that comes to it."""
    words = {"doc": doc, "do": do, **more}
    if once:
        words["once"] = str(bench.home / f"did-{do}-{doc}-{time.monotonic_ns()}")
    return words


def act(bench, do, **how):
    bench.tell(at_sample=deed(bench, do, **how))


def attempts(sidecar, step):
    """[(outcome, kind, stage, message)] of the attempts of a step's newest evaluation."""
    return sidecar.query("SELECT outcome, error_kind, stage, message FROM attempts WHERE step = %d ORDER BY attempt_id" % step)


def births(bench):
    """What each evaluator process told of itself."""
    return [json.loads(line.partition(" ")[2]) for line in bench.heard("born")]


def batches(bench):
    """How many prompts at once each evaluation was told to take; 0: as many as fit."""
    return [int(line.split()[1]) for line in bench.heard("batch")]


def alive(pid):
    """Whether a process runs (a zombie does not)."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def write_and_wait(bench, sidecar, step, condition, what, timeout=300):
    folder = checkpoints.write_hugging_face(bench.run, step)
    sidecar.wait_for(lambda s: condition(s.states().get((step, "regular"), ("", ""))), timeout=timeout, what=what)
    return folder


class MemoryCgroup:
    """A control group (version 1 or 2) with a limit of memory, for the evaluator alone."""

    def __init__(self, limit_bytes):
        name = f"evalcar-test-{os.getpid()}"
        for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            self.folder = pathlib.Path(root) / name
            try:
                self.folder.mkdir()
            except OSError:
                continue
            try:
                (self.folder / limit).write_text(str(limit_bytes))
                with contextlib.suppress(OSError):  # no escape into swap
                    (self.folder / "memory.swap.max").write_text("0")
                return
            except OSError:
                self.folder.rmdir()
        pytest.skip("no control group with a limit of memory can be made here")

    def close(self):
        with contextlib.suppress(OSError):
            self.folder.rmdir()


class RealBench:
    """An output directory with the real evaluator: checkpoints are copies of the good model, changed or not."""

    def __init__(self, bin_dir, home, good):
        self.bin_dir, self.home, self.good = bin_dir, home, good
        self.evalcar = str(bin_dir / "evalcar")
        self.run = home / "out"
        self.data = home / "data"
        self.run.mkdir()
        shutil.copytree(good / "data", self.data)
        self.sidecars = []

    def write(self, step, change=None):
        """checkpoint-<step>; `change` gets its tensors. The rename makes it appear whole."""
        from safetensors.torch import load_file, save_file

        made = self.home / f"made-{step}"
        shutil.copytree(self.good / "model", made)
        if change:
            tensors = load_file(made / "model.safetensors")
            change(tensors)
            save_file(tensors, made / "model.safetensors", metadata={"format": "pt"})
        made.rename(self.run / f"checkpoint-{step}")

    def sidecar(self, *arguments, device="cpu", tasks="docvqa_val", **options):
        # libtorch is loaded in a second, or in a minute where twenty others want the two cores.
        more = ["--data", str(self.data), "--device", device, "--set", "evaluate.max_new_tokens=2", "--set", "watch.settle_time=1s",
                "--set", "evaluate.bootstrap_iters=10", "--set", 'limits.stage_timeouts=["starting=10min"]', *arguments]  # fmt: skip
        made = sidecar_module.Sidecar(self.bin_dir, self.home, self.run, tasks=tasks, arguments=more, **options)
        self.sidecars.append(made)
        return made

    def expected(self):
        """What `evalcar eval` measures of the good model: (weights_sha256, anls)."""
        known = self.good / "expected.json"
        if not known.exists():
            done = subprocess.run([self.evalcar, "eval", str(self.good / "model"), "--tasks", "docvqa_val", "--data", str(self.good / "data"),
                                   "--device", "cpu", "--set", "evaluate.max_new_tokens=2", "--set", "evaluate.bootstrap_iters=10",
                                   "--output", str(self.home / "eval"), "--json"], capture_output=True, text=True, timeout=600, check=True)  # fmt: skip
            known.write_text(done.stdout)
        told = json.loads(known.read_text())
        return told["weights_sha256"], told["results"]["docvqa_val"]["anls"]

    def check_canary(self, sidecar, step=tools.CANARY_STEP):
        self.write(step)
        sidecar.once()
        (line,) = [line for line in sidecar.metrics_lines() if line["global_step"] == step]
        assert (line["weights_sha256"], line["metrics"]["eval/docvqa_val/anls"]) == self.expected()
        tools.check_files(self.run)

    def close(self):
        for sidecar in self.sidecars:
            if sidecar.process and sidecar.process.poll() is None:
                sidecar.kill()
