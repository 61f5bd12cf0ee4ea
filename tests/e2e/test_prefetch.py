"""The real evaluator reads the next checkpoint while it evaluates another, and is none the worse for it."""

import contextlib
import os
import pathlib
import shutil
import time

import evaluator as evaluator_module
import numpy
import pytest
import small_models
from fixtures import data_sets
from safetensors import numpy as safetensors


pytestmark = pytest.mark.usefixtures("needs_the_evaluator")


@pytest.fixture(scope="module")
def scene(tmp_path_factory, cache_dir):
    """Two checkpoints of one model, and pages."""
    root = tmp_path_factory.mktemp("scene")
    for name, seed in (("a", 3), ("b", 4)):
        small_models.write_model(root / name, small_models.SmallModel(seed=seed, layers=2), cache_dir=cache_dir)
    data_sets.write_docvqa(root / "data", count=4)
    return root


class Running:
    """The evaluator with its log."""

    def __init__(self, bin_dir, log_path, environment=None):
        self.log_path = pathlib.Path(log_path)
        with self.log_path.open("w") as log:
            self.evaluator = evaluator_module.Evaluator(bin_dir, log=log, environment=environment)

    def prefetch(self, folder):
        self.evaluator.say("prefetch", dir=str(folder), weights="regular", dtype="auto", base_model="")

    def wait_for_log(self, text):
        end = time.monotonic() + 60
        while text not in self.log_path.read_text():
            assert time.monotonic() < end, f"{text!r} is not in the log: {self.log_path.read_text()}"
            time.sleep(0.02)

    def wait_for_open(self, folder, wanted=True):
        """Until a file of it is open, or none is."""
        end = time.monotonic() + 60
        while any(link.startswith(str(folder)) for link in self.open_files()) != wanted:
            assert time.monotonic() < end, f"of {folder} something is open: still {not wanted}"
            time.sleep(0.02)

    def open_files(self):
        for fd in pathlib.Path(f"/proc/{self.evaluator.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                yield os.readlink(fd)

    def samples(self, job):
        heard = self.evaluator.heard
        return {m["doc_id"]: m["text"] for m in heard if m["type"] == "sample" and m["id"] == job}


@contextlib.contextmanager
def running(bin_dir, tmp_path, held=None):
    """`held`: reads of such files hang while `tmp_path / "hang"` exists."""
    environment = {"LD_PRELOAD": str(bin_dir / "libhold_reads.so"), "HOLD_READS_OF": str(held), "HOLD_READS_WHILE": str(tmp_path / "hang")}
    run = Running(bin_dir, tmp_path / "log", environment if held else None)
    with run.evaluator:
        yield run


def test_the_next_checkpoint_is_resident_at_once_and_gives_the_same_answers(bin_dir, scene, tmp_path):
    with running(bin_dir, tmp_path) as run:
        run.evaluator.load(scene / "a", job="1")
        run.evaluator.evaluate(scene / "data", ["docvqa_val"], job="1")
        run.prefetch(scene / "b")
        run.evaluator.wait_for("result")
        run.wait_for_log(f"read ahead: {scene / 'b'}\n")
        ahead = run.evaluator.load(scene / "b", job="2")
        run.evaluator.evaluate(scene / "data", ["docvqa_val"], job="2")
        run.evaluator.wait_for("result")
    with running(bin_dir, tmp_path) as fresh:
        direct = fresh.evaluator.load(scene / "b", job="2")
        fresh.evaluator.evaluate(scene / "data", ["docvqa_val"], job="2")
        fresh.evaluator.wait_for("result")

    assert run.evaluator.process.returncode == 0
    assert ahead["prefetched"] and not direct["prefetched"]
    assert {**ahead, "seconds": 0, "prefetched": False} == {**direct, "seconds": 0}
    assert run.samples("2") == fresh.samples("2") != run.samples("1")
    assert len(run.samples("2")) == 4


def test_a_read_that_hangs_holds_up_neither_the_evaluation_nor_the_next_load_nor_the_end(bin_dir, scene, tmp_path):
    shutil.copytree(scene / "b", tmp_path / "hanging")
    with running(bin_dir, tmp_path, held=tmp_path / "hanging") as run:
        run.evaluator.load(scene / "a", job="1")
        (tmp_path / "hang").touch()
        run.evaluator.evaluate(scene / "data", ["docvqa_val"], job="1")
        run.prefetch(tmp_path / "hanging")
        run.wait_for_open(tmp_path / "hanging")
        run.prefetch(scene / "b")  # waits behind the one that hangs
        run.evaluator.wait_for("result")
        loaded = run.evaluator.load(scene / "b", job="2")
        run.evaluator.evaluate(scene / "data", ["docvqa_val"], job="2")
        run.evaluator.wait_for("result")
        run.evaluator.say("bye")
        assert run.evaluator.process.wait(20) == 0
    assert not loaded["prefetched"]
    assert len(run.samples("2")) == 4
    assert "read ahead" not in run.log_path.read_text()


def test_what_is_read_ahead_is_no_sign_of_life_of_the_evaluation(bin_dir, scene, tmp_path):
    with running(bin_dir, tmp_path, held=".parquet") as run:
        run.evaluator.load(scene / "a")
        (tmp_path / "hang").touch()
        run.evaluator.evaluate(scene / "data", ["docvqa_val"])
        ticks = [run.evaluator.wait_for("progress")["tick"] for _ in range(3)][2:]
        run.prefetch(scene / "b")
        run.wait_for_log("read ahead: ")
        ticks += [run.evaluator.wait_for("progress")["tick"] for _ in range(3)]
        (tmp_path / "hang").unlink()
        run.evaluator.wait_for("result")
    assert len(set(ticks)) == 1


def test_broken_weights_are_told_when_they_are_loaded_and_not_before(bin_dir, scene, tmp_path):
    broken = shutil.copytree(scene / "b", tmp_path / "broken")
    tensors = safetensors.load_file(broken / "model.safetensors")
    name = min(name for name in tensors if "embed_tokens" in name)
    tensors[name][1, 1] = numpy.nan
    safetensors.save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    with running(bin_dir, tmp_path) as run:
        run.evaluator.load(scene / "a", job="1")
        run.evaluator.evaluate(scene / "data", ["docvqa_val"], job="1")
        run.prefetch(broken)
        run.evaluator.wait_for("result")  # an error is never passed over
        run.wait_for_log(f"warning: not read ahead: {broken}: {name}: element")
        run.evaluator.say("load", id="2", dir=str(broken), weights="regular", dtype="auto", base_model="")
        error = run.evaluator.wait_for("error")
        run.evaluator.load(scene / "a", job="3")
    assert (error["id"], error["kind"], error["fatal"]) == ("2", "corruption", False)
    assert "is NaN or infinite" in error["message"]


def test_a_load_ends_what_is_read_ahead_and_reads_itself(bin_dir, scene, tmp_path):
    """The hanging read comes back after the load; what it was read for is not wanted any more, and it ends without a word."""
    shutil.copytree(scene / "b", tmp_path / "slow")
    with running(bin_dir, tmp_path, held=tmp_path / "slow/model.safetensors") as run:
        run.evaluator.load(scene / "a", job="1")
        (tmp_path / "hang").touch()
        run.evaluator.evaluate(scene / "data", ["docvqa_val"], job="1")
        run.prefetch(tmp_path / "slow")
        run.wait_for_open(tmp_path / "slow")
        run.evaluator.wait_for("result")
        run.evaluator.load(scene / "a", job="2")
        (tmp_path / "hang").unlink()
        run.wait_for_open(tmp_path / "slow", wanted=False)
        loaded = run.evaluator.load(tmp_path / "slow", job="3")
    assert not loaded["prefetched"]
    assert "read ahead" not in run.log_path.read_text()
