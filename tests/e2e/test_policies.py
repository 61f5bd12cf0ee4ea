"""Which checkpoints are evaluated, which of them stay on disk, and when the agent has done its work (evaluate.eval_strategy,
publish.keep_best, watch.exit_*)."""

import datetime
import json
import shutil
import subprocess
import time

import checkpoints
import fake_evaluator
import pytest
from harness import check_published_once, hash_of, leases


def value_of(sha256):
    return fake_evaluator.expected_value(sha256, "docvqa_val", 6)


def leased(step):
    return f"SELECT 1 FROM evaluations WHERE step = {step} AND state NOT IN ('found', 'complete')"


def save(bench, sidecar, step, limit=1, **state):
    """As the Hugging Face Trainer with save_total_limit; waits for the lease, which a real interval gives time for."""
    folder = checkpoints.write_hugging_face(bench.run, step, **state)
    sha256 = hash_of(bench.evalcar, folder, "regular")
    sidecar.wait_for(lambda s: s.query(leased(step)), what="the lease")
    checkpoints.prune_hugging_face(bench.run, limit)
    return sha256


def best_json(bench):
    path = bench.run / "_evalcar" / "best.json"
    return json.loads(path.read_text())["best"] if path.exists() else {}


def kept_path(bench, kind="regular"):
    return best_json(bench).get(kind, {}).get("kept_path") or ""


# ---- evalcar backfill


def backfill(bench, sidecar):
    return subprocess.run([bench.evalcar, "backfill", "--db", str(sidecar.database)], capture_output=True, text=True, timeout=60)


def test_backfill_measures_what_a_cadence_left_out_and_is_still_there(bench, shards):
    folders = {step: checkpoints.write_fsdp2(bench.run, step, shards) for step in (5, 10, 15, 20)}
    arguments = ("--set", "evaluate.every_nth=4", "--set", "watch.settle_time=1s")
    assert bench.sidecar(*arguments).once() == 0
    sidecar = bench.sidecar(*arguments).start()
    shutil.rmtree(folders[10])
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM checkpoint WHERE step = 10 AND gone_at <> ''"), what="that one is gone")
    asked = set(sidecar.published())
    assert {step for step, _ in asked} < {5, 10, 15, 20}

    done = backfill(bench, sidecar)

    assert done.returncode == 0, done.stderr
    expected = asked | {(step, kind) for step in (5, 15, 20) for kind in ("regular", "ema")}
    sidecar.wait_for(lambda s: s.published() == expected, what="the others")
    check_published_once(sidecar, {(step, kind): hash_of(bench.evalcar, folders[step], kind) for step, kind in expected})
    again = backfill(bench, sidecar)
    assert (again.returncode, again.stdout + again.stderr) == (3, "nothing was passed over whose weights are still there\n")
    assert sidecar.stop() == 0
    assert backfill(bench, sidecar).returncode == 1  # nobody is there who knows what is wanted


def test_backfill_brings_back_what_latest_gave_up_but_not_what_was_cancelled(bench):
    gate = bench.home / "gate"
    bench.tell(at_sample={"doc": 0, "do": "wait", "until": str(gate)})
    folders = {step: checkpoints.write_hugging_face(bench.run, step) for step in (5, 10, 15)}
    sidecar = bench.sidecar("--set", "evaluate.policy=latest").start()
    sidecar.wait_for(lambda s: s.states().get((10, "regular"), [""])[0] == "superseded", what="that 10 is given up")
    sidecar.wait_for(lambda s: s.states().get((15, "regular"), [""])[0] == "evaluating", what="the newest")
    (cancelled,) = sidecar.query("SELECT evaluation_id FROM evaluations WHERE step = 15")[0]
    sidecar.wait_for(lambda s: bench.heard("act wait"), what="its first document")
    bench.tell()
    assert subprocess.run([bench.evalcar, "cancel", str(cancelled), "--db", str(sidecar.database)]).returncode == 0
    sidecar.wait_for(lambda s: bench.heard("cancelled"), what="that it heard of it")
    gate.touch()

    done = backfill(bench, sidecar)

    assert (done.returncode, done.stdout) == (0, "2 evaluations that were passed over wait now\n"), done
    folders[20] = checkpoints.write_hugging_face(bench.run, 20)
    measured = (5, 10, 20)
    sidecar.wait_for(lambda s: s.published() == {(step, "regular") for step in measured}, what="all but the cancelled one")
    check_published_once(sidecar, {(step, "regular"): hash_of(bench.evalcar, folders[step], "regular") for step in measured})
    assert sidecar.states()[15, "regular"][0] == "skipped"
    assert sidecar.stop() == 0


def test_under_latest_a_stale_folder_of_a_higher_step_gives_nothing_up(bench):
    """It lies there from an earlier training, and waits for its next try while the one that goes on saves below it."""
    bench.tell(error={"retryable": True})
    checkpoints.write_hugging_face(bench.run, 1000, seed="earlier")
    sidecar = bench.sidecar("--set", "evaluate.policy=latest", "--set", "limits.retry_delay=10min").start()
    sidecar.wait_for(lambda s: s.states().get((1000, "regular"), [""])[0] == "failed", what="that 1000 failed")
    bench.tell()

    for step in (100, 200):
        folder = checkpoints.write_hugging_face(bench.run, step)
        sha256 = hash_of(bench.evalcar, folder, "regular")
        sidecar.wait_for(lambda s, step=step: (step, "regular") in s.published(), what=f"the result of {step}")
        assert sidecar.metrics_lines()[-1]["weights_sha256"] == sha256

    assert sidecar.states()[1000, "regular"][0] == "failed"
    assert sidecar.stop() == 0


# ---- publish.keep_best


def names_of(steps, kind="regular"):
    return sorted(f"{step}-1-{kind}" for step in steps)


def test_the_best_checkpoints_outlive_retention_and_are_named_in_best_json(bench):
    sidecar = bench.sidecar("--set", "publish.keep_best=2").start()
    hashes = {step: save(bench, sidecar, step) for step in range(5, 40, 5)}
    sidecar.wait_for(lambda s: len(s.published()) == len(hashes), what="all results")
    ranked = sorted(hashes, key=lambda step: -value_of(hashes[step]))
    sidecar.wait_for(lambda s: leases(bench.run) == names_of(ranked[:2]), timeout=60, what="the two leases")

    best = best_json(bench)["regular"]
    assert (best["step"], best["weights_sha256"]) == (ranked[0], hashes[ranked[0]])
    assert best["kept_path"] == str(bench.run / "_evalcar" / "leases" / f"{ranked[0]}-1-regular")
    assert hash_of(bench.evalcar, best["kept_path"], "regular") == hashes[ranked[0]]
    kept = {step for (step,) in sidecar.query("SELECT step FROM checkpoints WHERE kept_path <> ''")}
    assert kept == set(ranked[:2])

    sidecar.kill()  # whatever is kept follows from the rows
    sidecar.start("--set", "publish.keep_best=1")
    sidecar.wait_for(lambda s: leases(bench.run) == names_of(ranked[:1]), timeout=60, what="the end of the second")
    assert best_json(bench)["regular"]["kept_path"] == best["kept_path"]
    assert sidecar.stop() == 0
    assert sidecar.once("--set", "publish.keep_best=0") == 0
    assert leases(bench.run) == []
    assert best_json(bench)["regular"]["kept_path"] is None
    check_published_once(sidecar, {(step, "regular"): sha256 for step, sha256 in hashes.items()})


def test_an_agent_that_ends_leaves_no_more_than_the_best(bench):
    """Whatever the order of the numbers: the last one measured may be the best, or not."""
    for k in range(4):
        run = bench.home / f"run{k}"
        for step in (5, 10):
            checkpoints.write_hugging_face(run, step, seed=f"{k} {step}")
        bench.run = run
        sidecar = bench.sidecar("--set", "publish.keep_best=1", "--set", f"store.path={bench.home}/{k}.db")

        assert sidecar.once() == 0, sidecar.log()

        assert leases(run) == names_of([best_json(bench)["regular"]["step"]])


def test_kills_at_any_time_leave_the_same_best_checkpoints(bench):
    bench.tell(delay=0.02)
    sidecar = bench.sidecar("--set", "publish.keep_best=1").start()
    hashes = {}
    for step in range(5, 30, 5):
        hashes[step] = save(bench, sidecar, step)
        time.sleep(0.03 * (step % 4))
        sidecar.kill()
        sidecar.start()
    sidecar.wait_for(lambda s: len(s.published()) == len(hashes), what="all results")
    best = max(hashes, key=lambda step: value_of(hashes[step]))
    sidecar.wait_for(lambda s: leases(bench.run) == names_of([best]), timeout=60, what="the one lease")
    assert hash_of(bench.evalcar, best_json(bench)["regular"]["kept_path"], "regular") == hashes[best]
    assert sidecar.stop() == 0


def test_regular_and_ema_weights_have_their_own_best(bench, shards):
    sidecar = bench.sidecar("--set", "publish.keep_best=1").start()
    hashes = {}
    for step in (5, 10, 15, 20):
        folder = checkpoints.write_fsdp2(bench.run, step, shards)
        for kind in ("regular", "ema"):
            hashes[step, kind] = hash_of(bench.evalcar, folder, kind)
        sidecar.wait_for(lambda s, step=step: {(step, "regular"), (step, "ema")} <= s.published(), what="both results")
        checkpoints.prune_lmms_engine(bench.run, 1)
    best = {kind: max((5, 10, 15, 20), key=lambda step: value_of(hashes[step, kind])) for kind in ("regular", "ema")}
    wanted = sorted(f"{best[kind]}-1-{kind}" for kind in best)
    sidecar.wait_for(lambda s: leases(bench.run) == wanted, timeout=60, what="one lease of each kind")
    for kind, step in best.items():
        assert hash_of(bench.evalcar, best_json(bench)[kind]["kept_path"], kind) == hashes[step, kind]
    assert sidecar.stop() == 0


def test_what_is_kept_counts_against_the_budget_and_goes_last(bench):
    """A checkpoint's weights are 2 KiB: there is room for one of the two that are wanted."""
    sidecar = bench.sidecar("--set", "publish.keep_best=2", "--set", "limits.lease_budget=3KiB").start()
    hashes = {}
    for step in (5, 10, 15, 20, 25):  # measured at once: what waits would go before what is kept
        hashes[step] = save(bench, sidecar, step, seed=f"27 {step}")
        sidecar.wait_for(lambda s, step=step: (step, "regular") in s.published(), what="its result")
    ranked = sorted(hashes, key=lambda step: -value_of(hashes[step]))
    assert ranked == [10, 25, 20, 5, 15]
    # The newest is still the trainer's, and costs nothing.
    sidecar.wait_for(lambda s: leases(bench.run) == names_of([10, 25]), timeout=20, what="the budget")
    assert sidecar.published() == {(step, "regular") for step in hashes}
    path = best_json(bench)["regular"]["kept_path"]
    assert path is not None and hash_of(bench.evalcar, path, "regular") == hashes[ranked[0]]
    assert sidecar.stop() == 0


def test_a_kept_checkpoint_that_is_rewritten_in_place_is_never_taken_for_what_was_measured(bench):
    """A hard link shows the new bytes. The same weights again are kept as those; others are measured first."""
    folder = checkpoints.write_hugging_face(bench.run, 5, seed="first")
    sidecar = bench.sidecar("--set", "publish.keep_best=1", "--set", "watch.settle_time=1s").start()
    sidecar.wait_for(lambda s: (5, "regular") in s.published() and kept_path(bench), what="the first")
    checkpoints.write_safetensors(folder / "model.safetensors", "first")
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM evaluations WHERE state = 'superseded'"), what="the second look")
    first = sidecar.metrics_lines()[0]["weights_sha256"]
    sidecar.wait_for(lambda s: leases(bench.run) == ["5-2-regular"], timeout=60, what="the lease of the second save")
    sidecar.wait_for(lambda s: kept_path(bench).endswith("5-2-regular"), what="its place")
    assert hash_of(bench.evalcar, best_json(bench)["regular"]["kept_path"], "regular") == first

    checkpoints.write_safetensors(folder / "model.safetensors", "other")
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 2, what="the other weights' result")
    sidecar.wait_for(lambda s: leases(bench.run) == ["5-3-regular"], timeout=60, what="the lease of the third save")
    sidecar.wait_for(lambda s: kept_path(bench).endswith("5-3-regular"), what="its place")
    best = best_json(bench)["regular"]
    assert best["weights_sha256"] == sidecar.metrics_lines()[1]["weights_sha256"] == hash_of(bench.evalcar, best["kept_path"], "regular")
    assert sidecar.stop() == 0


# ---- evaluate.eval_strategy, eval_steps


def test_eval_steps_leaves_the_other_steps_out_with_a_reason_but_never_the_last(bench):
    for step in range(5, 30, 5):
        checkpoints.write_hugging_face(bench.run, step, max_steps=25, save_steps=5)
    sidecar = bench.sidecar("--set", "evaluate.eval_steps=10")
    assert sidecar.once() == 0
    assert sidecar.published() == {(10, "regular"), (20, "regular"), (25, "regular")}
    for step in (5, 15):
        state, reason = sidecar.states()[step, "regular"]
        assert state == "skipped" and "eval_steps = 10" in reason
    assert leases(bench.run) == []


def test_with_epoch_the_save_nearest_to_the_end_of_each_epoch_is_evaluated(bench):
    """Twelve steps an epoch, a save every five; the ends are at 12, 24, 36, and training stops at 40."""
    for step in range(5, 45, 5):
        checkpoints.write_hugging_face(bench.run, step, max_steps=40, save_steps=5, epoch=step / 12)
    sidecar = bench.sidecar("--set", "evaluate.eval_strategy=epoch")
    assert sidecar.once() == 0
    assert sidecar.published() == {(step, "regular") for step in (10, 25, 35, 40)}
    assert "epoch 1 (step 12)" in sidecar.states()[15, "regular"][1]


def test_with_epoch_and_a_trainer_that_tells_of_none_everything_is_evaluated_and_said(bench, shards):
    for step in (5, 10):
        checkpoints.write_fsdp2(bench.run, step, shards, ema=False)
    sidecar = bench.sidecar("--set", "evaluate.eval_strategy=epoch")
    assert sidecar.once() == 0
    assert sidecar.published() == {(5, "regular"), (10, "regular")}
    assert sidecar.log().count("no trainer_state.json tells of epochs") == 1


def test_with_no_nothing_is_evaluated_but_what_a_person_asks_for(bench):
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step, max_steps=10)
    sidecar = bench.sidecar("--set", "evaluate.eval_strategy=no").start()
    sidecar.wait_for(lambda s: [state for state, _ in s.states().values()] == ["skipped"] * 2, what="both rows")
    bench.tell(delay=0.5)
    subprocess.run([sidecar.evalcar, "retry", "5", "--db", str(sidecar.database)], check=True, timeout=30, capture_output=True)
    sidecar.wait_for(lambda s: bench.heard("generate"), what="the first answer")
    sidecar.kill()  # it is remembered that somebody asked
    bench.tell()
    sidecar.start()
    sidecar.wait_for(lambda s: (5, "regular") in s.published(), what="the result that was asked for")
    assert sidecar.stop() == 0
    assert sidecar.published() == {(5, "regular")} and sidecar.states()[10, "regular"][0] == "skipped"


@pytest.mark.parametrize("source", ["trainer_state.json", "config.yaml"])
def test_a_trainer_that_saves_at_other_steps_is_warned_of_once(bench, shards, source):
    for step in (5, 10, 15):
        if source == "config.yaml":
            (bench.run / "config.yaml").write_text("trainer_args:\n  eval_steps: 5\n  save_steps: 5\n  seed: 1\n")
            checkpoints.write_fsdp2(bench.run, step, shards, ema=False)
        else:
            checkpoints.write_hugging_face(bench.run, step, save_steps=5, max_steps=100)
    sidecar = bench.sidecar("--set", "evaluate.eval_steps=8")
    assert sidecar.once() == 0
    warning = f"evaluate.eval_steps = 8, but the trainer saves every 5 steps ({source}): only the steps that 40 divides"
    assert sidecar.log().count(warning) == 1
    fitting = bench.sidecar("--set", "evaluate.eval_steps=10")
    fitting.log_path = bench.home / "fitting.log"
    assert fitting.once() == 0
    assert "the trainer saves every" not in fitting.log()


def test_a_loss_that_is_no_number_hides_no_checkpoint(bench):
    """Python's json writes NaN as it is; a trainer's log of losses holds it sooner or later."""
    checkpoints.write_hugging_face(bench.run, 5, log_history=[{"loss": float("nan"), "grad_norm": float("inf")}])
    assert "NaN" in (bench.run / "checkpoint-5" / "trainer_state.json").read_text()
    sidecar = bench.sidecar("--set", "watch.settle_time=60s")
    assert sidecar.once(timeout=30) == 0
    assert sidecar.published() == {(5, "regular")}


# ---- the end of training

END = ("--set", "watch.poll_interval=300ms", "--set", "evaluate.eval_steps=10")


def test_a_marker_ends_the_agent_after_the_backlog_and_the_last_checkpoint(bench):
    bench.tell(delay=0.1)
    sidecar = bench.sidecar("--set", "watch.exit_marker=DONE", *END).start()
    for step in (5, 10, 15, 20, 25):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar.wait_for(lambda s: s.published(), what="a result")
    (bench.run / "DONE").touch()
    assert sidecar.wait(30) == 0
    assert sidecar.published() == {(10, "regular"), (20, "regular"), (25, "regular")}
    assert sidecar.states()[15, "regular"][0] == "skipped"


def test_the_end_of_the_trainers_process_ends_the_agent(bench):
    trainer = subprocess.Popen(["sleep", "60"])
    try:
        sidecar = bench.sidecar("--set", f"watch.exit_with_pid={trainer.pid}", *END).start()
        for step in (10, 15):
            checkpoints.write_hugging_face(bench.run, step)
        sidecar.wait_for(lambda s: (10, "regular") in s.published(), what="the first result")
        time.sleep(1.5)
        assert sidecar.process.poll() is None
    finally:
        trainer.kill()  # and nobody waits for it yet: a zombie has ended, too
    assert sidecar.wait(30) == 0
    trainer.wait()
    assert sidecar.published() == {(10, "regular"), (15, "regular")}


def test_the_last_step_ends_the_agent_and_a_lost_checkpoint_shows_in_its_code(bench):
    sidecar = bench.sidecar("--set", "watch.exit_at_max_steps=true", "--set", "watch.settle_time=1s", *END).start()
    broken = checkpoints.write_hugging_face(bench.run, 10, max_steps=25) / "model.safetensors"
    broken.write_bytes(broken.read_bytes()[:-7])
    checkpoints.write_hugging_face(bench.run, 20, max_steps=25)
    sidecar.wait_for(lambda s: (20, "regular") in s.published(), what="the first result")
    checkpoints.write_hugging_face(bench.run, 25, max_steps=25)
    assert sidecar.wait(30) == 4
    assert {(20, "regular"), (25, "regular")} <= sidecar.published()


def test_a_quiet_trainer_has_its_last_checkpoint_evaluated_too(bench):
    for step in (5, 10, 15):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar("--set", "watch.exit_when_quiet=1s", *END).start()
    assert sidecar.wait(30) == 0
    assert sidecar.published() == {(10, "regular"), (15, "regular")}


def test_the_final_save_of_a_step_that_was_just_saved_gives_one_result(bench, shards):
    """lmms-engine writes the last step's checkpoint once more, in place, while the first one is being measured."""
    bench.tell(delay=0.2)
    sidecar = bench.sidecar("--set", "watch.settle_time=3s").start()
    folder = checkpoints.write_fsdp2(bench.run, 5, shards)
    expected = {(5, kind): hash_of(bench.evalcar, folder, kind) for kind in ("regular", "ema")}
    sidecar.wait_for(lambda s: bench.heard("generate"), what="the first answer")
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        content = path.read_bytes()
        path.write_bytes(content)
    bench.tell()
    sidecar.wait_for(lambda s: s.published() == set(expected), what="both results")
    time.sleep(0.5)
    assert sidecar.stop() == 0
    check_published_once(sidecar, expected)


# ---- falling behind


def known_before(bench, count):
    """[(step, seed, sha256)] of checkpoints to come: a hash takes longer than many an interval between two saves."""
    known = []
    for step in range(5, 5 * count + 5, 5):
        folder = checkpoints.write_hugging_face(bench.home / "made", step, seed=f"seed {step}")
        known.append((step, f"seed {step}", hash_of(bench.evalcar, folder, "regular")))
        shutil.rmtree(folder)
    return known


def save_every(interval, bench, sidecar, known):
    """As a trainer that saves at this pace and keeps one checkpoint: what it takes to write and to prune is within the interval. Each is
    leased before the next one: a real interval gives time for that on any machine. Gives the seconds from save to save, as they were."""
    begun = time.monotonic()
    for number, (step, seed, _) in enumerate(known, start=1):
        checkpoints.write_hugging_face(bench.run, step, seed=seed)
        checkpoints.prune_hugging_face(bench.run, 1)
        sidecar.wait_for(lambda s, step=step: s.query(leased(step)), what="the lease")
        time.sleep(max(0.0, begun + number * interval - time.monotonic()))
    return (time.monotonic() - begun) / len(known)


def seconds_of_an_evaluation(lines):
    """From line to line, while one followed the other."""
    first, last = (datetime.datetime.fromisoformat(lines[i]["time"].replace("Z", "+00:00")) for i in (0, -1))
    return (last - first).total_seconds() / (len(lines) - 1)


@pytest.mark.parametrize("count, wait_for_all", [(15, False), pytest.param(200, True, marks=pytest.mark.full)])
def test_an_evaluator_20_times_slower_than_a_trainer_that_keeps_one_checkpoint_loses_none(bench, figures, count, wait_for_all):
    """The short run lets the evaluator be quick once training is over."""
    interval = 0.2 if wait_for_all else 0.4
    known = known_before(bench, count)
    bench.tell(delay=20 * interval / 6)  # of each of its six documents
    sidecar = bench.sidecar("--set", "evaluate.policy=every").start()
    sidecar.wait_for(lambda s: "watching" in s.log(), what="the start")

    period = save_every(interval, bench, sidecar, known)

    behind = count - len(sidecar.published())
    status = json.loads((bench.run / "_evalcar" / "status.json").read_text())
    if not wait_for_all:
        bench.tell()
    sidecar.wait_for(lambda s: len(s.published()) == count, timeout=60 + 40 * interval * count, what="every result")
    lines = sidecar.metrics_lines()
    slow = seconds_of_an_evaluation(lines) if wait_for_all else 20 * interval
    figures(f"{count} saves, one each {period:.3f} s; an evaluation takes {slow:.2f} s, {slow / period:.1f} times as long; when training ended "
            f"{behind} were behind, by status {status['lag_steps']} steps and {status['lag_seconds']:.1f} s; none was lost")  # fmt: skip
    assert behind >= count // 2
    assert sidecar.stop() == 0
    check_published_once(sidecar, {(step, "regular"): sha256 for step, _, sha256 in known})
    assert [line["global_step"] for line in lines] == [step for step, _, _ in known]
    assert leases(bench.run) == []
