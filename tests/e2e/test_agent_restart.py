"""What the next start of the agent makes of what the last one left: leases, rows, another configuration, another spelling."""

import json
import os
import shutil
import signal
import subprocess

import checkpoints
import pytest


def leave_leased(bench, sidecar, steps, write=checkpoints.write_hugging_face):
    """Checkpoints are leased, the agent is killed, and the trainer's retention takes the folders while nobody watches."""
    for step in steps:
        write(bench.run, step)
    bench.tell(hang=True)
    sidecar.start()
    sidecar.wait_for(lambda s: len([1 for state, _ in s.states().values() if state in ("leased", "loading")]) == len(steps),
                     what="all leases")
    sidecar.wait_for(lambda s: bench.heard("load"), what="the evaluator")
    sidecar.kill()
    for step in steps:
        shutil.rmtree(bench.run / f"checkpoint-{step}")
    bench.tell()


def lease_bytes(run):
    return sum(p.stat().st_size for p in (run / "_evalcar" / "leases").rglob("*") if p.is_file())


def test_leases_of_an_earlier_process_count_for_the_disk_and_the_oldest_go_first(bench):
    sidecar = bench.sidecar()
    leave_leased(bench, sidecar, (5, 10, 15))
    budget = lease_bytes(bench.run) // 2

    assert sidecar.once("--set", f"limits.lease_budget={budget}B") == 4

    states = sidecar.states()
    assert sidecar.published() == {(15, "regular")}
    for step in (5, 10):
        assert states[step, "regular"][0] == "lost" and "limits.lease_budget" in states[step, "regular"][1]
    assert list((bench.run / "_evalcar" / "leases").iterdir()) == []


def test_another_spelling_of_the_same_directory_keeps_the_leases(bench):
    (bench.home / "link").symlink_to(bench.run)
    by_link = bench.sidecar()
    by_link.command[2] = str(bench.home / "link")
    leave_leased(bench, by_link, (5, 10))

    assert bench.sidecar().once() == 0
    assert by_link.published() == {(5, "regular"), (10, "regular")}
    assert list((bench.run / "_evalcar" / "leases").iterdir()) == []


def test_retry_of_a_failed_evaluation_goes_on_from_its_lease(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(error={"retryable": True})
    sidecar = bench.sidecar("--set", "limits.retry_delay=1h").start()
    sidecar.wait_for(lambda s: s.states().get((5, "regular"), ("",))[0] == "failed", what="the failure")
    sidecar.stop()
    shutil.rmtree(bench.run / "checkpoint-5")
    bench.tell()
    subprocess.run([sidecar.evalcar, "retry", "5", "--db", str(sidecar.database)], check=True, env=sidecar.environment)

    assert sidecar.once(timeout=20) == 0
    assert sidecar.published() == {(5, "regular")}


def test_the_order_of_the_tasks_is_no_other_configuration(bench):
    leave_leased(bench, bench.sidecar(tasks="docvqa_val,mmmu_val"), (5,))
    again = bench.sidecar(tasks="mmmu_val,docvqa_val")

    assert again.once() == 0
    assert again.query("SELECT state FROM evaluations") == [("published",)]


def test_another_configuration_takes_over_the_lease_of_a_checkpoint_that_is_gone(bench):
    sidecar = bench.sidecar()
    leave_leased(bench, sidecar, (5,))

    assert sidecar.once("--set", "evaluate.max_pixels=500000") == 0
    assert sidecar.query("SELECT state FROM evaluations ORDER BY evaluation_id") == [("skipped",), ("published",)]
    assert list((bench.run / "_evalcar" / "leases").iterdir()) == []


def test_every_nth_counts_a_backlog_from_its_oldest_checkpoint(bench):
    for step in (5, 10, 15, 20, 25):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar("--set", "evaluate.every_nth=2")

    assert sidecar.once() == 0
    assert sidecar.published() == {(5, "regular"), (15, "regular"), (25, "regular")}
    assert [line["global_step"] for line in sidecar.metrics_lines()] == [25, 15, 5]


def test_a_last_save_without_its_end_marker_does_not_keep_once_from_ending(bench):
    (checkpoints.write_hugging_face(bench.run, 5) / "DONE").touch()
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar = bench.sidecar("--set", "watch.end_marker=DONE", "--set", "watch.settle_time=1s")

    assert sidecar.once(timeout=20) == 4
    assert sidecar.published() == {(5, "regular")}
    state, reason = sidecar.states()[10, "regular"]
    assert state == "quarantined" and "end_marker" in reason


def test_why_a_lone_checkpoint_is_not_measured_is_said_once(bench):
    """Nothing newer ever sets it aside: without a word of its own nobody would know."""
    folder = checkpoints.write_hugging_face(bench.run, 5)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:100])
    sidecar = bench.sidecar("--set", "watch.settle_time=500ms", "--set", "watch.poll_interval=200ms").start()

    sidecar.wait_for(lambda s: "not whole" in s.log(), timeout=60, what="a word about it")
    reason = sidecar.states()[5, "regular"][1]
    checkpoints.write_hugging_face(bench.run, 3)
    sidecar.wait_for(lambda s: s.published() == {(3, "regular")}, what="another one")

    assert reason and sidecar.log().count(f"not whole, and nothing moves: {reason}") == 1, sidecar.log()
    (folder / "model.safetensors").write_bytes(whole)
    sidecar.wait_for(lambda s: (5, "regular") in s.published(), what="it, once it is whole")
    assert sidecar.stop() == 0


def test_a_torn_checkpoint_that_went_while_no_agent_ran_ends_as_lost(bench):
    checkpoints.write_hugging_face(bench.run, 10)
    torn = checkpoints.write_hugging_face(bench.run, 5)
    (torn / "model.safetensors").write_bytes((torn / "model.safetensors").read_bytes()[:-7])
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: s.states().get((5, "regular"), ("",))[0] == "found" and s.published(), what="both rows")
    sidecar.kill()
    shutil.rmtree(torn)

    assert sidecar.once() == 4
    state, reason = sidecar.states()[5, "regular"]
    assert state == "lost" and "model.safetensors" in reason


def test_torn_weights_that_nobody_wants_are_no_failure(bench, shards):
    folder = checkpoints.write_fsdp2(bench.run, 5, shards)
    (folder / "pytorch_ema_model_fsdp_0" / "model_world_size_2_rank_1.pt").unlink()
    sidecar = bench.sidecar("--set", 'evaluate.weights=["regular"]', "--set", "watch.settle_time=1s")

    assert sidecar.once() == 0
    assert sidecar.published() == {(5, "regular")}
    state, reason = sidecar.states()[5, "ema"]
    assert state == "skipped" and "evaluate.weights" in reason


def test_the_newest_step_goes_down_when_the_trainer_goes_back(bench):
    for step in (5, 20):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="both results")
    shutil.rmtree(bench.run / "checkpoint-20")  # the run goes on from step 5
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar.wait_for(lambda s: len(s.published()) == 3, what="the third result")
    assert sidecar.stop() == 0

    line = sidecar.metrics_lines()[-1]
    assert (line["global_step"], line["lag_steps"]) == (10, 0)


def test_a_place_that_cannot_be_written_is_measured_in_place_and_published_once_it_can(bench):
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
    (bench.run / "_evalcar").write_text("in the way")
    sidecar = bench.sidecar()

    assert sidecar.once(timeout=30) == 1
    assert {key: state for key, (state, _) in sidecar.states().items()} == {(5, "regular"): "scored", (10, "regular"): "scored"}
    assert all("not published yet" in reason and "_evalcar" in reason for _, reason in sidecar.states().values())
    assert sidecar.log().count("going on without leases") == 1
    generated = len(bench.heard("generate"))

    (bench.run / "_evalcar").unlink()
    assert sidecar.once() == 0
    assert sidecar.published() == {(5, "regular"), (10, "regular")}
    assert len(sidecar.metrics_lines()) == 2 and len(bench.heard("generate")) == generated


def test_a_failing_publish_dir_stops_neither_leases_nor_measuring(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    (bench.home / "blocked").write_text("in the way")
    sidecar = bench.sidecar("--set", f"publish.dir={bench.home / 'blocked' / 'results'}").start()
    sidecar.wait_for(lambda s: s.states().get((5, "regular"), ("",))[0] == "scored", what="the score")
    checkpoints.write_hugging_face(bench.run, 10)  # and what comes later
    sidecar.wait_for(lambda s: s.states().get((10, "regular"), ("",))[0] == "scored", what="the second score")
    assert (bench.run / "_evalcar" / "leases").is_dir() and "in place" not in sidecar.log()

    (bench.home / "blocked").unlink()
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="both publications")
    beside_database = bench.home / "state.db.status.json"
    beside_database.unlink()
    sidecar.wait_for(lambda s: beside_database.exists(), timeout=60, what="the next heartbeat")
    status = subprocess.run([sidecar.evalcar, "status", "--json", "--db", str(sidecar.database)], env=sidecar.environment,
                            capture_output=True, text=True, timeout=40)  # it knows the database alone
    assert json.loads(status.stdout)["agent"]["version"] != "", status
    assert sidecar.stop() == 0


def test_an_output_directory_that_is_removed_is_not_made_again(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar("--set", "watch.poll_interval=1s").start()
    sidecar.wait_for(lambda s: len(s.published()) == 1, what="the result")
    bench.run.rename(bench.home / "away")  # at once: the agent writes into it meanwhile
    elsewhere = bench.home / "state.db.status.json"  # where the status goes meanwhile
    elsewhere.unlink(missing_ok=True)
    sidecar.wait_for(lambda s: elsewhere.exists(), timeout=60, what="the next status")
    assert sidecar.stop() == 0
    assert not bench.run.exists()


def retry(sidecar, step):
    return subprocess.run([sidecar.evalcar, "retry", str(step), "--db", str(sidecar.database)], env=sidecar.environment,
                          capture_output=True, text=True, timeout=40)


def test_retry_beside_a_running_agent_is_done_at_once(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(error={"message": "made up"})
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: s.states().get((5, "regular"), ("",))[0] == "quarantined", what="the failure")
    shutil.rmtree(bench.run / "_evalcar" / "leases")
    bench.tell()

    done = retry(sidecar, 5)

    assert done.returncode == 0 and done.stdout == "1 evaluation of step 5 is tried again now\n", done
    sidecar.wait_for(lambda s: len(s.published()) == 1, timeout=60, what="the result")
    again = retry(sidecar, 5)
    assert again.returncode == 3 and "regular is published" in again.stdout
    assert list((bench.home / "state.db.requests").iterdir()) == []
    assert sidecar.stop() == 0


def test_retry_of_an_evaluation_that_waits_for_its_next_try_does_not_wait(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(error={"retryable": True})
    sidecar = bench.sidecar("--set", "limits.retry_delay=1h").start()
    sidecar.wait_for(lambda s: s.states().get((5, "regular"), ("",))[0] == "failed", what="the failure")
    bench.tell()
    assert retry(sidecar, 5).returncode == 0
    sidecar.wait_for(lambda s: len(s.published()) == 1, timeout=60, what="the result")
    assert sidecar.stop() == 0


def test_requests_that_are_none_are_set_aside_and_the_agent_goes_on(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: len(s.published()) == 1, what="the result")
    requests = bench.home / "state.db.requests"
    (requests / "1-1.request").write_text("rm -rf /")
    (requests / "1-2.request").mkdir()
    os.mkfifo(requests / "1-3.request")
    sidecar.wait_for(lambda s: len(list(requests.glob("*.rejected"))) == 3, timeout=60, what="their end")
    assert retry(sidecar, 7).returncode == 3
    assert sidecar.stop() == 0
    assert sidecar.log().count("set aside as") == 3


@pytest.mark.full  # waits 10 s; the unit tests of agent/request wait on a clock of their own
def test_retry_beside_an_agent_that_hangs_ends_with_a_sentence_and_changes_nothing(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(error={"message": "made up"})
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: s.states().get((5, "regular"), ("",))[0] == "quarantined", what="the failure")
    sidecar.process.send_signal(signal.SIGSTOP)
    done = retry(sidecar, 5)
    sidecar.process.send_signal(signal.SIGCONT)
    assert done.returncode == 1 and "did not take the request up within 10 s" in done.stderr
    assert sidecar.stop() == 4
    assert sidecar.states()[5, "regular"][0] == "quarantined"
