"""A trainer that comes back to a step and writes over what it left there: whole files of two saves are no checkpoint."""

import json
import signal
import time

import checkpoints
from harness import hash_of, leases

KINDS = {"regular": "pytorch_model_fsdp_0", "ema": "pytorch_ema_model_fsdp_0"}


def put_shard(folder, content_of, template, rank, kind="regular", size=None):
    """One shard in place, as torch.save writes it, with the weights of that step."""
    path = folder / KINDS[kind] / f"model_world_size_2_rank_{rank}.pt"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((template / f"{content_of}-{kind}-{rank}.pt").read_bytes()[:size])


def put_config(folder):
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl", "architectures": ["X"]}))


def numbers(sidecar, step, kind):
    return [line["weights_sha256"] for line in sidecar.metrics_lines() if (line["global_step"], line["checkpoint_type"]) == (step, kind)]


def test_shards_of_two_saves_are_never_measured_together(bench, shards):
    sidecar = bench.sidecar("--set", "watch.settle_time=4s", "--set", "watch.poll_interval=500ms").start()
    folder = checkpoints.write_fsdp2(bench.run, 5, shards, ema=False)
    put_shard(folder, 5, shards, 1, size=900)  # killed here, as far as the agent ever saw
    sidecar.wait_for(lambda s: (5, "regular") in s.states(), what="the row")
    before = len(bench.heard("load"))
    time.sleep(1.5)

    put_shard(folder, 10, shards, 1)  # the same step again; rank 0 is late
    time.sleep(1.5)
    assert len(bench.heard("load")) == before, "measured with a shard of the save before"
    put_shard(folder, 10, shards, 0)
    put_config(folder)

    sidecar.wait_for(lambda s: hash_of(bench.evalcar, folder, "regular") in numbers(s, 5, "regular"), what="the number of the second save")
    whole = {hash_of(bench.evalcar, checkpoints.write_fsdp2(bench.home, step, shards, ema=False), "regular") for step in (5, 10)}
    assert set(numbers(sidecar, 5, "regular")) <= whole
    assert sidecar.stop() == 0


def test_a_checkpoint_that_was_rewritten_in_part_keeps_nobody_back(bench, shards):
    bench.tell(delay=0.3)
    for step in (5, 10):
        checkpoints.write_fsdp2(bench.run, step, shards)
    sidecar = bench.sidecar("--set", "evaluate.policy=every", "--set", "watch.settle_time=1s", "--set", "watch.poll_interval=500ms").start()
    sidecar.wait_for(lambda s: s.states().get((10, "regular"), [""])[0] == "leased", what="the lease of step 10")
    put_shard(bench.run / "checkpoint-10", 15, shards, 0)  # killed before rank 1
    folder = checkpoints.write_fsdp2(bench.run, 15, shards)

    sidecar.wait_for(lambda s: s.published() >= {(5, "regular"), (5, "ema"), (15, "regular"), (15, "ema")}, what="the others")
    assert numbers(sidecar, 15, "regular") == [hash_of(bench.evalcar, folder, "regular")]
    assert numbers(sidecar, 10, "regular") == []
    sidecar.wait_for(lambda s: s.states()[10, "regular"][0] == "lost", what="the end of the rewritten one")
    assert sidecar.stop() == 4
    assert sidecar.once(timeout=60) in (0, 4) and leases(bench.run) == []


def test_weights_that_come_with_a_rewrite_are_measured_without_a_restart(bench, shards):
    sidecar = bench.sidecar("--set", "watch.settle_time=60s", "--set", "watch.poll_interval=500ms").start()
    folder = checkpoints.write_fsdp2(bench.run, 5, shards, ema=False)
    sidecar.wait_for(lambda s: numbers(s, 5, "regular"), what="the first number")

    sidecar.process.send_signal(signal.SIGSTOP)  # one look finds all of it
    for rank in (0, 1):
        for kind in KINDS:
            put_shard(folder, 10, shards, rank, kind)
    put_config(folder)
    sidecar.process.send_signal(signal.SIGCONT)

    for kind in KINDS:
        sha256 = hash_of(bench.evalcar, folder, kind)
        sidecar.wait_for(lambda s, k=kind, h=sha256: h in numbers(s, 5, k), what=f"the number of the new {kind} weights")
    assert sidecar.stop() == 0


def test_after_a_restart_weights_that_were_rewritten_in_part_are_known(bench, shards):
    """Regular weights are of the second save; of EMA one shard is, when trainer and agent are killed."""
    sidecar = bench.sidecar("--set", "watch.settle_time=2s", "--set", "watch.poll_interval=500ms").start()
    folder = checkpoints.write_fsdp2(bench.run, 5, shards)
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="the numbers of the first save")
    for rank in (0, 1):
        put_shard(folder, 10, shards, rank)
    put_config(folder)
    sidecar.wait_for(lambda s: len(numbers(s, 5, "regular")) == 2, what="the new number")
    sidecar.process.send_signal(signal.SIGSTOP)
    put_shard(folder, 10, shards, 0, "ema")
    sidecar.kill()

    sidecar.start()
    sidecar.wait_for(lambda s: "in part" in s.states()[5, "ema"][1] or len(numbers(s, 5, "ema")) > 1, what="a verdict")
    time.sleep(3)
    assert len(numbers(sidecar, 5, "ema")) == 1
    put_shard(folder, 10, shards, 1, "ema")
    put_config(folder)
    sidecar.wait_for(lambda s: hash_of(bench.evalcar, folder, "ema") in numbers(s, 5, "ema"), what="EMA of the second save")
    assert sidecar.stop() == 0


def test_a_save_over_a_part_of_one_that_was_never_complete_is_not_measured_after_a_restart(bench, shards):
    """Trainer and agent are killed in the first save, and once more in the second: every file is whole, and they are of both."""
    quick = ("--set", "watch.settle_time=2s", "--set", "watch.poll_interval=500ms")
    sidecar = bench.sidecar(*quick).start()
    made = checkpoints.write_fsdp2(bench.home, 10, shards, ema=False)
    (made / "config.json").unlink()  # nothing of it was ever complete
    folder = made.rename(bench.run / made.name)
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM unfinished_folder WHERE files LIKE '%rank_1%'"), what="the memory of it")
    sidecar.kill()
    put_shard(folder, 15, shards, 1)
    put_config(folder)

    sidecar.start()
    sidecar.wait_for(lambda s: "of two saves" in s.states().get((10, "regular"), ["", ""])[1], what="the doubt")
    time.sleep(4)
    assert sidecar.metrics_lines() == [] and bench.heard("load") == []
    put_shard(folder, 15, shards, 0)
    put_shard(folder, 15, shards, 1)
    put_config(folder)
    sidecar.wait_for(lambda s: numbers(s, 10, "regular") == [hash_of(bench.evalcar, folder, "regular")], what="the number of the second save")
    sidecar.wait_for(lambda s: not s.query("SELECT 1 FROM unfinished_folder"), what="the end of that memory")
    assert sidecar.stop() == 0
