"""The real evaluator measures weights that lie in memory as it measures those of a checkpoint: a text model, trained and evaluated here."""

import json
import subprocess

import small_text_models
import training
from evalcar_trainer import EvalcarCallback
from test_text_models import QUESTIONS, SPECS, TASK
from training import logged
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainerCallback, TrainingArguments


class Archive(TrainerCallback):
    """Keeps what a checkpoint of each step would hold."""

    def __init__(self, folder):
        self.folder = folder

    def on_step_end(self, args, state, control, model=None, processing_class=None, **_):
        model.save_pretrained(self.folder / str(state.global_step))
        processing_class.save_pretrained(self.folder / str(state.global_step))


def answers_in(folder):
    (path,) = folder.glob("**/*_samples_own.jsonl")
    return {line["doc_id"]: line["filtered_resps"] for line in map(json.loads, path.read_text(encoding="utf-8").splitlines())}


def test_answers_of_a_snapshot_are_those_of_a_checkpoint_with_its_weights(bench, tmp_path, cache_dir, monkeypatch):
    monkeypatch.setenv("EVALCAR", bench.evalcar)
    monkeypatch.setenv("XDG_STATE_HOME", str(bench.home / "state"))
    small_text_models.write_model(tmp_path / "base", SPECS["qwen3"], tokenizer_merges=300, cache_dir=cache_dir)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "own.toml").write_text(TASK)
    (tmp_path / "tasks" / "val.jsonl").write_text("".join(json.dumps({"question": each, "answer": "yes"}) + "\n" for each in QUESTIONS))
    settings = {"evaluate.tasks_dir": tmp_path / "tasks", "evaluate.dtype": "float32"}
    own = EvalcarCallback(start=True, tasks=["own"], data=tmp_path, eval_device="cpu", eval_steps=1, poll_interval=0.1, settings=settings,
                          snapshot_dir=tmp_path / "memory")  # fmt: skip
    arguments = TrainingArguments(output_dir=str(bench.run), max_steps=3, save_steps=3, per_device_train_batch_size=1, learning_rate=1e-2, report_to=[],
                                  use_cpu=True, disable_tqdm=True)  # fmt: skip
    trained = Trainer(model=AutoModelForCausalLM.from_pretrained(tmp_path / "base"), args=arguments, train_dataset=training.LESSONS,
                      processing_class=AutoTokenizer.from_pretrained(tmp_path / "base"), callbacks=[Archive(tmp_path / "archive"), own])  # fmt: skip

    trained.train()

    assert sorted(step for step, _ in logged(trained)) == [1, 2, 3]
    assert sorted(path.name for path in bench.run.glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-3"]
    subprocess.run([bench.evalcar, "eval", str(tmp_path / "archive" / "2"), "--tasks", "own", "--data", str(tmp_path), "--output", str(tmp_path / "eval"),
                    "--device", "cpu", "--dtype", "float32", "--set", f"evaluate.tasks_dir={tmp_path / 'tasks'}"], check=True, timeout=300)  # fmt: skip
    found = {step: answers_in(bench.run / "_evalcar" / "results" / str(step)) for step in (1, 2, 3)}
    assert found[2] == answers_in(tmp_path / "eval")
    assert found[2] != found[1] and len(found[2]) == len(QUESTIONS)
    assert list((tmp_path / "memory").iterdir()) == []
