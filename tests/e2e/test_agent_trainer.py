"""Beside a trainer at work: its checkpoints are noticed at once, its retention and its tree are left alone, and what it saves
again is measured again."""

import os
import pathlib
import shutil
import time

import checkpoints
import pytest
from harness import check_published_once, hash_of, leases


def test_a_complete_checkpoint_is_noticed_long_before_the_next_poll(bench, shards):
    sidecar = bench.sidecar("--set", "watch.poll_interval=60s").start()
    sidecar.wait_for(lambda s: s.database.exists() and "watching" in s.log(), what="the start")
    for step, write in ((5, lambda: checkpoints.write_hugging_face(bench.run, 5, pause=0.2)),
                        (10, lambda: checkpoints.write_fsdp2(bench.run, 10, shards, pause=0.05))):
        write()
        seconds = sidecar.wait_for(lambda s, step=step: s.query(
            f"SELECT 1 FROM evaluations WHERE step = {step} AND state NOT IN ('found', 'complete')"), timeout=60,
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
            expected[step, kind] = hash_of(bench.evalcar, folder, kind)
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
        expected[step, "regular"] = hash_of(bench.evalcar, folder, "regular")
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
    second = hash_of(bench.evalcar, folder, "regular")
    bench.tell()
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 1, what="a result")
    time.sleep(0.3)
    assert sidecar.stop() in (0, 4)
    assert [line["weights_sha256"] for line in sidecar.metrics_lines()] == [second]


def test_saving_the_same_step_twice_publishes_once(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5, seed="same")
    sidecar = bench.sidecar("--set", "watch.settle_time=1s").start()
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 1, what="the result")
    answered = len(bench.heard("generate"))
    told = bench.home / "told"
    bench.tell(at_sample={"doc": 1, "do": "wait", "until": str(told)})  # as a model that takes its time
    checkpoints.write_safetensors(folder / "model.safetensors", "same")
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM evaluations WHERE state = 'superseded'"), what="the second look")
    sidecar.wait_for(lambda s: bench.heard("cancelled"), what="the evaluation to be taken back")
    told.touch()
    assert sidecar.stop() == 0
    assert len(sidecar.metrics_lines()) == 1
    assert 0 < len(bench.heard("generate")) <= answered + 2  # its hash told, what was begun beside it


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
