"""accelerate with automatic_checkpoint_naming takes every entry of `checkpoints/` for a checkpoint of its own: the agent's folder
lies beside that one, whatever comes first."""

import json
import shlex
import subprocess
import sys

import checkpoints
import pytest
from evalcar_trainer import Reader

QUICK = ("--set", "watch.poll_interval=1s", "--set", "watch.settle_time=1s")
TRAINER = """
import sys, torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(
    project_dir=sys.argv[1], automatic_checkpoint_naming=True, total_limit=2))
model = torch.nn.Linear(3, 3)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
for line in sys.stdin:
    accelerator.save_state() if line == "save\\n" else accelerator.load_state()
    print("done", flush=True)
"""


class Training:
    """A training with accelerate's own names; it ends with an error where a call of accelerate's fails."""

    def __init__(self, project):
        self.folder = project / "checkpoints"
        self.process = subprocess.Popen([sys.executable, "-c", TRAINER, str(project)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)  # fmt: skip
        self.saves = 0

    def ask(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n", self.process.communicate()[1][-2000:]

    def save(self):
        """checkpoint_<i>, and what a program with a model of transformers adds. Returns i."""
        self.ask("save")
        folder = self.folder / f"checkpoint_{self.saves}"
        for name, content in checkpoints.TOKENIZER.items():
            (folder / name).write_text(content)
        (folder / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl", "architectures": ["X"]}))
        self.saves += 1
        return self.saves - 1

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def training(bench):
    bench.run.rmdir()
    bench.run = bench.home / "project" / "checkpoints"
    bench.run.parent.mkdir()
    made = Training(bench.run.parent)
    yield made
    made.process.stdin.close()
    made.process.wait(60)


def follow(training, sidecar, saves):
    for _ in range(saves):
        step = training.save()
        sidecar.wait_for(lambda s, step=step: (step, "regular") in s.published(), what=f"the result of {step}")


def metrics_in(folder):
    return [json.loads(line)["global_step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_accelerate_saves_prunes_and_loads_beside_the_agent(bench, training):
    sidecar = bench.sidecar(*QUICK, "--set", "watch.pattern=checkpoint_{step}").start()
    reader = Reader(bench.run)
    follow(training, sidecar, 3)
    training.ask("load")

    assert training.names() == ["checkpoint_1", "checkpoint_2"]
    home = bench.run.parent / "_evalcar"
    assert metrics_in(home) == [0, 1, 2] and [row["global_step"] for row in reader.poll()] == [0, 1, 2]
    told = subprocess.run([bench.evalcar, "status", "--json", "--db", str(sidecar.database)], capture_output=True, timeout=60, check=True)
    assert json.loads(told.stdout)["agent"]["version"]
    assert sidecar.stop() == 0
    assert sidecar.once(*QUICK, "--set", "watch.pattern=checkpoint_{step}") == 0  # it knows its folder again
    assert metrics_in(home) == [0, 1, 2] and training.names() == ["checkpoint_1", "checkpoint_2"]


def test_a_folder_that_is_there_before_accelerate_begins_moves_out_of_its_way(bench, training):
    bench.run.mkdir()
    old = checkpoints.write_hugging_face(bench.run, 5)
    old.rename(bench.run / "epoch_5")
    sidecar = bench.sidecar(*QUICK, "--set", "watch.pattern=epoch_{step}").start()
    sidecar.wait_for(lambda s: (5, "regular") in s.published(), what="the first result")
    assert (bench.run / "_evalcar" / "metrics.jsonl").exists()
    (bench.run / "epoch_5").rename(bench.home / "epoch_5")  # which accelerate would fail on, too

    training.save()
    home = bench.run.parent / "_evalcar"
    sidecar.wait_for(lambda s: home.exists() and "it is moved out of the way" in s.log(), what="the move")
    sidecar.wait_for(lambda s: s.log().count(f"what belongs to it is kept in {home}") == 1, what="the new beginning")
    for _ in range(3):
        training.save()
    training.ask("load")
    checkpoints.write_hugging_face(bench.home, 6).rename(bench.run / "epoch_6")
    sidecar.wait_for(lambda s: (6, "regular") in s.published(), what="a result after the move")

    assert training.names() == ["checkpoint_2", "checkpoint_3", "epoch_6"]
    assert metrics_in(home) == [5, 6]
    assert sidecar.stop() == 0


def test_a_folder_that_cannot_move_is_told_in_the_log_and_in_the_status(bench, training):
    (bench.run / "_evalcar" / "results").mkdir(parents=True)  # of an agent before this one
    (bench.run.parent / "_evalcar" / "results").mkdir(parents=True)
    sidecar = bench.sidecar(*QUICK, "--set", "watch.pattern=checkpoint_{step}").start()
    follow(training, sidecar, 1)

    said = f"{bench.run}/_evalcar lies among accelerate's checkpoints"
    assert said in sidecar.log()
    status = json.loads((bench.run.parent / "_evalcar" / "status.json").read_text())
    assert said in status["agent"]["warning"] and 'holds a "results" already' in status["agent"]["warning"]
    assert sidecar.stop() == 0


def test_the_folder_of_another_training_is_not_taken(bench, training):
    bench.run.mkdir()
    home = bench.run.parent / "_evalcar"
    home.mkdir()
    (home / "run_id").write_text("0123456789abcdef" * 2 + "\n")
    sidecar = bench.sidecar(*QUICK, "--set", "watch.pattern=checkpoint_{step}")
    training.save()

    assert sidecar.once() == 2
    assert f"which is that of {bench.run.parent} itself" in sidecar.log()
    assert list(home.iterdir()) == [home / "run_id"] and training.names() == ["checkpoint_0"]


def test_checkpoints_on_a_disk_of_their_own_are_refused_with_a_hint(bench):
    """No hard link leads from beside the folder into it."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
        pytest.skip("no user namespace may mount here")
    bench.run = bench.home / "project" / "checkpoints"
    bench.run.mkdir(parents=True)
    sidecar = bench.sidecar(*QUICK, "--set", "watch.pattern=checkpoint_{step}", "--once")
    inside = f"mount -t tmpfs tmpfs {bench.run} && exec {shlex.join(sidecar.command)}"
    done = subprocess.run(["unshare", "-rm", "sh", "-ec", inside], env=sidecar.environment, capture_output=True, text=True, timeout=60)

    assert done.returncode == 2, done.stderr
    assert "is a file system of its own" in done.stderr and "mount the folder above it instead" in done.stderr
    assert [path.name for path in bench.run.parent.iterdir()] == ["checkpoints"]
