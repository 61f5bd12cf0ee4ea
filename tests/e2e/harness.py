"""A sidecar with a scripted evaluator on an output directory of its own."""

import json
import pathlib
import subprocess

import fake_evaluator
import pytest
import sidecar as sidecar_module

HERE = pathlib.Path(__file__).resolve().parent


class Bench:
    """An output directory, a scripted evaluator and sidecars on it. In a `with` it makes the directory, and kills what still runs
    in the end."""

    def __init__(self, bin_dir, home):
        self.bin_dir = bin_dir
        self.evalcar = str(bin_dir / "evalcar")
        self.home = home
        self.run = home / "out"
        self.script = home / "script.json"
        self.events = home / "events.log"
        self.sidecars = []
        self.tell()

    def __enter__(self):
        self.run.mkdir()
        return self

    def __exit__(self, *error):
        for sidecar in self.sidecars:
            if sidecar.process and sidecar.process.poll() is None:
                sidecar.kill()

    def tell(self, **script):
        """What the evaluator does from now on."""
        temporary = self.script.with_suffix(".tmp")
        temporary.write_text(json.dumps({"log": str(self.events), **script}))
        temporary.replace(self.script)

    def heard(self, word):
        """Lines of the evaluator's log that begin with this word."""
        lines = self.events.read_text().splitlines() if self.events.exists() else []
        return [line for line in lines if line.startswith(word)]

    def sidecar(self, *arguments, environment=None, **options):
        made = sidecar_module.Sidecar(self.bin_dir, self.home, self.run, evaluator=HERE / "fake_evaluator.py",
                                      arguments=arguments, environment={"FAKE_EVALUATOR": str(self.script), **(environment or {})},
                                      **options)
        self.sidecars.append(made)
        return made


def hash_of(evalcar, folder, kind):
    """The digest of a checkpoint's weights, by `evalcar inspect`."""
    done = subprocess.run([evalcar, "inspect", str(folder), "--weights", kind, "--hash", "--json"], capture_output=True,
                          text=True, timeout=60, check=True)  # fmt: skip
    return json.loads(done.stdout)["weights_sha256"]


def check_published_once(sidecar, expected):
    """Each (step, kind) has one line, and its number is that of its own weights. expected: {(step, kind): sha256}"""
    lines = sidecar.metrics_lines()
    assert sorted((line["global_step"], line["checkpoint_type"]) for line in lines) == sorted(expected)
    assert [line["seq"] for line in lines] == sorted({line["seq"] for line in lines})
    for line in lines:
        sha256 = expected[line["global_step"], line["checkpoint_type"]]
        assert line["weights_sha256"] == sha256
        prefix = {"regular": "eval", "ema": "eval_ema", "average": "eval_avg"}[line["checkpoint_type"]]
        assert line["metrics"][f"{prefix}/docvqa_val/anls"] == pytest.approx(
            fake_evaluator.expected_value(sha256, "docvqa_val", 6))
    assert sidecar.published() == set(expected)


def leases(run):
    """Names of the leases that this output directory has now."""
    folder = run / "_evalcar" / "leases"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []
