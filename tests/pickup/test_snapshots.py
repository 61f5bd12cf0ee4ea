"""EvalcarCallback(snapshot_dir=…): weights alone, between two checkpoints, are evaluated like those of any checkpoint, and are gone then."""

import json
import logging
import os
import pathlib
import shutil
import subprocess
import tempfile

import checkpoints
import fake_evaluator
import pytest
import training
from evalcar_trainer import EvalcarCallback, _Snapshots
from harness import HERE, hash_of, leases
from training import logged, results_in, trainer
from transformers import TrainerCallback

ANLS = "eval/docvqa_val/anls"


@pytest.fixture(autouse=True)
def log(caplog):
    caplog.set_level(logging.INFO, logger="evalcar")
    return caplog


@pytest.fixture
def memory():
    """A folder on another file system than the output directory, if there is one."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="evalcar-test-", dir=shared) as folder:
        yield pathlib.Path(folder)


class EachEvaluation(TrainerCallback):
    """After each step where an evaluation is due: keeps the weights, and waits for the result, also until the thread of `pick_up` has it."""

    def __init__(self, bench, every, archive=None, pause=True, pick_up=None):
        self.run, self.every, self.archive, self.pause, self.pick_up = bench.run, every, archive, pause, pick_up
        self.saves = []

    def on_save(self, args, state, control, **_):
        self.saves.append(state.global_step)

    def on_step_end(self, args, state, control, model=None, **_):
        if state.global_step % self.every == 0 and self.archive:
            model.save_pretrained(self.archive / str(state.global_step))

    def on_step_begin(self, args, state, control, **_):
        if self.pause and state.global_step and state.global_step % self.every == 0:
            steps = lambda: [row["global_step"] for row in results_in(self.run)]  # noqa: E731
            training.wait_until(lambda: state.global_step in steps(), what=f"the result of step {state.global_step}")
            if self.pick_up:
                found = self.pick_up._training.watch.found
                training.wait_until(lambda: any(each[0] == "row" and each[1]["global_step"] == state.global_step for each in list(found)))


def folder_of(memory, bench):
    return pathlib.Path(_Snapshots(memory, bench.run).folder)


def put(memory, bench, step):
    """Weights alone as the callback puts them there; their digest."""
    folder = folder_of(memory, bench)
    made = checkpoints.write_hugging_face(bench.home / "scratch", step)
    (made / "trainer_state.json").unlink()
    folder.mkdir(parents=True, exist_ok=True)
    sha256 = hash_of(bench.evalcar, made, "regular")
    os.system(f"cp -r '{made}' '{folder}/.writing-1-{step}'")
    (folder / f".writing-1-{step}").rename(folder / f"weights-of-step-{step}")
    return sha256


def test_a_run_is_evaluated_more_often_than_it_saves(bench, memory, log, monkeypatch):
    for name, value in (("EVALCAR", bench.evalcar), ("EVALCAR_EVALUATOR", str(HERE / "fake_evaluator.py")), ("FAKE_EVALUATOR", str(bench.script)),
                        ("XDG_STATE_HOME", str(bench.home / "state"))):  # fmt: skip
        monkeypatch.setenv(name, value)
    look = EachEvaluation(bench, 2, bench.home / "archive")
    callback = EvalcarCallback(start=True, tasks=["docvqa_val"], eval_device="cpu", eval_steps=2, poll_interval=0.1, snapshot_dir=memory)
    trained = trainer(bench.run, [look, callback], max_steps=10, save_steps=10)

    trained.train()

    assert look.saves == [2, 10]  # before there is a checkpoint, nothing may be made in the output directory
    assert [step for step, _ in logged(trained)] == [2, 4, 6, 8, 10]
    for row in results_in(bench.run):
        assert row["weights_sha256"] == hash_of(bench.evalcar, bench.home / "archive" / str(row["global_step"]), "regular")
        assert row["metrics"][ANLS] == pytest.approx(fake_evaluator.expected_value(row["weights_sha256"], "docvqa_val", 6))
    assert not folder_of(memory, bench).exists() and list(memory.iterdir()) == []
    assert sorted(path.name for path in bench.run.glob("checkpoint*")) == ["checkpoint-10", "checkpoint-2"]
    assert not [record for record in log.records if record.name == "evalcar" and record.levelname == "WARNING"]


def test_the_best_that_the_trainer_is_told_is_a_checkpoint_of_its_own(bench, memory, log):
    """The best score is of weights that were measured between two checkpoints: what the Trainer keeps is the best that it has."""
    bench.tell(values_of_steps={2: 0.3, 4: 0.9, 6: 0.5, 8: 0.4})
    sidecar = bench.sidecar("--set", f"watch.snapshot_dir={memory}").start()
    callback = EvalcarCallback(eval_steps=2, poll_interval=0.1, snapshot_dir=memory)
    look = EachEvaluation(bench, 2, pick_up=callback)
    trained = trainer(bench.run, [callback, look], max_steps=8, save_steps=6, save_total_limit=2, metric_for_best_model="docvqa_val/anls",
                      greater_is_better=True)  # fmt: skip

    trained.train()

    assert sidecar.stop() == 0
    assert look.saves == [2, 6, 8] and {step for step, _ in logged(trained)} == {2, 4, 6, 8}
    best = (trained.state.best_global_step, trained.state.best_metric, trained.state.best_model_checkpoint)
    assert best == (6, 0.5, str(bench.run / "checkpoint-6"))
    told = json.loads((bench.run / "checkpoint-8" / "trainer_state.json").read_text())
    assert (told["best_global_step"], told["best_metric"], told["best_model_checkpoint"]) == best
    assert str(memory) not in json.dumps(told) + (bench.run / "_evalcar" / "best.json").read_text()
    assert not [record for record in log.records if record.name == "evalcar" and record.levelname == "WARNING"]


def test_without_an_agent_two_are_written_nobody_waits_and_nothing_is_left(bench, memory, log):
    callback = EvalcarCallback(eval_steps=2, poll_interval=0.1, stale_after=1, snapshot_dir=memory)
    look = EachEvaluation(bench, 2, pause=False)
    trained = trainer(bench.run, [look, callback], max_steps=10, save_steps=10)

    trained.train()

    assert look.saves == [2, 10]
    assert f"step 8 is not evaluated (1 so far): the weights of steps 4 and 6 wait in {folder_of(memory, bench)} (watch.snapshot_dir)" in log.text
    assert "the weights of step 4, 6 are removed" in log.text
    assert list(memory.iterdir()) == []


def test_where_there_is_no_room_nothing_is_written(bench, memory, log, monkeypatch):
    monkeypatch.setattr("evalcar_trainer._room", lambda folder: 10_000)
    callback = EvalcarCallback(eval_steps=2, poll_interval=0.1, stale_after=0.5, snapshot_dir=memory)
    look = EachEvaluation(bench, 2, pause=False)

    trainer(bench.run, [look, callback], max_steps=4, save_steps=5).train()

    assert "step 4 is not evaluated" not in log.text  # the last one is saved
    trainer(bench.run, [look, callback], max_steps=8, save_steps=8).train(resume_from_checkpoint=True)
    assert "step 6 is not evaluated (1 so far)" in log.text and "has no room" in log.text
    assert [record.levelname for record in log.records if "is not evaluated" in record.message] == ["WARNING"]
    assert list(memory.iterdir()) == []


def test_evaluations_that_had_no_room_are_counted_warned_of_and_seen_in_the_status(bench, memory, log, monkeypatch):
    monkeypatch.setattr("evalcar_trainer._room", lambda folder: 10_000)
    sidecar = bench.sidecar("--set", f"watch.snapshot_dir={memory}").start()
    warning = "3 evaluations have no weights (watch.snapshot_dir), at last that of step 8: "

    def is_told():
        there = (bench.run / "_evalcar" / "status.json").exists()
        return there and warning in training.status_of(bench.run)["agent"].get("warning", "")

    class AtTheEnd(TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            if state.global_step == 8:
                training.wait_until(is_told, what="the warning")

    callback = EvalcarCallback(eval_steps=2, poll_interval=0.1, snapshot_dir=memory)
    trainer(bench.run, [callback, AtTheEnd()], max_steps=9, save_steps=9).train()

    assert is_told()  # also when the training has taken its word away
    done = subprocess.run([bench.evalcar, "status", "--db", str(sidecar.database)], capture_output=True, text=True, timeout=60, check=True)
    assert f"warning: {warning}{folder_of(memory, bench)} has no room for three times" in done.stdout
    assert sidecar.stop() == 0
    told = [record.levelname for record in log.records if "is not evaluated" in record.message]
    assert told == ["WARNING", "WARNING", "INFO"]
    assert list(memory.iterdir()) == []


def test_the_checkpoint_of_the_same_step_takes_the_place_of_its_snapshot(bench, memory, log):
    """Saved at the end of an epoch, after the step's own evaluation was due."""
    sidecar = bench.sidecar("--set", f"watch.snapshot_dir={memory}").start()
    callback = EvalcarCallback(eval_steps=4, poll_interval=0.1, snapshot_dir=memory)
    look = EachEvaluation(bench, 4, bench.home / "archive")
    trained = trainer(bench.run, [look, callback], max_steps=-1, num_train_epochs=2, save_strategy="epoch", per_device_train_batch_size=8)

    trained.train()

    sidecar.wait_for(lambda s: not list(memory.glob("*/weights*")), what="the snapshots' end")
    assert sidecar.stop() == 0
    assert look.saves == [4, 8, 16]
    rows = sidecar.query("SELECT step, weights_sha256 FROM metrics WHERE metric = 'anls' ORDER BY step")
    assert rows == [(step, hash_of(bench.evalcar, bench.home / "archive" / str(step), "regular")) for step in (4, 8, 12, 16)]
    assert {step for step, _ in logged(trained)} == {4, 8, 12, 16}


def test_an_agent_that_is_killed_goes_on_with_it_and_removes_it(bench, memory):
    checkpoints.write_hugging_face(bench.run, 2)
    gate = bench.home / "gate"
    sidecar = bench.sidecar("--set", f"watch.snapshot_dir={memory}").start()
    sidecar.wait_for(lambda s: s.published() == {(2, "regular")}, what="the checkpoint's result")
    bench.tell(at_sample={"doc": 3, "do": "wait", "until": str(gate)})
    sha256 = put(memory, bench, 5)
    sidecar.wait_for(lambda s: s.states().get((5, "regular"), ("",))[0] == "evaluating", what="the evaluation")
    sidecar.kill()
    assert (folder_of(memory, bench) / "weights-of-step-5").exists()

    gate.write_text("")
    sidecar.start()
    sidecar.wait_for(lambda s: s.published() == {(2, "regular"), (5, "regular")} and not list(memory.glob("*/*")), what="the results")

    assert sidecar.stop() == 0
    line = next(line for line in sidecar.metrics_lines() if line["global_step"] == 5)
    assert (line["weights_sha256"], line["checkpoint"], line["checkpoint_type"]) == (sha256, "checkpoint-5", "regular")
    assert line["metrics"][ANLS] == pytest.approx(fake_evaluator.expected_value(sha256, "docvqa_val", 6))
    assert leases(bench.run) == []


def test_what_is_no_snapshot_is_not_evaluated(bench, memory):
    """Torn, of a step whose checkpoint is there, a link, another run's, and one that is still being written."""
    folder = folder_of(memory, bench)
    put(memory, bench, 2)
    checkpoints.write_hugging_face(bench.run, 2)
    put(memory, bench, 3)
    weights = folder / "weights-of-step-3" / "model.safetensors"
    os.truncate(weights, 100)
    put(memory, bench, 4)
    (folder / "weights-of-step-4").rename(folder / ".writing-1-4")
    (folder / "weights-of-step-7").symlink_to(bench.run / "checkpoint-2")
    (memory / "another-0123abcd").mkdir()
    (folder / ".writing-1-4").rename(memory / "another-0123abcd" / "weights-of-step-9")
    (folder / ".writing-1-6").mkdir()

    sidecar = bench.sidecar("--set", f"watch.snapshot_dir={memory}")
    assert sidecar.once() == 0

    assert sidecar.published() == set(sidecar.states()) == {(2, "regular")}
    assert sorted(path.name for path in folder.iterdir()) == [".writing-1-6", "weights-of-step-7"]
    assert "weights-of-step-3: removed, it cannot be evaluated: " in sidecar.log()
    assert "weights-of-step-2: not needed, checkpoint-2 is there and not older" in sidecar.log()
    assert (memory / "another-0123abcd" / "weights-of-step-9").exists()


def test_weights_of_a_training_that_was_begun_again_are_measured_beside_an_old_checkpoint(bench, memory):
    """The checkpoint of the training before is on disk: it is no newer than they are, also after a restart."""
    old = hash_of(bench.evalcar, checkpoints.write_hugging_face(bench.run, 2), "regular")
    sidecar = bench.sidecar("--set", f"watch.snapshot_dir={memory}").start()
    sidecar.wait_for(lambda s: s.published() == {(2, "regular")}, what="the checkpoint's result")

    sha256 = put(memory, bench, 2)
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 2 and not list(memory.glob("*/*")), what="the second result")

    sidecar.kill()
    sidecar.start()
    checkpoints.write_hugging_face(bench.run, 4)
    sidecar.wait_for(lambda s: (4, "regular") in s.published(), what="the next checkpoint's")
    assert sidecar.stop() == 0
    lines = [(line["global_step"], line["weights_sha256"]) for line in sidecar.metrics_lines()]
    assert lines[:2] == [(2, old), (2, sha256)] and [step for step, _ in lines] == [2, 2, 4]
    assert sidecar.metrics_lines()[1]["supersedes"] == sidecar.metrics_lines()[0]["seq"]


def test_what_a_killed_training_left_is_removed_before_the_steps_come_again(bench, memory):
    put(memory, bench, 4)
    put(memory, bench, 6)
    snapshots = _Snapshots(memory, bench.run)
    (pathlib.Path(snapshots.folder) / ".writing-12345-8").mkdir()

    snapshots.begin(4)

    assert os.listdir(snapshots.folder) == ["weights-of-step-4"]
    assert snapshots.folder != _Snapshots(memory, bench.home / "other" / bench.run.name).folder


def test_a_best_checkpoint_to_load_is_no_snapshot(bench, memory, log):
    look = EachEvaluation(bench, 2, pause=False)
    callback = EvalcarCallback(poll_interval=0.1, stale_after=0.5, snapshot_dir=memory)
    trained = trainer(bench.run, [look, callback], save_steps=6, **training.best_by("docvqa_val/anls"))

    trained.train()

    assert look.saves == [2, 4, 6]
    assert log.text.count("snapshot_dir is not used: load_best_model_at_end needs checkpoints that stay") == 1
    assert list(memory.iterdir()) == []


def test_a_sharded_model_has_no_snapshots(tmp_path):
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    arguments = training.TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    model = training.small_model()
    assert _Snapshots.refusal(arguments, model) == ""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        fully_shard(model, mesh=dist.init_device_mesh("cpu", (1,)))
        assert "sharded" in _Snapshots.refusal(arguments, model)
        for original in (True, False):  # transformers' default is True
            wrapped = FullyShardedDataParallel(training.small_model(), use_orig_params=original, device_id=training.torch.device("cpu"))
            assert "sharded" in _Snapshots.refusal(arguments, wrapped)
    finally:
        dist.destroy_process_group()


def test_a_folder_that_others_may_write_to_is_not_used_and_keeps_nothing_else_back(bench, memory):
    sidecar = bench.sidecar("--set", f"watch.snapshot_dir={memory}")
    put(memory, bench, 4)
    folder_of(memory, bench).chmod(0o777)
    checkpoints.write_hugging_face(bench.run, 2)
    sidecar.start()
    sidecar.wait_for(lambda s: "is not used for snapshots" in s.log(), what="the word about the folder")
    sidecar.wait_for(lambda s: s.published() == {(2, "regular")}, what="the checkpoint's result")
    sidecar.wait_for(lambda s: leases(bench.run) == [], what="the end of its lease")  # of the same turn, after the snapshots
    assert (folder_of(memory, bench) / "weights-of-step-4").exists()

    folder_of(memory, bench).chmod(0o700)

    sidecar.wait_for(lambda s: s.published() == {(2, "regular"), (4, "regular")}, what="the result")
    assert sidecar.stop() == 0


def test_the_callback_writes_nothing_through_a_link(bench, memory, log):
    elsewhere = bench.home / "elsewhere"
    elsewhere.mkdir()
    folder_of(memory, bench).symlink_to(elsewhere)
    callback = EvalcarCallback(eval_steps=2, poll_interval=0.1, stale_after=0.5, snapshot_dir=memory)

    there = []
    look = training.AtSave(then=lambda step: there.append(os.listdir(elsewhere)))
    trainer(bench.run, [look, callback], max_steps=8, save_steps=8).train()

    assert there == [[], []] and os.listdir(elsewhere) == []
    assert "is not a folder of this user" in log.text


def test_what_a_dead_writer_left_goes_and_what_a_living_one_writes_stays(bench, memory):
    checkpoints.write_hugging_face(bench.run, 2)
    folder = folder_of(memory, bench)
    dead = subprocess.Popen(["true"])
    dead.wait()
    for pid in (dead.pid, os.getpid()):
        (folder / f".writing-{pid}-6").mkdir(parents=True)

    assert bench.sidecar("--set", f"watch.snapshot_dir={memory}").once() == 0

    assert [path.name for path in folder.iterdir()] == [f".writing-{os.getpid()}-6"]


def test_a_better_snapshot_does_not_push_out_the_best_checkpoint_that_is_kept(bench, memory):
    bench.tell(values_of_steps={2: 0.3, 4: 0.9, 6: 0.95})
    folder = checkpoints.write_hugging_face(bench.run, 2)
    sidecar = bench.sidecar("--set", f"watch.snapshot_dir={memory}", "--set", "publish.keep_best=1", tasks="docvqa_val").start()
    sidecar.wait_for(lambda s: s.published() == {(2, "regular")} and leases(bench.run), what="the best one's lease")
    kept = leases(bench.run)
    shutil.rmtree(folder)

    put(memory, bench, 4)
    sidecar.wait_for(lambda s: (4, "regular") in s.published() and not list(memory.glob("*/weights*")), what="the better one's end")
    put(memory, bench, 6)
    sidecar.wait_for(lambda s: (6, "regular") in s.published() and not list(memory.glob("*/weights*")), what="the best one's end")

    assert sidecar.stop() == 0
    assert leases(bench.run) == kept
    assert bench.sidecar("--set", f"watch.snapshot_dir={memory}", "--set", "publish.keep_best=1", tasks="docvqa_val").once() == 0
    assert leases(bench.run) == kept
