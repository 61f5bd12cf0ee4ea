"""The main job on what real trainers save, with the real evaluator: killed in the middle, restarted, and each number equal to
that of `evalcar eval` on a copy of the same checkpoint.

The models learn the questions while they are watched, so the scores rise: a result at the wrong step, or of the other kind of
weights, is a wrong number, not only a wrong hash."""

import json
import os
import pathlib
import subprocess
import sys
import threading

import fsdp2_checkpoints
import hf_trainer
import lessons
import pytest
import sidecar as sidecar_module
import small_models

TASKS = "docvqa_val,mmmu_val"
QUESTIONS = dict(docvqa=12, mmmu=12)
SETTINGS = ["--device", "cpu", "--set", "evaluate.max_new_tokens=8", "--set", "evaluate.min_pixels=3136"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return lessons.write_data(tmp_path_factory.mktemp("data"), **QUESTIONS)


@pytest.fixture(scope="module")
def model(tmp_path_factory, cache_dir):
    folder = tmp_path_factory.mktemp("model") / "small"
    small_models.write_model(folder, cache_dir=cache_dir, layers=2)
    return folder


@pytest.fixture(scope="module")
def school(model):
    """The questions of `data`, as `model` is fed them."""
    file = model.parent / "lessons.pt"
    lessons.write_lessons(file, model, **QUESTIONS)
    return file


@pytest.fixture(autouse=True)
def needs_the_evaluator(bin_dir):
    if not (bin_dir / "evalcar-evaluator").exists() and "EVALCAR_EVALUATOR" not in os.environ:
        pytest.skip("evalcar-evaluator is not built (EVALCAR_EVALUATOR=OFF)")


class Training:
    """A trainer in the background, `archive` with a copy of each checkpoint that it saved."""

    def __init__(self, archive, work):
        self.archive = archive
        self.error = None
        self.thread = threading.Thread(target=self.run, args=(work,), daemon=True)
        self.thread.start()

    def run(self, work):
        try:
            work()
        except Exception as error:  # noqa: BLE001: told in finish()
            self.error = error

    def finish(self):
        self.thread.join(300)
        assert not self.thread.is_alive()
        assert self.error is None, self.error


def evaluate_alone(bin_dir, home, folder, kind, data, settings=()):
    """What `evalcar eval` says of the checkpoint."""
    done = subprocess.run([str(bin_dir / "evalcar"), "eval", str(folder), "--weights", kind, "--tasks", TASKS, "--data", str(data),
                           "--output", str(home / "alone" / f"{folder.name}-{kind}"), "--json", *SETTINGS, *settings], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


PREFIXES = {"regular": "eval", "ema": "eval_ema", "average": "eval_avg"}


def folder_of(bin_dir, archive, line, steps):
    """A checkpoint whose weights a line's are: the archived one, or the merge of the two that an average is of."""
    folder = archive / f"checkpoint-{line['global_step']}"
    if line["checkpoint_type"] != "average":
        return folder, line["checkpoint_type"]
    before = archive / f"checkpoint-{max(step for step in steps if step < line['global_step'])}"
    mean = archive / f"mean-{line['global_step']}"
    subprocess.run([str(bin_dir / "evalcar"), "merge", "--input_dir", f"{before},{folder}", "--merge", "--output_dir", str(mean)],
                   capture_output=True, text=True, timeout=60, check=True)
    return mean, "regular"


def texts(folder):
    """{(task, doc_id): answer} of the samples files below a folder."""
    found = {}
    for path in pathlib.Path(folder).rglob("*_samples_*.jsonl"):
        for line in path.read_text().splitlines():
            sample = json.loads(line)
            found[path.stem.split("_samples_")[1], sample["doc_id"]] = sample["filtered_resps"]
    return found


def check_against_eval(sidecar, bin_dir, archive, data, expected, settings=()):
    lines = sidecar.metrics_lines()
    assert sorted((line["global_step"], line["checkpoint_type"]) for line in lines) == sorted(expected)
    for line in lines:
        kind = line["checkpoint_type"]
        folder, kind_there = folder_of(bin_dir, archive, line, {step for step, _ in expected})
        alone = evaluate_alone(bin_dir, sidecar.home, folder, kind_there, data, settings)
        assert line["weights_sha256"] == alone["weights_sha256"]
        for task, metrics in alone["results"].items():
            for name, value in metrics.items():
                assert line["metrics"][f"{PREFIXES[kind]}/{task}/{name}"] == value
        assert line["samples"] == sum(alone["samples"].values())
        beside = texts(sidecar.run / "_evalcar" / "results" / str(line["global_step"]) / kind)
        assert len(beside) == line["samples"]
        assert beside == texts(alone["output"])
    hashes = {line["weights_sha256"] for line in lines}
    assert len(hashes) == len(expected), "the checkpoints are all different, so must the weights be"
    check_that_scores_tell_apart([line for line in lines if line["checkpoint_type"] != "average"])


def check_that_scores_tell_apart(lines):
    """The scores themselves differ between the steps of a kind, and between the kinds of a step: equality above means something."""
    scores = {(line["global_step"], line["checkpoint_type"]):
              tuple(value for name, value in sorted(line["metrics"].items()) if not name.endswith("_stderr")) for line in lines}
    print("scores", scores)
    for (step, kind), score in scores.items():
        assert len(score) == 2 and any(score), (step, kind)
        for other, other_score in scores.items():
            if other != (step, kind) and (other[0] == step or other[1] == kind):
                assert score != other_score, (step, kind, other, scores)
        if kind == "ema":  # an average of a model that learns is behind it
            assert sum(score) < sum(scores[step, "regular"]), (step, scores)


def run_beside(bin_dir, home, run, data, training, expected, *arguments):
    """The agent beside the trainer: killed once while it evaluates, started again, stopped when all is there."""
    sidecar = sidecar_module.Sidecar(bin_dir, home, run, tasks=TASKS, arguments=["--data", str(data), *SETTINGS, *arguments])
    try:
        sidecar.start()
        sidecar.wait_for(lambda s: s.query("SELECT 1 FROM evaluations WHERE state IN ('loading', 'evaluating')"), timeout=120,
                         what="an evaluation under way")
        sidecar.kill()
        sidecar.start()
        job = training()
        job.finish()
        sidecar.wait_for(lambda s: s.published() == expected, timeout=240, what="all results")
        assert sidecar.stop() == 0
    finally:
        if sidecar.process.poll() is None:
            sidecar.kill()
    return sidecar


def test_the_hugging_face_trainer_with_a_limit_of_one(bin_dir, tmp_path, model, data, school):
    run, archive = tmp_path / "out", tmp_path / "archive"
    archive.mkdir()
    command = [sys.executable, hf_trainer.__file__, str(model), str(run), "--lessons", str(school), "--saves", "3", "--save-steps", "4",
               "--save-total-limit", "1", "--archive", str(archive), "--pause", "2"]

    def work():
        done = subprocess.run(command, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr[-3000:]

    job = Training(archive, work)
    expected = {(step, "regular") for step in (4, 8, 12)}
    sidecar = run_beside(bin_dir, tmp_path, run, data, lambda: job, expected)

    assert sorted(p.name for p in run.glob("checkpoint-*")) == ["checkpoint-12"]  # its rotation went on as ever
    check_against_eval(sidecar, bin_dir, archive, data, expected)


@pytest.mark.full
def test_the_hugging_face_trainer_under_fsdp(bin_dir, tmp_path, model, data, school):
    """SHARDED_STATE_DICT: DCP folders without a configuration or a tokenizer, which come from evaluate.base_model."""
    run, archive = tmp_path / "out", tmp_path / "archive"
    archive.mkdir()
    arguments = [model, run, "--lessons", school, "--saves", "3", "--save-steps", "4", "--save-total-limit", "1", "--archive", archive,
                 "--pause", "2", "--fsdp"]

    job = Training(archive, lambda: hf_trainer.run_ranks(arguments, tmp_path))
    expected = {(step, "regular") for step in (4, 8, 12)}
    settings = ["--set", f"evaluate.base_model={model}"]
    sidecar = run_beside(bin_dir, tmp_path, run, data, lambda: job, expected, *settings)

    assert not (archive / "checkpoint-4" / "config.json").exists()
    assert (archive / "checkpoint-4" / "pytorch_model_fsdp_0" / ".metadata").exists()
    check_against_eval(sidecar, bin_dir, archive, data, expected, settings)


def test_fsdp2_shards_with_ema_as_lmms_engine_saves_them(bin_dir, tmp_path, model, data, school):
    run, archive = tmp_path / "out", tmp_path / "archive"
    run.mkdir()
    archive.mkdir()
    steps = [4, 8, 16]

    job = Training(archive, lambda: fsdp2_checkpoints.write_run(run, model, steps, world_size=2, ema=True, lessons=school,
                                                                save_total_limit=1, delay_seconds=2, archive_dir=archive))
    expected = {(step, kind) for step in steps for kind in ("regular", "ema")} | {(step, "average") for step in steps[1:]}
    sidecar = run_beside(bin_dir, tmp_path, run, data, lambda: job, expected, "--set", "evaluate.average_last=2")

    assert sorted(p.name for p in run.glob("checkpoint-*")) == ["checkpoint-16"]
    check_against_eval(sidecar, bin_dir, archive, data, expected)
