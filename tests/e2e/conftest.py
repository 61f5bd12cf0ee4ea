import json
import pathlib

import checkpoints
import pytest
import sidecar as sidecar_module

HERE = pathlib.Path(__file__).resolve().parent
STEPS = (5, 10, 15, 20, 25, 30)


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    """Folder of ready shards for checkpoints.write_fsdp2, steps 5 to 30."""
    folder = tmp_path_factory.mktemp("shards")
    checkpoints.make_shards(folder, STEPS)
    return folder


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


@pytest.fixture
def bench(bin_dir, tmp_path):
    made = Bench(bin_dir, tmp_path)
    made.run.mkdir()
    yield made
    for sidecar in made.sidecars:
        if sidecar.process and sidecar.process.poll() is None:
            sidecar.kill()
