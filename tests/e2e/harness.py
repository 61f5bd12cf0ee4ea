"""A sidecar with a scripted evaluator on an output directory of its own."""

import json
import pathlib

import sidecar as sidecar_module

HERE = pathlib.Path(__file__).resolve().parent


class Bench:
    """An output directory, a scripted evaluator and a sidecar."""

    def __init__(self, bin_dir, home):
        self.bin_dir = bin_dir
        self.home = home
        self.run = home / "out"
        self.script = home / "script.json"
        self.events = home / "events.log"
        self.sidecars = []
        self.tell()

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
