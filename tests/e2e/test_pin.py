"""`evalcar pin STEP`: the weights of that step stay, whatever the trainer's retention does, until they are let go."""

import shutil
import subprocess

import checkpoints
from harness import hash_of, leases


def ask(bench, sidecar, *words):
    return subprocess.run([bench.evalcar, *words, "--db", str(sidecar.database)], capture_output=True, text=True, timeout=60)


def pins(bench):
    folder = bench.run / "_evalcar" / "pinned"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_pinned_weights_outlive_retention_and_restarts_until_they_are_let_go(bench, shards):
    folder = checkpoints.write_fsdp2(bench.run, 5, shards)
    expected = {kind: hash_of(bench.evalcar, folder, kind) for kind in ("regular", "ema")}
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: s.published() == {(5, "regular"), (5, "ema")}, what="the results")

    done = ask(bench, sidecar, "pin", "5")

    assert done.returncode == 0, done.stderr
    assert pins(bench) == ["5-1-ema", "5-1-regular"]
    assert ask(bench, sidecar, "pin", "5").returncode == 0  # again: as before
    assert ask(bench, sidecar, "pin", "7").returncode == 3
    shutil.rmtree(folder)
    checkpoints.write_fsdp2(bench.run, 10, shards)
    sidecar.wait_for(lambda s: (10, "ema") in s.published(), what="the next results")
    sidecar.kill()
    sidecar.start()
    sidecar.wait_for(lambda s: leases(bench.run) == [], what="a start that clears leases")
    for kind, sha256 in expected.items():
        assert hash_of(bench.evalcar, bench.run / "_evalcar" / "pinned" / f"5-1-{kind}", kind) == sha256
    assert ask(bench, sidecar, "pin", "5", "--off").returncode == 0
    assert pins(bench) == []
    assert ask(bench, sidecar, "pin", "5").returncode == 3  # gone
    assert ask(bench, sidecar, "pin", "5", "--off").returncode == 3
    assert sidecar.stop() == 0
    assert ask(bench, sidecar, "pin", "10").returncode == 1  # nobody is there who could


def test_a_checkpoint_that_waits_on_its_lease_alone_can_be_pinned(bench):
    bench.tell(delay=600)
    folders = {step: checkpoints.write_hugging_face(bench.run, step) for step in (5, 10)}
    sidecar = bench.sidecar("--set", "evaluate.policy=every").start()
    sidecar.wait_for(lambda s: s.states().get((10, "regular"), ("",))[0] == "leased", what="the lease")
    expected = hash_of(bench.evalcar, folders[10], "regular")
    shutil.rmtree(folders[10])
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM checkpoint WHERE step = 10 AND gone_at <> ''"), what="that it is gone")

    done = ask(bench, sidecar, "pin", "10")

    assert done.returncode == 0, done.stderr
    ((number,),) = sidecar.query("SELECT evaluation_id FROM evaluations WHERE step = 10")
    assert ask(bench, sidecar, "cancel", str(number)).returncode == 0
    assert leases(bench.run) == ["5-1-regular"]
    assert hash_of(bench.evalcar, bench.run / "_evalcar" / "pinned" / "10-1-regular", "regular") == expected


def test_what_is_pinned_goes_last_where_disk_space_is_short(bench):
    folders = [checkpoints.write_hugging_face(bench.run, step) for step in (5, 10)]
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: s.published() == {(5, "regular"), (10, "regular")}, what="the results")
    assert ask(bench, sidecar, "pin", "5").returncode == 0
    assert ask(bench, sidecar, "pin", "10").returncode == 0
    shutil.rmtree(folders[0])
    assert sidecar.stop() == 0

    sidecar = bench.sidecar("--set", "limits.min_free=1000000GiB").start()

    sidecar.wait_for(lambda s: pins(bench) == ["10-1-regular"], what="the end of what only the pin held")
    sidecar.wait_for(lambda s: "5-1-regular: pinned by hand, and given up all the same" in s.log(), what="that it is said")
    assert sidecar.stop() == 0
    assert pins(bench) == ["10-1-regular"]  # it keeps no disk space: the trainer has it, too


def test_what_is_pinned_and_leased_goes_where_disk_space_is_short(bench):
    """Two names of ours keep the files, and each alone frees nothing."""
    bench.tell(delay=600)
    folders = [checkpoints.write_hugging_face(bench.run, step) for step in (5, 10)]
    sidecar = bench.sidecar("--set", "evaluate.policy=every").start()
    sidecar.wait_for(lambda s: s.states().get((10, "regular"), ("",))[0] == "leased", what="the lease")
    assert ask(bench, sidecar, "pin", "10").returncode == 0
    shutil.rmtree(folders[1])
    assert sidecar.stop() == 0
    assert leases(bench.run) == ["10-1-regular", "5-1-regular"] and pins(bench) == ["10-1-regular"]

    sidecar = bench.sidecar("--set", "evaluate.policy=every", "--set", "limits.min_free=1000000GiB").start()

    sidecar.wait_for(lambda s: pins(bench) == [] and "10-1-regular" not in leases(bench.run), what="the end of both")
    sidecar.wait_for(lambda s: s.states()[10, "regular"][0] == "lost", what="that the row says so")
    assert (folders[0] / "model.safetensors").exists()
    sidecar.stop()
