"""Jobs for what is not there: weights that a checkpoint does not hold, and checkpoints that retention has removed."""

import importlib
import shutil
import sys
import time
import unittest.mock

import checkpoints
import pytest
from harness import hash_of
from http_server import serving

from test_http_jobs import value_of

EMA = {"checkpoint_type": "ema"}
QUICK = ("--set", "watch.settle_time=1s", "--set", "watch.poll_interval=1s")
EMA_FOLDER = "pytorch_ema_model_fsdp_0"
# The second, where the agent has not looked since the checkpoint was removed.
GONE = ("its checkpoint is gone, and so are its files", "the evaluation is lost: removed before it could be leased: ")


def add_ema(folder, step, shards):
    (folder / EMA_FOLDER).mkdir(exist_ok=True)
    for rank in (0, 1):
        name = f"model_world_size_2_rank_{rank}.pt"
        shutil.copyfile(shards / f"{step}-ema-{rank}.pt", folder / EMA_FOLDER / name)


@pytest.mark.parametrize("with_folder", [True, False])
def test_a_job_for_ema_weights_that_the_newest_checkpoint_does_not_hold_fails(bench, shards, with_folder):
    folder = checkpoints.write_fsdp2(bench.run, 10, shards, ema=False)
    if with_folder:
        (folder / EMA_FOLDER).mkdir()
    sidecar, api = serving(bench, *QUICK)

    jobs = [api.submit(folder, lmms_engine_kwargs=EMA), api.submit(folder, lmms_engine_kwargs=EMA, limit=2)]
    errors = {api.wait_for(job, "failed", timeout=20)["error"] for job in jobs}
    errors.add(api.wait_for(api.submit(folder, lmms_engine_kwargs=EMA), "failed", timeout=20)["error"])

    why = "the EMA folder is empty: EMA has not started at this step" if with_folder else "these weights are not in this checkpoint"
    assert errors == {f"checkpoint-10 holds no EMA weights: {why}"}
    sidecar.wait_for(lambda s: s.published() == {(10, "regular")}, what="the regular weights' result")
    ended = sidecar.query("SELECT state, reason FROM evaluations WHERE checkpoint_type = 'ema'")
    assert set(ended) == {("skipped", why)}
    # What comes after all is measured, for the series and for who asks then.
    add_ema(folder, 10, shards)
    late = api.wait_for(api.submit(folder, lmms_engine_kwargs=EMA, limit=2), "completed")
    assert late["metrics"]["docvqa_val"]["anls"] == pytest.approx(value_of(bench, folder, samples=2, kind="ema"))
    sidecar.wait_for(lambda s: s.published() == {(10, "regular"), (10, "ema")}, what="the EMA weights' result")
    assert sidecar.stop() == 0


def test_a_job_for_ema_weights_of_a_layout_that_has_none_fails(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sidecar, api = serving(bench, *QUICK, "--set", "evaluate.eval_strategy=no")

    job = api.wait_for(api.submit(folder, lmms_engine_kwargs=EMA), "failed", timeout=20)

    assert job["error"] == "checkpoint-5 holds no EMA weights: these weights are not in this checkpoint"
    assert sidecar.stop() == 0


def test_ema_weights_that_come_within_the_settle_time_are_measured_for_the_job_that_waits(bench, shards):
    folder = checkpoints.write_fsdp2(bench.run, 10, shards, ema=False)
    sidecar, api = serving(bench, "--set", "watch.settle_time=6s")
    jobs = [api.submit(folder, lmms_engine_kwargs=EMA), api.submit(folder, lmms_engine_kwargs=EMA, limit=2)]
    sidecar.wait_for(lambda s: s.published() == {(10, "regular")}, what="the regular weights' result")
    (folder / EMA_FOLDER).mkdir()
    time.sleep(3)  # the empty folder is seen: with all of dataloader_state there, EMA has not started
    assert {api.job(job)["status"] for job in jobs} == {"queued"}

    add_ema(folder, 10, shards)

    for job, samples in zip(jobs, (6, 2)):
        done = api.wait_for(job, "completed")
        assert done["weights_sha256"] == hash_of(bench.evalcar, folder, "ema")
        assert done["metrics"]["docvqa_val"]["anls"] == pytest.approx(value_of(bench, folder, samples=samples, kind="ema"))
    assert sidecar.stop() == 0


def test_the_score_of_a_checkpoint_that_is_gone_reaches_who_could_not_ask_before(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    value = value_of(bench, folder)
    sidecar, api = serving(bench)
    sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the watcher's result")
    shutil.rmtree(folder)  # retention, before the trainer's next look

    kwargs = {"model_path": str(folder), "checkpoint_type": "regular", "output_path": None}
    for restart in (False, True):
        if restart:
            sidecar.kill()
            checkpoints.write_hugging_face(bench.run, 10)
            sidecar.start()
            api.wait_until_up(sidecar)
        job = api.wait_for(api.submit(folder, lmms_engine_kwargs=kwargs, output_dir=str(folder / "eval")), "completed")
        assert job["metrics"]["docvqa_val"]["anls"] == pytest.approx(value)
        other = api.wait_for(api.submit(folder, limit=2), "failed")
        assert other["error"].startswith(GONE)
        assert not folder.exists()

    # What was never seen is no checkpoint, nor is what was not measured of one.
    body = {"model": "qwen2_5_vl", "tasks": ["docvqa_val"], "model_args": {"model": str(bench.run / "checkpoint-7")}}
    assert api.ask("POST", "/evaluate", body)[0] == 422
    body = {**body, "model_args": {"model": str(folder)}, "lmms_engine_kwargs": EMA}
    assert api.ask("POST", "/evaluate", body)[0] == 422
    assert sidecar.query("SELECT state FROM evaluations WHERE step = 5 ORDER BY evaluation_id") == [("published",), ("lost",)]
    assert sidecar.stop() == 0


def test_serve_tells_the_scores_of_checkpoints_of_which_none_is_left(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    value = value_of(bench, folder)
    sidecar, api = serving(bench, start=False)
    sidecar.command = [bench.evalcar, "serve", "--port", str(api.port), "--root", str(bench.home), "--set", "limits.retry_delay=100ms"]
    sidecar.start()
    api.wait_until_up(sidecar)
    first = api.wait_for(api.submit(folder), "completed")
    shutil.rmtree(folder)

    for restart in (False, True):
        if restart:
            sidecar.kill()
            sidecar.start()
            api.wait_until_up(sidecar)
        job = api.wait_for(api.submit(folder), "completed")
        assert job["metrics"] == first["metrics"] and job["metrics"]["docvqa_val"]["anls"] == pytest.approx(value)
        assert api.wait_for(api.submit(folder, limit=2), "failed")["error"].startswith(GONE)
    assert len(bench.heard("load")) == 1 and not folder.exists()
    assert sidecar.stop() == 0


@pytest.fixture
def standin_client(source_dir, monkeypatch):
    """The stand-in's EvalClient; lmms_eval is the real one again for the next test."""
    monkeypatch.syspath_prepend(str(source_dir / "agent" / "trainer" / "standin"))
    with unittest.mock.patch.dict(sys.modules):
        for name in [name for name in sys.modules if name.split(".")[0] == "lmms_eval"]:
            del sys.modules[name]
        yield importlib.import_module("lmms_eval.entrypoints").EvalClient


def test_the_stand_in_gets_a_score_that_was_measured_while_nobody_took_its_request(bench, standin_client):
    sidecar, api = serving(bench, start=False)
    trainer = standin_client(api.url)
    folder = checkpoints.write_hugging_face(bench.run, 5)
    value = value_of(bench, folder)
    job = trainer.evaluate(model="qwen_vl", tasks=["docvqa_val"], model_args={"model": str(folder)},
                           lmms_engine_kwargs={"model_path": str(folder), "checkpoint_type": "regular", "output_path": None})  # fmt: skip
    assert job["job_id"].startswith("unsent-")

    sidecar.start()
    sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the watcher's result")
    shutil.rmtree(folder)

    done = trainer.wait_for_job(job["job_id"], poll_interval=0.1, timeout=30, verbose=False)
    assert done["metrics"]["docvqa_val"]["anls"] == pytest.approx(value)
    assert sidecar.stop() == 0
