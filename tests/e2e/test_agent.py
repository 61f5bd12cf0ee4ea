"""The agent with a scripted evaluator: the way of checkpoints, kills, retention, limits. No model, no libtorch."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import checkpoints
import fake_evaluator
import pytest


def hash_of(bench, folder, kind):
    done = subprocess.run([str(bench.bin_dir / "evalcar"), "inspect", str(folder), "--weights", kind, "--hash", "--json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["weights_sha256"]


def check_published_once(sidecar, expected):
    """Each (step, kind) has one line, and its number is that of its own weights. expected: {(step, kind): sha256}"""
    lines = sidecar.metrics_lines()
    assert sorted((line["global_step"], line["checkpoint_type"]) for line in lines) == sorted(expected)
    assert [line["seq"] for line in lines] == sorted({line["seq"] for line in lines})
    for line in lines:
        sha256 = expected[line["global_step"], line["checkpoint_type"]]
        assert line["weights_sha256"] == sha256
        prefix = "eval_ema" if line["checkpoint_type"] == "ema" else "eval"
        assert line["metrics"][f"{prefix}/docvqa_val/anls"] == pytest.approx(
            fake_evaluator.expected_value(sha256, "docvqa_val", 6))
    assert sidecar.published() == set(expected)


def leases(run):
    folder = run / "_evalcar" / "leases"
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def test_once_evaluates_what_is_there_newest_first_and_ends(bench):
    for step in (5, 10, 15):
        checkpoints.write_hugging_face(bench.run, step)
    expected = {(step, "regular"): hash_of(bench, bench.run / f"checkpoint-{step}", "regular") for step in (5, 10, 15)}
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
    expected = {(5, kind): hash_of(bench, bench.run / "checkpoint-5", kind) for kind in ("regular", "ema")}
    assert expected[5, "regular"] != expected[5, "ema"]

    assert sidecar.once() == 0

    check_published_once(sidecar, expected)


def test_a_kill_in_the_middle_costs_at_most_one_batch_and_doubles_nothing(bench, shards):
    for step in (5, 10):
        checkpoints.write_fsdp2(bench.run, step, shards)
    expected = {(step, kind): hash_of(bench, bench.run / f"checkpoint-{step}", kind)
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
    expected = {(step, kind): hash_of(bench, bench.run / f"checkpoint-{step}", kind)
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


def test_a_complete_checkpoint_is_noticed_long_before_the_next_poll(bench, shards):
    sidecar = bench.sidecar("--set", "watch.poll_interval=60s").start()
    sidecar.wait_for(lambda s: s.database.exists() and "watching" in s.log(), what="the start")
    for step, write in ((5, lambda: checkpoints.write_hugging_face(bench.run, 5, pause=0.2)),
                        (10, lambda: checkpoints.write_fsdp2(bench.run, 10, shards, pause=0.05))):
        write()
        seconds = sidecar.wait_for(lambda s, step=step: s.query(
            f"SELECT 1 FROM evaluations WHERE step = {step} AND state NOT IN ('found', 'complete')"), timeout=10,
            what="the lease")
        print(f"checkpoint-{step}: leased {seconds:.3f} s after its last file")
    assert sidecar.stop() == 0


def test_an_output_directory_that_comes_later_is_picked_up(bench):
    bench.run.rmdir()
    sidecar = bench.sidecar("--set", "watch.poll_interval=60s").start()
    sidecar.wait_for(lambda s: s.database.exists(), what="the start")
    assert not bench.run.exists()
    bench.run.mkdir(parents=True)
    checkpoints.write_hugging_face(bench.run, 5)

    sidecar.wait_for(lambda s: (5, "regular") in s.published(), what="the result")
    assert sidecar.stop() == 0


@pytest.mark.parametrize("limit", [1, pytest.param(2, marks=pytest.mark.full)])
def test_lmms_engine_prunes_as_ever_and_no_checkpoint_is_missed(bench, shards, limit):
    bench.tell(delay=0.05)
    sidecar = bench.sidecar().start()
    expected = {}
    for step in (5, 10, 15, 20):
        folder = checkpoints.write_fsdp2(bench.run, step, shards)
        for kind in ("regular", "ema"):
            expected[step, kind] = hash_of(bench, folder, kind)
        sidecar.wait_for(lambda s, step=step: {(step, "regular"), (step, "ema")} <= {
            key for key, (state, _) in s.states().items() if state not in ("found", "complete")}, what="both leases")
        before = sorted(p.name for p in bench.run.iterdir() if p.name.startswith("checkpoint"))
        removed = checkpoints.prune_lmms_engine(bench.run, limit)
        assert removed == sorted(before, key=lambda n: int(n.split("-")[1]))[:-limit]
        time.sleep(0.2)

    sidecar.wait_for(lambda s: s.published() == set(expected), what="all results")
    assert sidecar.stop() == 0
    check_published_once(sidecar, expected)
    assert leases(bench.run) == []
    newest = bench.run / "checkpoint-20"
    assert os.readlink(newest / "eval") == "../_evalcar/results/20/"
    assert (newest / "eval" / "regular").is_dir()


def test_the_order_of_the_hugging_face_rotation_is_not_disturbed(bench):
    bench.tell(delay=0.02)
    sidecar = bench.sidecar().start()
    expected = {}
    for step in (5, 10, 15, 20):
        folder = checkpoints.write_hugging_face(bench.run, step)
        expected[step, "regular"] = hash_of(bench, folder, "regular")
        sidecar.wait_for(lambda s, step=step: s.query(
            f"SELECT 1 FROM evaluations WHERE step = {step} AND state NOT IN ('found', 'complete')"), what="the lease")
        removed = checkpoints.prune_hugging_face(bench.run, 1)
        assert removed == ([f"checkpoint-{step - 5}"] if step > 5 else [])
    sidecar.wait_for(lambda s: s.published() == set(expected), what="all results")
    assert sidecar.stop() == 0
    check_published_once(sidecar, expected)
    assert sorted(p.name for p in (bench.run / "checkpoint-20").iterdir()) == sorted(
        ["config.json", "model.safetensors", "trainer_state.json", *checkpoints.TOKENIZER])


def test_the_tree_is_untouched_but_for_our_folder_and_the_one_link(bench, shards):
    def tree(root):
        return {str(p.relative_to(root)): (p.lstat().st_ino, p.lstat().st_mtime_ns, p.lstat().st_size)
                for p in sorted(pathlib.Path(root).rglob("*")) if "_evalcar" not in p.parts and p.name != "eval"}

    for step in (5, 10):
        checkpoints.write_fsdp2(bench.run, step, shards)
    before = tree(bench.run)
    assert bench.sidecar().once() == 0
    after = tree(bench.run)
    assert {k: v for k, v in after.items()} == before
    assert not (bench.run / "checkpoint-5" / "eval").exists()  # only the newest
    names = os.listdir(bench.run)
    assert sorted(names) == ["_evalcar", "checkpoint-10", "checkpoint-5"]


def test_nothing_at_all_is_created_in_the_tree_if_so_configured(bench, shards):
    checkpoints.write_fsdp2(bench.run, 5, shards)
    assert bench.sidecar("--set", "publish.link_in_checkpoint=never").once() == 0
    assert not (bench.run / "checkpoint-5" / "eval").is_symlink()


def test_a_checkpoint_rewritten_in_place_is_measured_again_and_the_old_line_superseded(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5, seed="first")
    sidecar = bench.sidecar("--set", "watch.settle_time=1s").start()
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 1, what="the first result")
    checkpoints.write_safetensors(folder / "model.safetensors", "second")
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 2, what="the second result")
    assert sidecar.stop() == 0

    first, second = sidecar.metrics_lines()
    assert first["weights_sha256"] != second["weights_sha256"]
    assert second["supersedes"] == first["seq"]


def test_files_rewritten_while_they_are_measured_are_never_published(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5, seed="first")
    bench.tell(delay=0.3)
    sidecar = bench.sidecar("--set", "watch.settle_time=1s").start()
    sidecar.wait_for(lambda s: bench.heard("generate"), what="the first answer")
    checkpoints.write_safetensors(folder / "model.safetensors", "second")
    second = hash_of(bench, folder, "regular")
    bench.tell()
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 1, what="a result")
    time.sleep(0.3)
    assert sidecar.stop() in (0, 4)
    assert [line["weights_sha256"] for line in sidecar.metrics_lines()] == [second]


def test_saving_the_same_step_twice_publishes_once(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5, seed="same")
    sidecar = bench.sidecar("--set", "watch.settle_time=1s").start()
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 1, what="the result")
    checkpoints.write_safetensors(folder / "model.safetensors", "same")
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM evaluations WHERE state = 'superseded'"), what="the second look")
    assert sidecar.stop() == 0
    assert len(sidecar.metrics_lines()) == 1


def test_an_empty_ema_folder_waits_for_the_writer_and_is_then_skipped_with_its_reason(bench, shards):
    folder = checkpoints.write_fsdp2(bench.run, 5, shards, ema=False)
    shutil.rmtree(folder)
    (folder / "pytorch_ema_model_fsdp_0").mkdir(parents=True)
    sidecar = bench.sidecar("--set", "watch.settle_time=2s").start()
    for name in ("pytorch_model_fsdp_0", "optimizer", "extra_state"):
        (folder / name).mkdir()
    for rank in range(2):
        shutil.copyfile(shards / f"5-regular-{rank}.pt", folder / "pytorch_model_fsdp_0" / f"model_world_size_2_rank_{rank}.pt")
    for name, content in checkpoints.TOKENIZER.items():
        (folder / name).write_text(content)
    (folder / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    sidecar.wait_for(lambda s: (5, "regular") in s.published(), what="the regular result")
    sidecar.wait_for(lambda s: s.states().get((5, "ema"), ("", ""))[0] == "skipped", what="the end of the wait")
    assert "EMA" in sidecar.states()[5, "ema"][1]

    for rank in range(2):  # and if it comes after all
        shutil.copyfile(shards / f"5-ema-{rank}.pt", folder / "pytorch_ema_model_fsdp_0" / f"model_world_size_2_rank_{rank}.pt")
    sidecar.wait_for(lambda s: (5, "ema") in s.published(), what="the EMA result")
    assert sidecar.stop() == 0


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
    children = pathlib.Path(f"/proc/{sidecar.process.pid}/task/{sidecar.process.pid}/children").read_text().split()
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


def test_policy_latest_gives_older_checkpoints_up(bench):
    for step in (5, 10, 15):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar("--set", "evaluate.policy=latest")
    assert sidecar.once() == 0
    assert sidecar.published() == {(15, "regular")}
    assert sidecar.states()[5, "regular"][0] == "superseded"


def test_an_idle_agent_takes_little_memory(bench):
    """The processor time that it takes is a figure of tests/bench."""
    for step in (5, 10, 15, 20):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar("--set", "evaluate.keep_resident=false").start()
    sidecar.wait_for(lambda s: len(s.published()) == 4, what="all results")
    status = pathlib.Path(f"/proc/{sidecar.process.pid}/status").read_text()
    assert int(status.split("VmRSS:")[1].split()[0]) / 1024 <= 20
    assert sidecar.stop() == 0
