"""The agent with a scripted evaluator: what is evaluated, how often, and what signals and kills cost. No model, no libtorch."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

import checkpoints
import pytest
from harness import check_published_once, hash_of, leases


def test_once_evaluates_what_is_there_newest_first_and_ends(bench):
    for step in (5, 10, 15):
        checkpoints.write_hugging_face(bench.run, step)
    expected = {(step, "regular"): hash_of(bench.evalcar, bench.run / f"checkpoint-{step}", "regular") for step in (5, 10, 15)}
    sidecar = bench.sidecar()

    assert sidecar.once() == 0

    check_published_once(sidecar, expected)
    assert [line["global_step"] for line in sidecar.metrics_lines()] == [15, 10, 5]
    assert leases(bench.run) == []
    assert len(bench.heard("load")) == 3


def test_jobs_of_two_output_directories_have_different_ids(bench):
    """Their databases count alike; a cancel of the one must not be taken for one of the other."""
    other = bench.home / "other"
    for run in (bench.run, other):
        checkpoints.write_hugging_face(run, 5)
    sidecar = bench.sidecar()

    done = subprocess.run([sidecar.evalcar, "run", bench.run, other, "--once", "--tasks", "docvqa_val"],
                          env=sidecar.environment, timeout=60)

    assert done.returncode == 0
    ids = bench.heard("job")
    assert len(ids) == 2 and len(set(ids)) == 2


def test_nothing_to_evaluate_is_exit_code_3(bench):
    assert bench.sidecar().once() == 3
    assert os.listdir(bench.run) == []  # not even our own folder


def test_regular_and_ema_of_a_step_are_two_results_with_their_own_weights(bench, shards):
    checkpoints.write_fsdp2(bench.run, 5, shards)
    sidecar = bench.sidecar()
    expected = {(5, kind): hash_of(bench.evalcar, bench.run / "checkpoint-5", kind) for kind in ("regular", "ema")}
    assert expected[5, "regular"] != expected[5, "ema"]

    assert sidecar.once() == 0

    check_published_once(sidecar, expected)


def test_a_kill_in_the_middle_costs_at_most_one_batch_and_doubles_nothing(bench, shards):
    for step in (5, 10):
        checkpoints.write_fsdp2(bench.run, step, shards)
    expected = {(step, kind): hash_of(bench.evalcar, bench.run / f"checkpoint-{step}", kind)
                for step in (5, 10) for kind in ("regular", "ema")}
    bench.tell(delay=0.4)
    sidecar = bench.sidecar()
    sidecar.start()
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM answer LIMIT 1"), what="a stored answer")

    sidecar.kill()
    shutil.rmtree(bench.run / "checkpoint-10")  # retention takes it while nobody watches
    bench.tell()
    assert sidecar.once() == 0

    check_published_once(sidecar, expected)
    assert leases(bench.run) == []
    assert "answers are known already" in sidecar.log()
    generated = bench.heard("generate")
    assert len(generated) <= 4 * 6 + 4, generated  # what was under way, not everything again


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full), pytest.param(3, marks=pytest.mark.full), pytest.param(4, marks=pytest.mark.full)])
def test_kills_at_random_times_converge_to_one_result_each(bench, shards, seed):
    import random

    moments = random.Random(seed)
    for step in (5, 10, 15):
        checkpoints.write_fsdp2(bench.run, step, shards)
    expected = {(step, kind): hash_of(bench.evalcar, bench.run / f"checkpoint-{step}", kind)
                for step in (5, 10, 15) for kind in ("regular", "ema")}
    bench.tell(delay=0.02)
    sidecar = bench.sidecar()
    for _ in range(8):
        sidecar.start()
        time.sleep(moments.uniform(0.02, 0.7))
        sidecar.kill()

    assert sidecar.once() == 0

    check_published_once(sidecar, expected)
    assert leases(bench.run) == []


def test_the_evaluator_dying_is_no_harm_and_its_last_words_are_kept(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(die_at_sample=3, die_once=str(bench.home / "died"))
    sidecar = bench.sidecar()

    assert sidecar.once() == 0

    attempts = sidecar.query("SELECT outcome, message FROM attempts ORDER BY number")
    assert [outcome for outcome, _ in attempts] == ["failed", "scored"]
    assert "signal 9" in attempts[0][1] and "dying as told" in attempts[0][1]


@pytest.mark.parametrize("script, reason", [
    ({"error": {"message": "architecture FooForCausalLM is not known"}}, "FooForCausalLM"),
    ({"garbage": True}, "does not speak the protocol"),
    ({"die_at_sample": 2}, "signal 9"),
])
def test_an_evaluation_that_cannot_succeed_ends_quarantined_with_its_reason(bench, script, reason):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(**script)
    sidecar = bench.sidecar("--set", "limits.attempts=2")

    assert sidecar.once() == 4

    state, why = sidecar.states()[5, "regular"]
    assert state == "quarantined" and reason in why
    assert sidecar.metrics_lines() == []
    assert leases(bench.run) == []


def test_one_bad_checkpoint_does_not_stop_the_others(bench):
    for step in (5, 10, 15):
        checkpoints.write_hugging_face(bench.run, step)
    path = bench.run / "checkpoint-10" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-7])
    (bench.run / "checkpoint-20").mkdir()
    (bench.run / "checkpoint-20" / "notes.txt").write_text("no checkpoint")
    sidecar = bench.sidecar("--set", "watch.settle_time=1s")

    assert sidecar.once() == 4

    states = sidecar.states()
    assert sidecar.published() == {(5, "regular"), (15, "regular")}
    assert states[10, "regular"][0] == "quarantined" and "model.safetensors" in states[10, "regular"][1]
    assert states[20, "regular"][0] == "quarantined"

    path.unlink()  # the trainer's second try
    checkpoints.write_safetensors(path, "again")
    assert sidecar.once() == 4  # checkpoint-20 is still no checkpoint
    assert (10, "regular") in sidecar.published()


def test_a_second_agent_on_the_same_directory_ends_and_says_who_is_there(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    first = bench.sidecar().start()
    first.wait_for(lambda s: (5, "regular") in s.published(), what="the first result")
    same_state = bench.sidecar()
    same_state.log_path = bench.home / "second.log"
    assert same_state.start().wait(20) == 1
    other_state = bench.sidecar()
    other_state.log_path = bench.home / "third.log"
    other_state.command = [word.replace("state.db", "other.db") for word in other_state.command]
    assert other_state.start().wait(20) == 1
    assert f"pid {first.process.pid}" in other_state.log()
    assert first.stop() == 0


def test_sigterm_ends_at_once_and_the_next_start_goes_on(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(delay=1)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: bench.heard("generate"), what="the first answer")
    assert sidecar.stop() == 0
    assert sidecar.states()[5, "regular"][0] == "leased"
    bench.tell()
    assert sidecar.once() == 0
    assert sidecar.published() == {(5, "regular")}


def test_nothing_that_was_started_outlives_a_killed_agent(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(delay=30)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: bench.heard("load"), what="the evaluator")
    children = sidecar.children()
    assert children
    sidecar.kill()
    for _ in range(200):
        if not any(pathlib.Path(f"/proc/{child}").exists() for child in children):
            break
        time.sleep(0.02)
    assert not any(pathlib.Path(f"/proc/{child}").exists() for child in children)


def test_sighup_reads_the_configuration_again_and_a_bad_one_changes_nothing(bench):
    file = bench.home / "evalcar.toml"
    file.write_text('[watch]\nsettle_time = "1s"\n')
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar("--config", str(file)).start()
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 1, what="the first result")
    file.write_text("[watch]\nnonsense = 1\n")
    sidecar.process.send_signal(signal.SIGHUP)
    sidecar.wait_for(lambda s: "did you mean" in s.log(), what="the complaint")
    file.write_text("[evaluate]\nmax_pixels = 500000\n")
    sidecar.process.send_signal(signal.SIGHUP)
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 2, what="the result under the new settings")
    assert sidecar.stop() == 0


def test_signals_that_a_batch_system_sends_to_all_end_nothing_and_are_said_once(bench):
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: "watching" in s.log(), what="the start")
    for name in (signal.SIGUSR1, signal.SIGALRM, signal.SIGUSR1):
        sidecar.process.send_signal(name)
        sidecar.wait_for(lambda s, name=name: name.name.removeprefix("SIG") in s.log(), what="a word about it")

    checkpoints.write_hugging_face(bench.run, 5)

    sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the result")
    assert sidecar.log().count("USR1") == 1
    assert sidecar.stop() == 0


def test_a_limit_of_file_sizes_is_an_error_of_writing_and_no_silent_end(bench):
    """The kernel sends SIGXFSZ for what `ulimit -f` does not allow."""
    bench.tell()
    sidecar = bench.sidecar()
    sidecar.command = ["prlimit", "--fsize=20000", *sidecar.command]
    sidecar.start("--once")

    code = sidecar.wait(60)

    assert code in (1, 2), code
    assert "File too large" in sidecar.log() or "full" in sidecar.log() or "disk I/O error" in sidecar.log()


def test_policy_latest_gives_older_checkpoints_up(bench):
    for step in (5, 10, 15):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar("--set", "evaluate.policy=latest")
    assert sidecar.once() == 0
    assert sidecar.published() == {(15, "regular")}
    assert sidecar.states()[5, "regular"][0] == "superseded"


@pytest.mark.parametrize("resident", [True, False])
def test_between_evaluations_the_evaluator_stays_or_gives_its_memory_back(bench, resident):
    """All device memory is the process's: without keep_resident there is none while nothing is to be evaluated."""
    bench.tell(check_delay=1)  # the agent's look at the tasks' data lasts longer than the first evaluation
    sidecar = bench.sidecar(*([] if resident else ["--set", "evaluate.keep_resident=false"])).start()

    held = []
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
        sidecar.wait_for(lambda s, step=step: (step, "regular") in s.published(), what=f"the result of {step}")
        if not resident:
            sidecar.wait_for(lambda s: not s.evaluators(), what="the evaluator's end")
        held.append(sidecar.evaluators())
    assert held == ([held[0]] * 2 if resident else [[], []]) and len(held[0]) == (1 if resident else 0)
    assert sidecar.stop() == 0
    assert len(bench.heard("load")) == 2


def test_an_evaluator_that_is_idle_for_its_time_ends_and_the_next_checkpoint_starts_it(bench):
    sidecar = bench.sidecar("--set", "evaluate.resident_idle=1s").start()
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
        sidecar.wait_for(lambda s, step=step: (step, "regular") in s.published(), what=f"the result of {step}")
        sidecar.wait_for(lambda s: not s.evaluators(), what="the evaluator's end")
    assert sidecar.log().count("evaluate.resident_idle") == 2
    assert sidecar.stop() == 0


def test_a_signal_gives_the_device_back_between_evaluations_and_disturbs_none(bench):
    bench.tell(samples=20, delay=0.1)
    sidecar = bench.sidecar().start()
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar.wait_for(lambda s: bench.heard("generate"), what="the first answer")
    sidecar.process.send_signal(signal.SIGUSR2)
    sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the result")
    sidecar.wait_for(lambda s: not s.evaluators(), what="the evaluator's end")
    assert sidecar.query("SELECT attempts FROM evaluations") == [(1,)] and len(bench.heard("load")) == 1

    bench.tell()
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="the next result")
    assert len(sidecar.evaluators()) == 1  # asked once, and not for good
    assert sidecar.stop() == 0


def test_an_idle_agent_takes_little_memory(bench):
    """The processor time that it takes is a figure of tests/bench."""
    for step in (5, 10, 15, 20):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar("--set", "evaluate.keep_resident=false").start()
    sidecar.wait_for(lambda s: len(s.published()) == 4, what="all results")
    status = pathlib.Path(f"/proc/{sidecar.process.pid}/status").read_text()
    assert int(status.split("VmRSS:")[1].split()[0]) / 1024 <= 20
    assert sidecar.stop() == 0
