"""The third series: the mean of the last K checkpoints (evaluate.average_last), whatever retention takes meanwhile."""

import json
import shutil
import subprocess

import checkpoints
from harness import hash_of, leases

LAST_2 = ("--set", "evaluate.average_last=2")


def hash_of_merge(sidecar, folders, output):
    """What `evalcar merge --merge` of these checkpoints holds."""
    subprocess.run([sidecar.evalcar, "merge", "--input_dir", ",".join(map(str, folders)), "--merge", "--output_dir", str(output)],
                   capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
    return hash_of(sidecar.evalcar, output, "regular")


def average_lines(sidecar):
    return {line["global_step"]: line for line in sidecar.metrics_lines() if line["checkpoint_type"] == "average"}


def save(bench, shards, step, keep):
    """As lmms-engine saves with save_total_limit=1; `keep` gets a copy."""
    folder = checkpoints.write_fsdp2(bench.run, step, shards)
    shutil.copytree(folder, keep / folder.name)
    checkpoints.prune_lmms_engine(bench.run, 1)


def test_averages_are_of_the_last_checkpoints_though_the_trainer_keeps_one(bench, shards, tmp_path):
    sidecar = bench.sidecar(*LAST_2).start()
    for count, step in enumerate((5, 10, 15, 20), start=1):
        save(bench, shards, step, tmp_path)
        sidecar.wait_for(lambda s: len(s.published()) == 3 * count - 1, what=f"step {step}")  # noqa: B023
    assert sidecar.stop() == 0

    kept = {step: tmp_path / f"checkpoint-{step}" for step in (5, 10, 15, 20)}
    lines = average_lines(sidecar)
    assert sorted(lines) == [10, 15, 20]
    for before, step in ((5, 10), (10, 15), (15, 20)):
        assert lines[step]["weights_sha256"] == hash_of_merge(sidecar, [kept[before], kept[step]], tmp_path / f"mean-{step}")
        assert all(key.startswith("eval_avg/docvqa_val/") for key in lines[step]["metrics"]), lines[step]
    assert leases(bench.run) == ["15-1-regular", "20-1-regular"]  # what the newest average needs if it comes anew, and no more
    assert sorted(path.name for path in bench.run.iterdir()) == ["_evalcar", "checkpoint-20"]


def test_averages_outlive_a_kill_at_any_time_and_are_measured_once(bench, shards, tmp_path):
    bench.tell(delay=0.05)
    sidecar = bench.sidecar("--set", "evaluate.average_last=3").start()
    for count, step in enumerate((5, 10, 15, 20, 25)):
        save(bench, shards, step, tmp_path)
        leased = "SELECT 1 FROM evaluations WHERE state NOT IN ('found', 'complete')"
        sidecar.wait_for(lambda s: len(s.query(leased)) >= 2 * count + 2 + max(0, count - 1), what="the leases")  # noqa: B023
        sidecar.kill()
        sidecar.start()
    bench.tell()
    sidecar.wait_for(lambda s: len(s.published()) == 13, what="every result")
    assert sidecar.stop() == 0
    lines = [line for line in sidecar.metrics_lines() if line["checkpoint_type"] == "average"]
    assert sorted(line["global_step"] for line in lines) == [15, 20, 25]
    for line in lines:
        step = line["global_step"]
        members = [tmp_path / f"checkpoint-{s}" for s in (step - 10, step - 5, step)]
        assert line["weights_sha256"] == hash_of_merge(sidecar, members, tmp_path / f"mean-{step}")
    assert leases(bench.run) == ["15-1-regular", "20-1-regular", "25-1-regular"]


def test_an_average_waits_for_an_older_checkpoint_that_is_still_being_written(bench, shards, tmp_path):
    sidecar = bench.sidecar(*LAST_2).start()
    checkpoints.write_fsdp2(bench.run, 5, shards, ema=False)
    late = checkpoints.write_fsdp2(tmp_path, 10, shards, ema=False)
    missing = late / "pytorch_model_fsdp_0" / "model_world_size_2_rank_1.pt"
    shard = missing.read_bytes()
    missing.unlink()
    shutil.copytree(late, bench.run / "checkpoint-10")
    sidecar.wait_for(lambda s: s.states().get((10, "regular"), ("",))[0] == "found", what="the beginning")
    staged = checkpoints.write_fsdp2(tmp_path / "next", 15, shards, ema=False)
    staged.rename(bench.run / "checkpoint-15")
    sidecar.wait_for(lambda s: (15, "regular") in s.published(), what="the newer one")
    assert (15, "average") not in sidecar.states()
    (bench.run / "checkpoint-10" / "pytorch_model_fsdp_0" / missing.name).write_bytes(shard)
    sidecar.wait_for(lambda s: {(10, "average"), (15, "average")} <= s.published(), what="both averages")
    assert sidecar.stop() == 0
    folders = [bench.run / f"checkpoint-{step}" for step in (5, 10, 15)]
    lines = average_lines(sidecar)
    assert lines[10]["weights_sha256"] == hash_of_merge(sidecar, folders[:2], tmp_path / "mean-10")
    assert lines[15]["weights_sha256"] == hash_of_merge(sidecar, folders[1:], tmp_path / "mean-15")


def test_an_average_one_of_whose_checkpoints_is_gone_is_lost_with_its_reason(bench, shards):
    first = bench.sidecar()
    checkpoints.write_fsdp2(bench.run, 5, shards, ema=False)
    assert first.once() == 0
    shutil.rmtree(bench.run / "checkpoint-5")
    checkpoints.write_fsdp2(bench.run, 10, shards, ema=False)
    sidecar = bench.sidecar(*LAST_2)  # now averages are wanted, too late for this one
    assert sidecar.once() == 4
    state, reason = sidecar.states()[10, "average"]
    assert state == "lost" and "checkpoint-5 is gone" in reason
    assert (10, "regular") in sidecar.published() and average_lines(sidecar) == {}


def test_another_number_of_checkpoints_is_another_evaluation(bench, shards, tmp_path):
    for step in (5, 10, 15):
        checkpoints.write_fsdp2(bench.run, step, shards, ema=False)
    assert bench.sidecar(*LAST_2).once() == 0
    sidecar = bench.sidecar("--set", "evaluate.average_last=3")
    assert sidecar.once() == 0
    folders = [bench.run / f"checkpoint-{step}" for step in (5, 10, 15)]
    lines = [line for line in sidecar.metrics_lines() if line["checkpoint_type"] == "average" and line["global_step"] == 15]
    assert [line["weights_sha256"] for line in lines] == [hash_of_merge(sidecar, folders[1:], tmp_path / "two"),
                                                         hash_of_merge(sidecar, folders, tmp_path / "three")]
    assert lines[1]["supersedes"] == lines[0]["seq"]
    assert leases(bench.run) == ["10-1-regular", "15-1-regular", "5-1-regular"]
    assert bench.sidecar().once() == 0  # and without averages nothing is kept for them
    assert leases(bench.run) == []


def test_averages_go_on_where_regular_weights_are_not_evaluated(bench, shards, tmp_path):
    sidecar = bench.sidecar(*LAST_2, "--set", 'evaluate.weights=["ema"]').start()
    for step in (5, 10):
        save(bench, shards, step, tmp_path)
        sidecar.wait_for(lambda s: (step, "ema") in s.published(), what=f"step {step}")  # noqa: B023
    sidecar.wait_for(lambda s: (10, "average") in s.published(), what="the average")
    assert sidecar.stop() == 0
    assert average_lines(sidecar)[10]["weights_sha256"] == hash_of_merge(
        sidecar, [tmp_path / "checkpoint-5", tmp_path / "checkpoint-10"], tmp_path / "mean")


def test_the_window_is_given_up_first_where_disk_space_is_short(bench, shards, tmp_path):
    sidecar = bench.sidecar(*LAST_2, "--set", "limits.lease_budget=1B").start()
    save(bench, shards, 5, tmp_path)
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="step 5")
    shutil.rmtree(bench.run / "checkpoint-5")  # now only the window holds its weights
    sidecar.wait_for(lambda s: "were given up" in s.log(), timeout=20, what="the end of the window")
    assert leases(bench.run) == []
    checkpoints.write_fsdp2(bench.run, 10, shards)
    sidecar.wait_for(lambda s: s.states().get((10, "average"), ("",))[0] == "lost", what="its end")
    sidecar.wait_for(lambda s: len(s.published()) == 4, what="step 10")
    assert sidecar.stop() == 4


def test_a_line_of_an_average_is_plain(bench, shards):
    """Of the contract: metrics.jsonl, results files, the view, best.json."""
    for step in (5, 10):
        checkpoints.write_fsdp2(bench.run, step, shards, ema=False)
    sidecar = bench.sidecar(*LAST_2)
    assert sidecar.once() == 0
    home = bench.run / "_evalcar"
    assert list((home / "results" / "10" / "average").rglob("*_results.json"))
    best = json.loads((home / "best.json").read_text())["best"]
    assert best["average"]["step"] == 10
    rows = sidecar.query("SELECT step, checkpoint_type FROM metrics WHERE checkpoint_type = 'average' AND metric = 'anls'")
    assert rows == [(10, "average")]
