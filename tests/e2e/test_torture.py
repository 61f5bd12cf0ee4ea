"""Beside a trainer on its worst days (torture_trainer.py): every checkpoint that was ever whole has its point, once, at its step,
of its weights; and the trainer never notices that anybody was there."""

import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import fake_evaluator
import pytest
from harness import leases
from torture_trainer import LAYOUTS, TortureTrainer, score


def expected_value(sha256):
    return fake_evaluator.expected_value(sha256, "docvqa_val", 6)


def open_rows(sidecar):
    ends = "('published', 'quarantined', 'skipped', 'superseded', 'lost')"
    return sidecar.query(f"SELECT step, checkpoint_type, state, reason FROM evaluations WHERE state NOT IN {ends}")


def torture(bench, trainer, *, agent_life=None, arguments=(), seed=1, drain=120):
    """Trains to the end, killing the agent now and then; the agent then ends what is left. Gives (right, of how many)."""
    dice = random.Random(seed)
    sidecar = bench.sidecar("--set", "evaluate.policy=every", "--set", "watch.settle_time=4s", "--set", "watch.poll_interval=1s",
                            *trainer.arguments(), *arguments).start()  # fmt: skip
    trainer.start()
    kills = 0
    started = time.monotonic()
    try:
        while trainer.running():
            time.sleep(dice.uniform(*agent_life) if agent_life else 0.1)
            if agent_life and trainer.running():
                sidecar.kill()
                sidecar.start()
                started = time.monotonic()
                kills += 1
        trainer.wait(10)
        hardly_begun = time.monotonic() - started < 0.5
        assert sidecar.stop() in ((0, 4, -signal.SIGTERM) if hardly_begun else (0, 4))
        left = len(open_rows(sidecar))
        assert sidecar.once(timeout=drain) in (0, 4), sidecar.log()[-3000:]
    finally:
        trainer.stop()
    events = trainer.events()
    right, of, wrong = score(events, sidecar.metrics_lines(), expected_value)
    counts = {name: sum(event["event"] == name for event in events) for name in ("done", "half", "killed", "error")}
    print(f"{counts['done']} whole and {counts['half']} partial saves, the trainer killed {counts['killed']} times, the agent {kills} "
          f"times, {left} evaluations left when training ended: {right} of {of} points")
    assert counts["error"] == 0
    assert not wrong, "\n".join(wrong) + "\n" + sidecar.log()[-5000:]
    assert open_rows(sidecar) == [] and leases(bench.run) == []
    assert all(reason for (_, _, state, reason) in sidecar.query("SELECT step, checkpoint_type, state, reason FROM evaluations")
               if state != "published")  # fmt: skip
    return right, of


def test_every_checkpoint_of_a_tortured_trainer_has_its_point(bench):
    trainer = TortureTrainer(bench.home / "trainer", bench.run, steps=35, layouts=LAYOUTS, interval=0.3, world_size=3, late=0.2,
                             again=0.2, half=0.1, life=[2.0, 4.0], away=1.2, seed=5)
    right, of = torture(bench, trainer, agent_life=(0.8, 2.0))
    assert right == of >= 32


@pytest.mark.full
@pytest.mark.parametrize("layout, rotation, limit", [("fsdp2", "lmms-engine", 1), ("hf", "hugging-face", 2),
                                                     ("hf_indexed", "hugging-face", 1), ("dcp", "lmms-engine", 2),
                                                     ("bin", "hugging-face", 2), ("lora", "hugging-face", 1),
                                                     ("deepspeed", "hugging-face", 2)])  # fmt: skip
def test_500_checkpoints_of_a_tortured_trainer_have_500_points(bench, figures, layout, rotation, limit):
    """At least 125 of each layout that were whole once, beside saves that were cut short; the first four are 500 of 500 (FSDP2 has
    EMA, too), the others come on top."""
    steps = 150
    trainer = TortureTrainer(bench.home / "trainer", bench.run, steps=steps, layouts=[layout], interval=1.0, world_size=4, late=0.1,
                             again=0.1, half=0.1, life=[10.0, 30.0], away=1.2, pause=0.03, rotation=rotation, limit=limit, seed=steps)
    right, of = torture(bench, trainer, agent_life=(3.0, 10.0), seed=7, drain=600)
    figures(f"torture, {layout}, {rotation}'s retention of {limit}: {right} of {of} points")
    assert right == of >= 125 * (2 if layout == "fsdp2" else 1)


@pytest.mark.full
def test_the_partitions_that_it_writes_are_those_that_deepspeed_reads(tmp_path):
    """Else the torture of that layout would prove nothing."""
    trainer = TortureTrainer(tmp_path / "trainer", tmp_path / "out", steps=1, layouts=["deepspeed"], world_size=3)
    script = """
import json, pathlib, sys
import torture_trainer
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
spec = torture_trainer.Spec(**json.loads(sys.argv[1]))
folder = pathlib.Path(spec.run)
save = torture_trainer.save_deepspeed(spec, 5, "label")
(folder / save.folders[0]).mkdir(parents=True)
for name, data in [file for files in save.ranks for file in files] + save.last:
    (folder / name).write_bytes(data)
read = get_fp32_state_dict_from_zero_checkpoint(str(folder))
assert torture_trainer.weights_sha256({name: tensor.contiguous() for name, tensor in read.items()}) == save.hashes["regular"]
"""
    done = subprocess.run([sys.executable, "-c", script, json.dumps(dataclasses.asdict(trainer.spec))], capture_output=True, text=True,
                          timeout=600, env=dict(os.environ, PYTHONPATH=os.path.dirname(__file__), DS_ACCELERATOR="cpu"))  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


# ---- the trainer's own safety: retention as if nobody were there


def settings_of_a_quick_trainer(layout, rotation, steps):
    return {"steps": steps, "layouts": [layout], "rotation": rotation, "interval": 0.0, "pause": 0.0, "world_size": 1, "limit": 2}


RETENTIONS = [("fsdp2", "lmms-engine"), ("hf", "hugging-face")]


def keep_pruning(bench, run, layout, rotation, steps, within=()):
    """Saves and prunes as fast as it can beside an agent that measures the newest; whatever disturbs it ends it. `run`: by which
    name both know bench.run; within: a command that runs them where that name exists."""
    trainer = TortureTrainer(bench.home / "trainer", run, **settings_of_a_quick_trainer(layout, rotation, steps))
    sidecar = bench.sidecar("--set", "evaluate.policy=latest", "--set", "watch.poll_interval=100ms")
    sidecar.command = [*within, *(str(run) if word == str(bench.run) else word for word in sidecar.command)]
    sidecar.start()
    trainer.start(within)
    try:
        trainer.wait(60 + steps)
        sidecar.wait_for(lambda s: any(line["global_step"] == 5 * steps for line in s.metrics_lines()), what="the last point")
        assert sidecar.stop() in (0, 4)
    finally:
        trainer.stop()
        if sidecar.process.poll() is None:
            sidecar.kill()
    events = trainer.events()
    assert [event for event in events if event["event"] == "error"] == []
    assert sum(event["event"] == "done" for event in events) == steps
    assert sorted(os.listdir(bench.run)) == sorted(["_evalcar", f"checkpoint-{5 * steps - 5}", f"checkpoint-{5 * steps}"])
    return len(sidecar.metrics_lines())


@pytest.mark.parametrize("layout, rotation", RETENTIONS)
@pytest.mark.parametrize("steps", [60, pytest.param(3000, marks=pytest.mark.full)])
def test_retention_never_fails_and_never_takes_another_set(bench, layout, rotation, steps):
    measured = keep_pruning(bench, bench.run, layout, rotation, steps)
    print(f"{steps} saves, {measured} of them measured")


@pytest.mark.parametrize("layout, rotation", RETENTIONS)
@pytest.mark.parametrize("steps", [30, pytest.param(1500, marks=pytest.mark.full)])
def test_retention_through_a_mount_that_keeps_deleted_names_of_open_files_never_fails(bench, layout, rotation, steps):
    """Trainer and agent work through one FUSE mount, as through one NFS mount: a file that somebody holds open leaves a name
    behind when it is removed, and the folder does not empty."""
    if not shutil.which("bindfs") or not os.path.exists("/dev/fuse"):
        pytest.skip("bindfs and /dev/fuse are needed")
    mount = bench.home / "mnt"
    mount.mkdir()
    holder = subprocess.Popen(["unshare", "--mount", "sleep", "3600"])  # the mount is there for these processes alone
    try:
        within = ["nsenter", "--mount", "--target", str(holder.pid)]
        own = os.readlink("/proc/self/ns/mnt")
        for _ in range(200):
            if os.readlink(f"/proc/{holder.pid}/ns/mnt") != own:
                break
            time.sleep(0.01)
        mounted = subprocess.run([*within, "bindfs", str(bench.run), str(mount)], capture_output=True, text=True)
        if mounted.returncode != 0:
            pytest.skip(f"no FUSE mount here: {mounted.stderr.strip()}")
        measured = keep_pruning(bench, mount, layout, rotation, steps, within)
        subprocess.run([*within, "umount", "--lazy", str(mount)], check=True)
        print(f"{steps} saves, {measured} of them measured")
    finally:
        holder.kill()
        holder.wait()
