"""A small model trained by the real Hugging Face Trainer, in this process."""

import importlib.util
import json
import pathlib
import shutil
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

TOKENS = torch.arange(8)
LESSONS = [{"input_ids": TOKENS, "labels": TOKENS}] * 64


def has(package):
    return importlib.util.find_spec(package) is not None


def small_model():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return LlamaForCausalLM(LlamaConfig(vocab_size=16, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2))


def trainer(run, callbacks, **settings):
    defaults = dict(output_dir=str(run), max_steps=6, save_steps=2, logging_steps=1, per_device_train_batch_size=1, learning_rate=1e-2,
                    lr_scheduler_type="constant", report_to=[], use_cpu=True, disable_tqdm=True)  # fmt: skip
    return Trainer(model=small_model(), args=TrainingArguments(**{**defaults, **settings}), train_dataset=LESSONS, eval_dataset=LESSONS[:1],
                   callbacks=list(callbacks))  # fmt: skip


def best_by(metric, eval_steps=2, **settings):
    """What a script has that evaluates as it trains."""
    return dict(eval_strategy="steps", eval_steps=eval_steps, load_best_model_at_end=True, metric_for_best_model=metric, greater_is_better=True,
                **settings)  # fmt: skip


def wait_until(condition, timeout=300, what="the condition"):
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < timeout, f"{what} did not come"
        time.sleep(0.02)


def results_in(run):
    path = pathlib.Path(run) / "_evalcar" / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if line["final"]]


def status_of(run):
    return json.loads((pathlib.Path(run) / "_evalcar" / "status.json").read_text())


def steps_in_status(run):
    """Of the checkpoints that the agent holds, whatever retention takes: those that it has merely found may still be written to."""
    there = (pathlib.Path(run) / "_evalcar" / "status.json").exists()
    return {each["step"] for each in status_of(run)["evaluations"] if each["state"] not in ("found", "complete")} if there else set()


class AtSave(TrainerCallback):
    """After each save: keeps a copy of the checkpoint, calls `then` with its step, and waits until the thread of `pick_up` has
    its result."""

    def __init__(self, archive=None, pick_up=None, then=None):
        self.archive, self.pick_up, self.then = archive, pick_up, then
        self.steps = []

    def on_save(self, args, state, control, **_):
        step = state.global_step
        self.steps.append(step)
        if self.archive:
            shutil.copytree(pathlib.Path(args.output_dir) / f"checkpoint-{step}", pathlib.Path(self.archive) / str(step))
        if self.then:
            self.then(step)
        if self.pick_up:
            found = self.pick_up._training.watch.found
            wait_until(lambda: any(each[0] == "row" and each[1]["global_step"] == step for each in list(found)), what=f"the result of {step}")


class OnEpochEnd(TrainerCallback):
    """Where training is over; before the callbacks that come after it."""

    def __init__(self, do):
        self.do = do

    def on_epoch_end(self, args, state, control, **_):
        self.do()


def logged(trained, prefix="eval"):
    """[(step, {name: value})] of log_history: what came from the agent."""
    found = []
    for entry in trained.state.log_history:
        values = {name: value for name, value in entry.items() if name.startswith(prefix + "/")}
        if values:
            found.append((entry["step"], values))
    return found


def wandb_run(home):
    """(rows of the history, {metric: its axis}) of the offline run below `home`, once W&B has written its end."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    def records():
        store, found = DataStore(), []
        store.open_for_scan(str(next(pathlib.Path(home).glob("wandb/offline-run-*/*.wandb"))))
        while (data := store.scan_data()) is not None:
            found.append(Record.FromString(data))
        return found

    wait_until(lambda: any(record.WhichOneof("record_type") == "exit" for record in records()), what="the end of the W&B run")
    kinds = [(record.WhichOneof("record_type"), record) for record in records()]
    history = [{"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
               for kind, record in kinds if kind == "history"]  # fmt: skip
    return history, {record.metric.name: record.metric.step_metric for kind, record in kinds if kind == "metric"}
