"""Rows of part B: what the agent sees of a trainer's output directory, and when it takes a checkpoint for whole. Each test is one row
and ends with the canary."""

import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import checkpoints
import pytest
import tools
from harness import Bench, check_published_once, hash_of, leases
from http_server import Api, free_port
from watching_tools import (POLL, QUICK, Bindfs, FailingCalls, begin_fsdp2, behind, check_values, make_dcp, put_shard, rmtree_within, shard,
                            state_of, wait_published, wait_reason, watching)  # fmt: skip
from worker_tools import attempts

EIO, ESTALE = 5, 116
NO_POLL = ("--set", "watch.poll_interval=1h")

# ---- notices that do not come


def test_inotify_overflow(bench):
    """More changes than the kernel's queue holds while the agent does not read them: it looks at everything, and misses nothing."""
    limit = int(pathlib.Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 50_000:
        pytest.skip(f"a queue of {limit} events is not filled in a short time")
    sidecar = bench.sidecar(*NO_POLL).start()
    first = checkpoints.write_hugging_face(bench.run, 5)
    wait_published(sidecar, 5)
    os.kill(sidecar.process.pid, 19)  # SIGSTOP
    for number in range(limit // 2 + 1000):
        (bench.run / f"log-{number}").touch()  # two events each
    second = checkpoints.write_hugging_face(bench.run, 10)
    os.kill(sidecar.process.pid, 18)  # SIGCONT
    wait_published(sidecar, 10)
    assert "too many changes" in sidecar.log()
    check_values(sidecar, bench, [(first, "regular"), (second, "regular")])
    tools.check_canary(bench, sidecar)


def limit_inotify(sidecar, name, value):
    """By a user namespace of its own: the limits of the machine stay as they are."""
    tools.need("unshare")
    words = ["unshare", "--user", "--map-root-user", "sh", "-c", f'echo {value} >/proc/sys/user/{name} && exec "$@"', "sh"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no user namespace with limits of its own can be made here")
    sidecar.command = [*words, *sidecar.command]


def run_under_limit(bench, shards, name, value):
    sidecar = bench.sidecar(*POLL)
    limit_inotify(sidecar, name, value)
    sidecar.start()
    folders = [checkpoints.write_fsdp2(bench.run, step, shards) for step in (5, 10)]
    for step in (5, 10):
        for kind in ("regular", "ema"):
            wait_published(sidecar, step, kind)
    sidecar.wait_for(lambda s: watching(s).get("mode") == "polling", what="polling in the status")
    assert name.replace("inotify_", "user_") in watching(sidecar)["trouble"], watching(sidecar)
    assert sidecar.log().count("changes are found by polling") <= 2  # said once by each that watches
    check_values(sidecar, bench, [(folder, kind) for folder in folders for kind in ("regular", "ema")])
    tools.check_canary(bench, sidecar)


def test_inotify_no_watches(bench, shards):
    """With three watches for all that there is to watch, the agent polls, says so in its status, and misses nothing."""
    run_under_limit(bench, shards, "max_inotify_watches", 3)


def test_inotify_no_instances(bench, shards):
    """Without inotify at all the agent polls, says so in its status, and misses nothing."""
    run_under_limit(bench, shards, "max_inotify_instances", 0)


def test_no_events_fs(bench, namespace):
    """Changes beneath a mount that delivers no events are found within the poll interval; that it is so is said once."""
    with Bindfs(namespace, bench.run, bench.home / "mnt") as fuse:
        sidecar = behind(bench, namespace, fuse.mount, "--set", "watch.poll_interval=1s").start()
        sidecar.wait_for(lambda s: watching(s).get("file_system") == "FUSE", what="the file system in the status")
        folder = checkpoints.write_hugging_face(bench.run, 5)
        wait_published(sidecar, 5)
        assert watching(sidecar)["mode"] == "polling" and watching(sidecar)["poll_interval_s"] == 1
        check_values(sidecar, bench, [(folder, "regular")])
        tools.check_canary(bench, sidecar)
        assert sidecar.log().count("it is looked at every 1 s") == 1
        assert sidecar.stop() == 0


def test_attr_cache_stale_size(bench, namespace, shards):
    """Sizes that are seconds old while shards grow: nothing is measured before the true size is seen."""
    with Bindfs(namespace, bench.run, bench.home / "mnt", attr_timeout=3, entry_timeout=3) as fuse:
        sidecar = behind(bench, namespace, fuse.mount, *QUICK).start()
        folder = begin_fsdp2(bench.run, 5, shards, [0])
        put_shard(folder, 5, shards, 1, size=900)
        wait_reason(sidecar, 5, "rank_1.pt")
        time.sleep(1.5)  # settled, as it seems
        assert not bench.heard("load")
        put_shard(folder, 5, shards, 1)
        wait_published(sidecar, 5)
        check_values(sidecar, bench, [(folder, "regular")])
        tools.check_canary(bench, sidecar)


def test_negative_lookup_cached(bench, namespace, shards):
    """A folder that was looked for before it existed, where «not found» is remembered: it is found after the cache time."""
    with Bindfs(namespace, bench.run, bench.home / "mnt", negative_timeout=3, entry_timeout=3, attr_timeout=3) as fuse:
        sidecar = behind(bench, namespace, fuse.mount, *QUICK).start()
        folder = checkpoints.write_fsdp2(bench.run, 5, shards, ema=False)
        wait_published(sidecar, 5)
        for rank in (0, 1):
            put_shard(folder, 5, shards, rank, ema=True)
        wait_published(sidecar, 5, "ema", timeout=2 * 3 + 10)
        check_values(sidecar, bench, [(folder, "regular"), (folder, "ema")])
        tools.check_canary(bench, sidecar)


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.full)])
def test_new_subdir_race(bench, shards, count):
    """Folders and their files that are there before a watch could be: none is missed, by hints alone."""
    for kind in ("regular", "ema"):
        for rank in (0, 1):
            (shards / f"x-{kind}-{rank}.pt").write_bytes((shards / f"5-{kind}-{rank}.pt").read_bytes())
    sidecar = bench.sidecar(*NO_POLL, "--set", f"evaluate.every_nth={count}").start()
    sidecar.wait_for(lambda s: watching(s), what="the first look")
    for step in range(1, count + 1):
        folder = begin_fsdp2(bench.run, step, shards, [], 1)
        shard(folder, 0, 1).hardlink_to(shards / "x-regular-0.pt")
    done = ("published", "skipped", "superseded")
    sidecar.wait_for(lambda s: sum(state in done for state, _ in s.states().values()) == count, timeout=60 + count / 5,
                     what="the end of every row")  # fmt: skip
    tools.check_canary(bench, sidecar, step=count * 2)


def test_rename_into_place(bench):
    """A folder that is written under another name and renamed is measured once."""
    sidecar = bench.sidecar(*NO_POLL).start()
    sidecar.wait_for(lambda s: watching(s), what="the first look")
    folder = checkpoints.write_hugging_face(bench.home, 500).rename(bench.run / "tmp-checkpoint-500")
    time.sleep(0.3)
    folder = folder.rename(bench.run / "checkpoint-500")
    wait_published(sidecar, 500)
    check_values(sidecar, bench, [(folder, "regular")])
    tools.check_canary(bench, sidecar)
    assert len(bench.heard("load")) == 2


# ---- complete or not


def test_slow_writer(bench):
    """A shard that grows with pauses longer than the settle time is measured once, when it is whole."""
    whole = checkpoints.write_hugging_face(bench.home, 5) / "model.safetensors"
    content = whole.read_bytes()
    (whole.parent / "trainer_state.json").unlink()
    whole.unlink()
    folder = pathlib.Path(shutil.move(whole.parent, bench.run / "checkpoint-5"))
    sidecar = bench.sidecar(*QUICK).start()
    for end in (3, 700, len(content) - 1):
        (folder / "model.safetensors").write_bytes(content[:end])
        wait_reason(sidecar, 5, "model.safetensors")
        time.sleep(1.6)
        assert not bench.heard("load")
    (folder / "model.safetensors").write_bytes(content)
    wait_published(sidecar, 5)
    check_values(sidecar, bench, [(folder, "regular")])
    tools.check_canary(bench, sidecar)
    assert len(bench.heard("load")) == 2


def test_config_before_shards(bench, shards):
    """The configuration and rank 0 are there long before rank 1: it is waited for, then measured once."""
    sidecar = bench.sidecar(*QUICK).start()
    folder = begin_fsdp2(bench.run, 5, shards, [0])
    wait_reason(sidecar, 5, "rank_1.pt", "missing")
    time.sleep(1.6)
    assert state_of(sidecar, 5)[0] == "found" and not bench.heard("load")
    put_shard(folder, 5, shards, 1)
    wait_published(sidecar, 5)
    check_values(sidecar, bench, [(folder, "regular")])
    tools.check_canary(bench, sidecar)
    assert len(bench.heard("load")) == 2


def test_missing_rank_forever(bench, shards):
    """3 of 4 ranks: incomplete, and the missing one is named; set aside once a newer checkpoint is complete; measured if it comes
    after all."""
    sidecar = bench.sidecar(*QUICK).start()
    folder = begin_fsdp2(bench.run, 5, shards, [0, 1, 3], world_size=4)
    wait_reason(sidecar, 5, "world_size_4_rank_2.pt", "missing", state="found")
    newer = checkpoints.write_hugging_face(bench.run, 10)
    wait_published(sidecar, 10)
    wait_reason(sidecar, 5, "a newer checkpoint is complete", "world_size_4_rank_2.pt", state="quarantined")
    assert [line.split()[1] for line in bench.heard("load")] == [str(bench.run / "_evalcar/leases/10-1-regular")]
    put_shard(folder, 5, shards, 2, world_size=4)
    wait_published(sidecar, 5)
    check_values(sidecar, bench, [(folder, "regular"), (newer, "regular")])
    tools.check_canary(bench, sidecar)


def test_mixed_world_size(bench, shards):
    """Old shards of 8 ranks beside a full set of 4: which belong together cannot be told, so neither is measured."""
    sidecar = bench.sidecar(*QUICK).start()
    folder = begin_fsdp2(bench.run, 5, shards, [0], world_size=8)
    for rank in range(4):
        put_shard(folder, 5, shards, rank, world_size=4)
    wait_reason(sidecar, 5, "two world sizes")
    time.sleep(1.6)
    assert not bench.heard("load")
    shard(folder, 0, 8).unlink()
    wait_published(sidecar, 5)
    check_values(sidecar, bench, [(folder, "regular")])
    tools.check_canary(bench, sidecar)


def test_dcp_tmp_only_dcp_gap(bench, tmp_path):
    """Without .metadata (only .metadata.tmp; or removed and not written again yet) a DCP is incomplete; then it is another one."""
    for seed in (1, 2):
        make_dcp(tmp_path / str(seed), seed)
    folder = begin_fsdp2(bench.run, 5, tmp_path, [])
    weights = folder / "pytorch_model_fsdp_0"
    shutil.copyfile(tmp_path / "1" / "__0_0.distcp", weights / "__0_0.distcp")
    shutil.copyfile(tmp_path / "1" / ".metadata", weights / ".metadata.tmp")
    sidecar = bench.sidecar(*QUICK).start()
    wait_reason(sidecar, 5, ".metadata")
    time.sleep(1.6)
    assert not bench.heard("load")
    (weights / ".metadata.tmp").rename(weights / ".metadata")
    wait_published(sidecar, 5)
    check_values(sidecar, bench, [(folder, "regular")])

    (weights / ".metadata").unlink()
    shutil.copyfile(tmp_path / "2" / "__0_0.distcp", weights / "__0_0.distcp")
    time.sleep(2)
    assert len(bench.heard("load")) == 1 and state_of(sidecar, 5)[0] == "published"
    shutil.copyfile(tmp_path / "2" / ".metadata", weights / ".metadata.tmp")
    (weights / ".metadata.tmp").rename(weights / ".metadata")
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 2, what="the second result")
    assert sidecar.metrics_lines()[1]["supersedes"] == sidecar.metrics_lines()[0]["seq"]
    check_values(sidecar, bench, [(folder, "regular")])
    tools.check_canary(bench, sidecar)


def test_zip_no_eocd(bench, shards):
    """A shard cut before its central directory is incomplete, not corrupt, and nothing final is said of it."""
    sidecar = bench.sidecar(*QUICK).start()
    folder = begin_fsdp2(bench.run, 5, shards, [0])
    size = len((shards / "5-regular-1.pt").read_bytes())
    for cut in (size - 1, size - 400, 1, 0):
        put_shard(folder, 5, shards, 1, size=cut)
        wait_reason(sidecar, 5, "rank_1.pt")
        time.sleep(0.2)
    time.sleep(1.2)
    assert state_of(sidecar, 5)[0] == "found" and not bench.heard("load")
    assert sidecar.query("SELECT count(*) FROM attempts") == [(0,)]
    put_shard(folder, 5, shards, 1)
    wait_published(sidecar, 5)
    check_values(sidecar, bench, [(folder, "regular")])
    tools.check_canary(bench, sidecar)


def test_safetensors_growing(bench):
    """A file whose header is whole and whose data are short is incomplete, even beside trainer_state.json."""
    folder = checkpoints.write_hugging_face(bench.run, 5)
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-5])
    sidecar = bench.sidecar(*QUICK).start()
    wait_reason(sidecar, 5, "model.safetensors")
    time.sleep(1.6)
    assert state_of(sidecar, 5)[0] == "found" and not bench.heard("load")
    with open(folder / "model.safetensors", "ab") as file:
        file.write(content[-5:])
    wait_published(sidecar, 5)
    check_values(sidecar, bench, [(folder, "regular")])
    tools.check_canary(bench, sidecar)


def save_without_mark(bench, step):
    """What a loop of one's own writes with save_pretrained: no trainer_state.json. In the order of such a save, with pauses."""
    written = checkpoints.write_hugging_face(bench.home, step)
    folder = bench.run / written.name
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", *checkpoints.TOKENIZER):
        shutil.copyfile(written / name, folder / name)
        time.sleep(0.1)
    return folder


def test_pruned_in_doubt(bench):
    """A trainer that writes no mark and keeps one checkpoint for less than the settle time: from the second on, all are measured."""
    sidecar = bench.sidecar("--set", "watch.settle_time=4s", "--set", "evaluate.policy=every").start()
    bench.run.mkdir(exist_ok=True)
    sidecar.wait_for(lambda s: "watching" in s.log(), what="the start")
    saved = {}
    for step in range(1, 8):
        folder = save_without_mark(bench, step)
        saved[step, "regular"] = hash_of(bench.evalcar, folder, "regular")
        checkpoints.prune_lmms_engine(bench.run, 1)
        time.sleep(5 if step == 1 else 2)
    sidecar.wait_for(lambda s: len(s.published()) == len(saved), timeout=60, what="all results")
    check_published_once(sidecar, saved)
    tools.check_canary(bench, sidecar)


def test_trainer_killed_in_its_prune(bench):
    """It has deleted one file of its oldest checkpoint, which no agent has seen whole: that is measured with nothing missing, or not at all."""
    folders = [checkpoints.write_hugging_face(bench.run, step) for step in (5, 10, 15)]
    whole = {(step, "regular"): hash_of(bench.evalcar, folder, "regular") for step, folder in zip((5, 10, 15), folders)}
    (folders[0] / "tokenizer.json").unlink()  # trainer_state.json is there
    sidecar = bench.sidecar("--set", "watch.settle_time=2s", "--set", "evaluate.policy=every").start()
    wait_reason(sidecar, 5, "tokenizer.json is in checkpoint-10 and not here", state="quarantined")
    sidecar.wait_for(lambda s: s.published() == set(whole) - {(5, "regular")}, what="the others' results")

    shutil.copyfile(folders[1] / "tokenizer.json", folders[0] / "tokenizer.json")

    wait_published(sidecar, 5)
    check_published_once(sidecar, whole)


def test_mtime_future_past(bench):
    """A file server's clock that is an hour off: what is at rest is told by our own observation, neither at once nor in an hour."""
    sidecar = bench.sidecar(*POLL, "--set", "watch.settle_time=2s").start()
    folders = []
    for step, off in ((5, 3600), (10, -3600)):
        folder = checkpoints.write_hugging_face(bench.home, step)
        (folder / "trainer_state.json").unlink()  # so that it must be at rest
        for path in (*folder.iterdir(), folder):
            os.utime(path, (time.time() + off,) * 2)
        folders.append(folder.rename(bench.run / folder.name))
        began = time.monotonic()
        wait_published(sidecar, step, timeout=15)
        # The older one is at rest for the newer one to be: its own observation counts all the same.
        assert time.monotonic() - began >= 1.9
    check_values(sidecar, bench, [(folder, "regular") for folder in folders])
    tools.check_canary(bench, sidecar)


def test_ema_late(bench, shards):
    """EMA shards that come long after the regular ones: two results, each of its own weights."""
    sidecar = bench.sidecar(*QUICK).start()
    folder = checkpoints.write_fsdp2(bench.run, 5, shards, ema=False)
    (folder / "pytorch_ema_model_fsdp_0").mkdir()
    wait_published(sidecar, 5)
    time.sleep(1.5)
    put_shard(folder, 5, shards, 0, ema=True)
    wait_reason(sidecar, 5, "rank_1.pt", kind="ema")
    put_shard(folder, 5, shards, 1, ema=True)
    wait_published(sidecar, 5, "ema")
    check_values(sidecar, bench, [(folder, "regular"), (folder, "ema")])
    tools.check_canary(bench, sidecar)
    assert len(bench.heard("load")) == 3


@pytest.mark.parametrize("watched", [False, True])
def test_ema_left_from_an_older_save(bench, shards, watched):
    """Training comes back with EMA switched off and saves the step again: the EMA shards that are still there are not of this save."""
    folder = checkpoints.write_fsdp2(bench.run, 5, shards)
    sidecar = bench.sidecar(*QUICK)
    if watched:
        sidecar.start()
        wait_published(sidecar, 5, "ema")
    for rank in (0, 1):
        put_shard(folder, 10, shards, rank)
        for name in ("optimizer", "extra_state", "dataloader_state"):
            shutil.copyfile(shards / f"10-regular-{rank}.pt", folder / name / f"{name}_world_size_2_rank_{rank}.pt")
    for name in (*checkpoints.TOKENIZER, "config.json"):
        (folder / name).write_text((folder / name).read_text())
    new = hash_of(bench.evalcar, folder, "regular")
    if not watched:
        sidecar.start()

    sidecar.wait_for(lambda s: new in {line["weights_sha256"] for line in s.metrics_lines()}, what="the result of the second save")
    sidecar.wait_for(lambda s: "this save has written no EMA" in s.log(), what="that it has no EMA")
    tools.check_canary(bench, sidecar)
    check_values(sidecar, bench, [(folder, "regular")])
    generation = 1 + watched
    assert sidecar.query(f"SELECT checkpoint_type, state FROM evaluations WHERE step = 5 AND generation = {generation}") == [("regular", "published")]
    assert len([line for line in sidecar.metrics_lines() if (line["global_step"], line["checkpoint_type"]) == (5, "ema")]) == watched

    for rank in (0, 1):
        os.utime(shard(folder, rank, ema=True))  # somebody knows better
    sidecar.wait_for(lambda s: s.query(f"SELECT state FROM evaluations WHERE step = 5 AND checkpoint_type = 'ema' AND generation = {generation}")
                     in ([("published",)], [("superseded",)]), what="its EMA")  # fmt: skip


# ---- the root


def test_root_missing_root_recreated(bench):
    """The output directory appears later, is removed, and is made again: each time what is in it is measured."""
    bench.run.rmdir()
    sidecar = bench.sidecar(*QUICK).start()
    time.sleep(0.7)
    first = checkpoints.write_hugging_face(bench.run, 5)
    wait_published(sidecar, 5)
    check_values(sidecar, bench, [(first, "regular")])
    tools.eventually(lambda: shutil.rmtree(bench.run, ignore_errors=True) or not bench.run.exists(), what="the delete")
    time.sleep(1)
    assert sidecar.process.poll() is None and not bench.run.exists()
    second = checkpoints.write_hugging_face(bench.run, 5, seed="another run")
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 1, what="the result of the new run")
    check_values(sidecar, bench, [(second, "regular")])
    tools.check_canary(bench, sidecar)


@pytest.mark.parametrize("away_s", [3, 1])  # longer than the pause before anything is concluded, and shorter
def test_root_remounted(bench, namespace, away_s):
    """Unmounted and mounted again: nothing counts as deleted, nothing is measured again, and it goes on."""
    disk = bench.home / "disk"
    disk.mkdir()
    mount, bench.run = bench.run, disk
    namespace.run("mount", "--bind", disk, mount)
    sidecar = behind(bench, namespace, mount, *QUICK)
    first = checkpoints.write_hugging_face(disk, 5)
    torn = checkpoints.write_hugging_face(disk, 7)
    content = (torn / "model.safetensors").read_bytes()
    (torn / "model.safetensors").write_bytes(content[:-9])
    sidecar.start()
    wait_published(sidecar, 5)
    wait_reason(sidecar, 7, "model.safetensors", state="found")
    namespace.run("umount", "--lazy", mount)  # our lock keeps it busy, as it would on a server
    time.sleep(away_s)
    assert list(mount.iterdir()) == []
    assert state_of(sidecar, 7)[0] == "found" and state_of(sidecar, 5)[0] == "published"
    (torn / "model.safetensors").write_bytes(content)
    namespace.run("mount", "--bind", disk, mount)
    wait_published(sidecar, 7)
    check_values(sidecar, bench, [(first, "regular"), (torn, "regular")])
    assert sidecar.query("SELECT step, generation, state FROM evaluations ORDER BY step") == [(5, 1, "published"), (7, 1, "published")]
    tools.check_canary(bench, sidecar)
    assert len(bench.heard("load")) == 3


def test_root_becomes_file(bench):
    """The output directory is replaced by a file: the status says so; it goes on when the directory is back."""
    sidecar = bench.sidecar(*QUICK).start()
    folder = checkpoints.write_hugging_face(bench.run, 5)
    wait_published(sidecar, 5)
    bench.run.rename(bench.home / "away")
    bench.run.write_text("not a folder")
    sidecar.wait_for(lambda s: "Not a directory" in watching(s).get("trouble", ""), what="the trouble in the status")
    assert sidecar.process.poll() is None
    bench.run.unlink()
    (bench.home / "away").rename(bench.run)
    tools.check_canary(bench, sidecar)
    check_values(sidecar, bench, [(folder, "regular")])
    assert len(bench.heard("load")) == 2


# ---- names and numbers


def test_names_hostile(bench):
    """Only canonical whole numbers count; other names are ignored, and logged once, escaped."""
    names = [b"checkpoint-0500", b"checkpoint--5", b"checkpoint-5e2", b"checkpoint-18446744073709551616", b"checkpoint-500 (copy)",
             b"checkpoint-5\n00", b"checkpoint-\xff\xfe", b"checkpoint-" + b"9" * 244, b"checkpoint-500\x1b[2J", b".nfs000000000001",
             "checkpoint-٥".encode()]  # fmt: skip
    good = checkpoints.write_hugging_face(bench.run, 5)
    for name in names:
        shutil.copytree(os.fsencode(good), os.path.join(os.fsencode(bench.run), name))
    sidecar = bench.sidecar(*QUICK).start()
    wait_published(sidecar, 5)
    time.sleep(1.5)
    assert set(sidecar.states()) == {(5, "regular")}
    log = sidecar.log_path.read_bytes()
    for word in (rb"checkpoint-0500: ignored", rb"checkpoint--5: ignored", rb"checkpoint-500 (copy): ignored",
                 rb"checkpoint-5\n00: ignored", rb"checkpoint-500\x1b[2J: ignored"):  # fmt: skip
        assert log.count(word) == 1, (word, log.decode(errors="replace"))
    assert b"\x1b[2J" not in log and b"\xff" not in log and b".nfs" not in log
    for name in names:
        shutil.rmtree(os.path.join(os.fsencode(bench.run), name))
    tools.check_canary(bench, sidecar)


def test_numeric_order(bench):
    """999 comes before 1000."""
    for step in (1000, 999, 9, 10000):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar("--set", "evaluate.policy=every")
    assert sidecar.once() == 0
    steps = [line["global_step"] for line in sidecar.metrics_lines()]
    assert steps == [9, 999, 1000, 10000]
    tools.check_canary(bench, sidecar)


@pytest.mark.parametrize("count", [15, pytest.param(2000, marks=pytest.mark.full)])
def test_backlog_2000(bench, count, figures):
    """So many complete checkpoints at the start: the configured order, and bounded memory, descriptors and threads."""
    bench.tell(samples=1)
    for step in range(1, count + 1):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar("--set", "evaluate.policy=every").start()
    peak = {"rss": 0, "fds": 0, "threads": 0, "watches": 0}

    def done(s):
        pid = s.process.pid
        now = {"rss": tools.rss_bytes(pid), "fds": len(tools.open_files(pid)), "threads": tools.threads_of(pid),
               "watches": tools.watches_of(pid)}  # fmt: skip
        peak.update({name: max(peak[name], value) for name, value in now.items()})
        time.sleep(0.2)
        return len(s.metrics_lines()) == count

    sidecar.wait_for(done, timeout=60 + count, what="all results")
    steps = [line["global_step"] for line in sidecar.metrics_lines()]
    assert steps == list(range(1, count + 1))
    figures(f"backlog of {count}: {peak}")
    assert peak["rss"] < 96 << 20 and peak["fds"] < 64 and peak["threads"] < 12 and peak["watches"] < 64, peak
    bench.tell()
    tools.check_canary(bench, sidecar)


def test_symlinked_checkpoint(bench):
    """A link within the output directory is measured once, as what it leads to; one that leads out is refused with the reason."""
    real = checkpoints.write_hugging_face(bench.run, 5)
    (bench.run / "checkpoint-6").symlink_to("checkpoint-5")
    kept = checkpoints.write_hugging_face(bench.run / "kept", 10)
    (bench.run / "checkpoint-10").symlink_to("kept/checkpoint-10")
    outside = checkpoints.write_hugging_face(bench.home / "secret", 15)
    (bench.run / "checkpoint-15").symlink_to(outside)
    sidecar = bench.sidecar(*QUICK).start()
    for step in (5, 10):
        wait_published(sidecar, step)
    wait_reason(sidecar, 15, "leads out of the output directory", state="quarantined")
    time.sleep(1)
    assert set(sidecar.states()) == {(5, "regular"), (10, "regular"), (15, "regular")}
    assert sidecar.log().count("checkpoint-6: ignored: a link to checkpoint-5") == 1
    assert not any("15-" in line for line in bench.heard("load"))
    check_values(sidecar, bench, [(real, "regular"), (kept, "regular")])
    tools.check_canary(bench, sidecar)


# ---- written again, deleted, cut


def test_overwritten_same_step(bench):
    """Written again in place with other weights: another result, and the old one is marked superseded."""
    folder = checkpoints.write_hugging_face(bench.run, 5, seed="first")
    first = hash_of(bench.evalcar, folder, "regular")
    sidecar = bench.sidecar(*QUICK).start()
    wait_published(sidecar, 5)
    checkpoints.write_safetensors(folder / "model.safetensors", "second")
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 2, what="the second result")
    lines = sidecar.metrics_lines()
    assert lines[0]["weights_sha256"] == first and lines[1]["supersedes"] == lines[0]["seq"]
    check_values(sidecar, bench, [(folder, "regular")])
    tools.check_canary(bench, sidecar)


def test_overwrite_during_read(bench, shards):
    """Shard 2 is written again while the first is measured: nothing of the mixture is published; the new one is."""
    folder = checkpoints.write_fsdp2(bench.run, 5, shards, ema=False)
    bench.tell(delay=0.2)
    sidecar = bench.sidecar(*QUICK).start()
    sidecar.wait_for(lambda s: bench.heard("generate"), what="the first answer")
    shard(folder, 1).write_bytes((shards / "10-regular-1.pt").read_bytes())
    mixture = hash_of(bench.evalcar, folder, "regular")
    time.sleep(0.3)
    shard(folder, 0).write_bytes((shards / "10-regular-0.pt").read_bytes())
    bench.tell()
    wait_published(sidecar, 5)
    check_values(sidecar, bench, [(folder, "regular")])
    assert [line["weights_sha256"] for line in sidecar.metrics_lines()] != [mixture]
    assert len(sidecar.metrics_lines()) == 1
    tools.check_canary(bench, sidecar)


def test_overwrite_during_load(bench, shards, preload):
    """Shard 2 is written again while the evaluator reads the first for the first time: what it made of the two is not published."""
    folder = checkpoints.write_fsdp2(bench.run, 5, shards, ema=False)
    sidecar = bench.sidecar(*QUICK)
    calls = FailingCalls(sidecar, preload)
    calls.begin("inspect", "slow", 1, "rank_0.pt", 2)
    sidecar.start()
    sidecar.wait_for(lambda s: bench.heard("load"), what="the load")
    time.sleep(0.3)
    shard(folder, 1).write_bytes((shards / "10-regular-1.pt").read_bytes())
    time.sleep(1.5)
    assert sidecar.metrics_lines() == []
    calls.end()
    shard(folder, 0).write_bytes((shards / "10-regular-0.pt").read_bytes())
    wait_published(sidecar, 5)
    check_values(sidecar, bench, [(folder, "regular")])
    assert len(sidecar.metrics_lines()) == 1
    tools.check_canary(bench, sidecar)


def read_only(bench, namespace, *arguments):
    """A sidecar that cannot write into the output directory, and so has no leases."""
    namespace.run("mount", "--bind", bench.run, bench.run)
    namespace.run("mount", "-o", "remount,bind,ro", bench.run)
    sidecar = bench.sidecar("--set", f"publish.dir={bench.home / 'published'}", *arguments)
    namespace.enter(sidecar)
    return sidecar


def test_deleted_queued_deleted_reading(bench, namespace):
    """Removed before or while it is measured, and nothing could be leased: lost, with the reason, without a storm of tries and
    without a number."""
    folders = [checkpoints.write_hugging_face(bench.run, step) for step in (5, 10)]
    bench.tell(delay=0.2)
    sidecar = read_only(bench, namespace, *QUICK, "--set", "evaluate.policy=every").start()
    sidecar.wait_for(lambda s: bench.heard("generate") and state_of(s, 10)[0] == "leased", what="the first answer")
    for folder in folders:
        shutil.rmtree(folder)
    for step in (5, 10):
        sidecar.wait_for(lambda s, at=step: state_of(s, at)[0] == "lost", what="the loss")
        assert state_of(sidecar, step)[1] != ""
    assert len(bench.heard("load")) <= 2
    assert not (bench.home / "published" / "metrics.jsonl").exists()
    assert sidecar.stop() == 4
    bench.tell()
    tools.check_canary(bench, sidecar, evaluated_by=bench.sidecar(*QUICK))


def test_truncated_while_read(bench, preload):
    """Cut to nothing in the middle of a read: the evaluator says so, the agent lives, and nothing is published of it."""
    folder = checkpoints.write_hugging_face(bench.run, 5)
    content = (folder / "model.safetensors").read_bytes()
    sidecar = bench.sidecar(*QUICK, "--set", "limits.attempts=2")
    calls = FailingCalls(sidecar, preload)
    calls.begin("inspect", "slow", 1, "model.safetensors", 1)
    sidecar.start()
    sidecar.wait_for(lambda s: bench.heard("load"), what="the load")
    time.sleep(0.3)
    os.truncate(folder / "model.safetensors", 0)
    sidecar.wait_for(lambda s: state_of(s, 5)[0] in ("quarantined", "failed", "superseded", "lost", "found"), what="the end")
    time.sleep(1.5)
    assert sidecar.metrics_lines() == [] and sidecar.process.poll() is None
    calls.end()
    (folder / "model.safetensors").write_bytes(content)
    wait_published(sidecar, 5)
    check_values(sidecar, bench, [(folder, "regular")])
    tools.check_canary(bench, sidecar)


# ---- the trainer is not harmed


def test_trainer_rmtree_nfs(bench, namespace, shards):
    """Through FUSE a file that somebody holds open makes the trainer's strict delete fail: the agent holds none, at any time."""
    bench.tell(delay=0.05)
    with Bindfs(namespace, bench.run, bench.home / "mnt") as fuse:
        sidecar = behind(bench, namespace, fuse.mount, *QUICK).start()
        folders = {}
        for step in (5, 10, 15, 20):
            folders[step] = checkpoints.write_fsdp2(bench.run, step, shards, ema=False)
        hashes = {(step, "regular"): hash_of(bench.evalcar, folder, "regular") for step, folder in folders.items()}
        moments = {5: "leased", 10: "leased", 15: "generate", 20: "published"}
        for step, moment in moments.items():
            if moment == "generate":
                sidecar.wait_for(lambda s: bench.heard("generate"), what="an answer")
            elif moment == "leased":
                later = ("leased", "loading", "evaluating", "scored", "published")
                sidecar.wait_for(lambda s, at=step: state_of(s, at)[0] in later, what="the lease")
            else:
                wait_published(sidecar, step)
            assert tools.held_in(fuse.mount, sidecar.process.pid) == []
            rmtree_within(namespace, fuse.mount / f"checkpoint-{step}")
        for step in moments:
            wait_published(sidecar, step)
        check_published_once(sidecar, hashes)
        bench.tell()
        tools.check_canary(bench, sidecar)


def test_trainer_prune_rule(bench, shards):
    """lmms-engine's rule of deletion after each save never fails, and takes exactly what it would take without us."""
    bench.tell(delay=0.02)
    sidecar = bench.sidecar("--set", "evaluate.policy=every").start()
    hashes = {}
    written = []
    for step in (5, 10, 15, 20, 25, 30):
        folder = checkpoints.write_fsdp2(bench.run, step, shards)
        written.append(folder.name)
        for kind in ("regular", "ema"):
            hashes[step, kind] = hash_of(bench.evalcar, folder, kind)
        sidecar.wait_for(lambda s, at=step: state_of(s, at, "ema")[0] not in ("", "found", "complete"), what="the lease")
        assert checkpoints.prune_lmms_engine(bench.run, 1) == written[:-1]
        written = written[-1:]
    for step, kind in hashes:
        wait_published(sidecar, step, kind)
        assert checkpoints.prune_lmms_engine(bench.run, 1) == []
    check_published_once(sidecar, hashes)
    assert leases(bench.run) == []
    tools.check_canary(bench, sidecar)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["links", "identical"])
def test_tree_unchanged(bench, shards, elsewhere):
    """A whole evaluation leaves every inode, time and name of the tree as it was, the one link `eval` aside."""
    checkpoints.write_fsdp2(bench.run, 5, shards)
    checkpoints.write_hugging_face(bench.run, 4)
    before = tools.tree_of(bench.run)
    quiet = ("--set", "publish.link_in_checkpoint=never", "--set", f"publish.dir={bench.home / 'published'}")
    assert bench.sidecar(*(quiet if elsewhere else ())).once() == 0
    after = tools.tree_of(bench.run)
    added = [] if elsewhere else ["checkpoint-5/eval"]
    assert sorted(set(after) - set(before)) == added
    for path in before:  # a folder may grow by the entry, its time may not change
        assert after[path][:2] == before[path][:2] and after[path][3] == before[path][3], path
    tools.check_canary(bench, bench.sidecar())


# ---- a disk that fails


def test_estale(bench, preload):
    """ESTALE of open, stat and list: asked again at once; if it stays the checkpoint counts as gone for the moment, and comes back."""
    sidecar = bench.sidecar(*QUICK)
    calls = FailingCalls(sidecar, preload)
    sidecar.start()
    folders = []
    for step, call in ((5, "open"), (10, "stat"), (15, "list")):
        calls.begin("run", call, ESTALE, f"/checkpoint-{step}", 1)
        folders.append(checkpoints.write_hugging_face(bench.run, step))
        wait_published(sidecar, step)
    assert "Stale" not in sidecar.log()
    hashed = [bench.evalcar, "inspect", "--hash", "--json", bench.run / "checkpoint-5"]
    whole = subprocess.run(hashed, capture_output=True, text=True, check=True).stdout
    calls.begin("inspect", "read", ESTALE, "checkpoint-5/model.safetensors", 1)  # opened before: found again by its name
    again = subprocess.run(hashed, env=sidecar.environment, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (0, whole), again.stderr
    calls.begin("run", "open", ESTALE, "checkpoint-20/model.safetensors")
    folders.append(checkpoints.write_hugging_face(bench.run, 20))
    wait_reason(sidecar, 20, "model.safetensors", "missing")
    time.sleep(1.5)
    assert not any("20-1" in line for line in bench.heard("load"))
    calls.end()
    wait_published(sidecar, 20)
    check_values(sidecar, bench, [(folder, "regular") for folder in folders])
    tools.check_canary(bench, sidecar)


def test_eio_once_eio_always(bench, preload, shards):
    """EIO once: read again. Always: waited for with path and offset in the reason, set aside when a newer one is complete."""
    sidecar = bench.sidecar(*QUICK)
    calls = FailingCalls(sidecar, preload)
    sidecar.start()
    calls.begin("run", "read", EIO, "checkpoint-5/pytorch_model_fsdp_0/model_world_size_2_rank_1.pt", 1)
    folders = [checkpoints.write_fsdp2(bench.run, 5, shards, ema=False)]
    wait_published(sidecar, 5)
    calls.begin("run", "read", EIO, "checkpoint-10/pytorch_model_fsdp_0/model_world_size_2_rank_1.pt")
    folders.append(checkpoints.write_fsdp2(bench.run, 10, shards, ema=False))
    wait_reason(sidecar, 10, "at offset", "rank_1.pt", "Input/output error", state="found")
    folders.append(checkpoints.write_fsdp2(bench.run, 15, shards, ema=False))
    wait_published(sidecar, 15)
    wait_reason(sidecar, 10, "Input/output error", state="quarantined")
    assert sidecar.log().count("Input/output error") < 5
    calls.end()
    wait_published(sidecar, 10)
    check_values(sidecar, bench, [(folder, "regular") for folder in folders])
    tools.check_canary(bench, sidecar)


def test_short_reads(bench, preload, shards):
    """Reads that give a few bytes, or are interrupted, give the same bytes."""
    sidecar = bench.sidecar(*QUICK)
    calls = FailingCalls(sidecar, preload)
    calls.begin("inspect", "short", 1, ".pt")
    folder = checkpoints.write_fsdp2(bench.run, 5, shards)
    sidecar.start()
    wait_published(sidecar, 5)
    wait_published(sidecar, 5, "ema")
    calls.begin("run", "short", 1, "/checkpoint-10/")
    second = checkpoints.write_fsdp2(bench.run, 10, shards)
    wait_published(sidecar, 10, "ema")
    check_values(sidecar, bench, [(folder, "regular"), (folder, "ema"), (second, "regular")])
    tools.check_canary(bench, sidecar)


def test_perm_denied(bin_dir, shards):
    """A checkpoint of another user that may not be read waits with that reason, and is measured once it may be."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        bench = Bench(bin_dir, pathlib.Path(place))
        bench.run.mkdir()
        for path in (bench.run, bench.script, bench.home):
            os.chmod(path, 0o777)
        sidecar = bench.sidecar(*QUICK)
        tools.as_user(sidecar)
        seen = subprocess.run([*sidecar.command[: sidecar.command.index(bench.evalcar)], bench.evalcar, "--version"],
                              capture_output=True, check=False)  # fmt: skip
        if seen.returncode != 0:
            pytest.skip("another user cannot run the program where it was built")
        folder = checkpoints.write_hugging_face(bench.run, 5)
        folder.chmod(0o700)
        second = checkpoints.write_hugging_face(bench.run, 4)
        (second / "model.safetensors").chmod(0o600)
        try:
            sidecar.start()
            wait_reason(sidecar, 5, "checkpoint-5", "Permission denied")
            wait_reason(sidecar, 4, "model.safetensors", "Permission denied")
            time.sleep(1.5)
            assert not bench.heard("load") and sidecar.metrics_lines() == []
            folder.chmod(0o755)
            (second / "model.safetensors").chmod(0o644)
            for step in (4, 5):
                wait_published(sidecar, step)
            check_values(sidecar, bench, [(folder, "regular"), (second, "regular")])
            tools.check_canary(bench, sidecar)
            assert sidecar.stop() == 0
        finally:
            if sidecar.process.poll() is None:
                sidecar.kill()


def test_hung_read(bench, namespace):
    """A mount whose server is gone: status, other directories and SIGTERM go on, no threads pile up, nothing is lost or concluded,
    and what is written meanwhile is measured when it answers again."""
    other = bench.home / "other"
    other.mkdir()
    # Parents of the output directory lie on the mount, too.
    server = bench.home / "server"
    bench.run = server / "team" / "run"
    bench.run.mkdir(parents=True)
    config = bench.home / "evalcar.toml"
    with Bindfs(namespace, server, bench.home / "mnt") as fuse:
        config.write_text(f'[watch]\noutput_dir = ["{fuse.mount}/team/run", "{other}"]\n[evaluate]\ntasks = ["docvqa_val"]\n'
                          '[limits]\nretry_delay = "100ms"\n')  # fmt: skip
        sidecar = bench.sidecar()
        sidecar.command = [bench.evalcar, "run", "--config", str(config), "--set", "watch.poll_interval=3s"]
        namespace.enter(sidecar)
        sidecar.start()
        states = bench.home / "state" / "evalcar"

        def database(name):
            sidecar.database = next(iter(sorted(states.glob(f"{name}-*.db"))), states / "none.db")
            return sidecar

        first = checkpoints.write_hugging_face(bench.run, 5)
        tools.eventually(lambda: (5, "regular") in database("run").published(), 60, "the first result")
        threads = tools.threads_of(sidecar.process.pid)

        fuse.freeze()
        second = checkpoints.write_hugging_face(bench.run, 10)
        elsewhere = checkpoints.write_hugging_face(other, 7)
        tools.eventually(lambda: (7, "regular") in database("other").published(), 60, "the other directory's result")
        tools.eventually(lambda: "does not answer" in watching(database("run")).get("trouble", ""), 60, "the trouble in the status")
        heartbeat = pathlib.Path(f"{sidecar.database}.status.json")
        before = heartbeat.stat().st_mtime_ns
        tools.eventually(lambda: heartbeat.stat().st_mtime_ns > before, 60, "a heartbeat")
        assert tools.threads_of(sidecar.process.pid) <= threads
        assert set(sidecar.states()) == {(5, "regular")} and sidecar.published() == {(5, "regular")}

        fuse.thaw()
        tools.eventually(lambda: (10, "regular") in database("run").published(), 60, "the result after the hang")
        assert "answers again" in sidecar.log()
        check_values(sidecar, bench, [(first, "regular"), (second, "regular")])
        sidecar.run = other
        check_values(sidecar, bench, [(elsewhere, "regular")])
        sidecar.run = bench.run
        tools.check_canary(bench, sidecar)

        # A call that the daemon had begun when it was stopped cannot even be killed: nothing may be under way.
        time.sleep(1.6)
        fuse.freeze()
        tools.eventually(lambda: "does not answer" in watching(sidecar).get("trouble", ""), 60, "the trouble in the status")
        assert tools.within(5, bench.evalcar, sidecar.stop) == 0


def test_hung_read_mid_load(bench, shards, namespace, preload):
    """The server goes away while the evaluator loads: the API answers and the watchdog is fed all the time, no thread is added, the load
    ends at its deadline with that reason, and the result comes when the mount answers again."""
    period = 3
    with Bindfs(namespace, bench.run, bench.home / "mnt") as fuse, tools.NotifySocket(bench.home / "notify") as notify:
        port = free_port()
        api = Api(port)
        sidecar = behind(bench, namespace, fuse.mount, *POLL, "--set", f"server.listen=127.0.0.1:{port}", "--set", "limits.attempts=20",
                         "--set", "limits.retry_delay=100ms", "--set", "limits.stage_timeouts=loading=4s")  # fmt: skip
        sidecar.environment.update(notify.environment(watchdog_s=period))
        calls = FailingCalls(sidecar, preload)
        sidecar.start()
        api.wait_until_up(sidecar)
        first = checkpoints.write_hugging_face(bench.run, 5)
        wait_published(sidecar, 5)

        threads = tools.threads_of(sidecar.process.pid)
        calls.begin("inspect", "slow", 1, "rank_0.pt")
        second = checkpoints.write_fsdp2(bench.run, 10, shards, ema=False)
        sidecar.wait_for(lambda s: len(bench.heard("load")) == 2, what="the load")
        time.sleep(0.5)
        fuse.freeze()
        began = time.monotonic()
        most = 0
        while time.monotonic() - began < 60 and attempts(sidecar, 10)[0][0] == "running":
            asked = time.monotonic()
            assert api.get("/health")["status"] == "healthy"
            most = max(most, time.monotonic() - asked)
            assert tools.threads_of(sidecar.process.pid) <= threads
            time.sleep(0.1)
        (ended, *_) = attempts(sidecar, 10)
        assert ended[:3] == ("failed", "timeout", "loading"), ended
        assert most < 1, f"the API took {most} s"
        tools.eventually(lambda: "does not answer" in watching(sidecar).get("trouble", ""), 60, "the trouble in the status")
        assert not sidecar.published() - {(5, "regular")}

        calls.end()
        fuse.thaw()
        wait_published(sidecar, 10)
        pings = [when for when in notify.times("WATCHDOG=1") if when >= began]
        assert max(after - before for before, after in itertools.pairwise([began, *pings])) < period
        check_values(sidecar, bench, [(first, "regular"), (second, "regular")])
        assert len(sidecar.metrics_lines()) == 2
        tools.check_canary(bench, sidecar)


# ---- much of everything


STORM = r"""
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>
int main(int argc, char** argv) { /* PATH COUNT [x]: writes to one, and says in the other how often it has, as a little-endian number */
  int count = open(argv[2], O_CREAT | O_WRONLY, 0644);
  int file = -1;
  for (uint64_t written = 1;; ++written) {
    if (argc == 4) { /* stays open, as a log does */
      if (file < 0) file = open(argv[1], O_CREAT | O_WRONLY, 0644);
      if (pwrite(file, "x", 1, 0) != 1) return 1;
    } else {
      file = open(argv[1], O_CREAT | O_WRONLY, 0644);
      if (write(file, "x", 1) != 1 || close(file) != 0 || unlink(argv[1]) != 0) return 1;
    }
    if (written % 1000 == 0 && pwrite(count, &written, sizeof written, 0) < 0) return 1;
  }
}
"""


@pytest.mark.parametrize("stays_open", [False, True], ids=["files", "one_file"])
def test_event_storm(bench, figures, stays_open):
    """As many writes in the tree as the machine makes, beside two processes that do nothing else: less than a fifth of a processor, and
    the canary is found. Each write opens, writes, closes and removes a file: four changes that a watch could hear of; or writes to a file
    that stays open, some hundred thousand times a second."""
    sidecar = bench.sidecar().start()
    checkpoints.write_hugging_face(bench.run, 5)
    wait_published(sidecar, 5)
    tools.need("gcc")
    source, program = bench.home / "storm.c", bench.home / "storm"
    source.write_text(STORM)
    subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-o", program, source], check=True)
    counts = [bench.home / f"writes-{n}" for n in range(2)]
    storm = [subprocess.Popen([program, bench.run / f"log-{n}", count, *(["x"] if stays_open else [])]) for n, count in enumerate(counts)]

    def writes():
        return sum(int.from_bytes(count.read_bytes(), "little") for count in counts if count.exists())

    try:
        time.sleep(0.5)
        began, cpu, written = time.monotonic(), tools.cpu_seconds(sidecar.process.pid), writes()
        time.sleep(3)
        took = time.monotonic() - began
        share = (tools.cpu_seconds(sidecar.process.pid) - cpu) / took
        rate = (writes() - written) / took
        figures(f"event storm{' in open files' if stays_open else ''}: {rate:.0f} writes a second, {share:.3f} of a processor")
        tools.check_canary(bench, sidecar)
    finally:
        for process in storm:
            process.kill()
            process.wait()
    assert share < 0.2 and rate > 0


@pytest.mark.parametrize("count", [10_000, pytest.param(50_000, marks=pytest.mark.full)])
def test_huge_dir(bench, count, figures):
    """So many files in a checkpoint: no watch for each, no time lost on them again and again."""
    folder = checkpoints.write_hugging_face(bench.run, 5)
    (folder / "states").mkdir()
    for number in range(count):
        os.close(os.open(folder / "states" / f"{number}", os.O_CREAT, 0o644))
    sidecar = bench.sidecar(*QUICK).start()
    wait_published(sidecar, 5)
    assert tools.watches_of(sidecar.process.pid) < 32
    time.sleep(0.5)
    began, cpu = time.monotonic(), tools.cpu_seconds(sidecar.process.pid)
    time.sleep(2)
    share = (tools.cpu_seconds(sidecar.process.pid) - cpu) / (time.monotonic() - began)
    figures(f"{count} files in a checkpoint: {share:.3f} of a processor at rest")
    assert share < 0.1
    check_values(sidecar, bench, [(folder, "regular")])
    tools.check_canary(bench, sidecar)
    shutil.rmtree(folder)  # else pytest keeps it
