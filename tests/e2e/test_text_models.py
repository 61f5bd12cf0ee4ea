"""Text models through `evalcar eval`: a user's own questions, the checkpoint's own chat template, the weights in every layout; what
transformers answers to the same prompts is what is logged."""

import json
import pathlib
import shutil
import subprocess

import fsdp2_checkpoints
import lora_adapters
import pytest
import small_text_models
import titan_checkpoints
import torch
import torch.distributed.checkpoint as dcp
from fixtures import data_sets
from harness import hash_of
from small_text_models import LLAMA3_ROPE, SmallTextModel

TOKENS = 12
PENALTY = 1.15  # of generation_config.json, beside sampling settings that lmms-eval's wrapper overrides
QUESTIONS = ["Which sea is the deepest?", "7 + 5 =", "Name three colours,\nand a fourth.", "Wie heißt die Hauptstadt von Peru?"]
TASK = """\
task = "own"
[data]
files = ["val.jsonl"]
[columns]
target = "answer"
[prompt]
text = "{question}\\nAnswer in one word."
[generation]
max_new_tokens = 12
[scorer]
name = "exact_match"
"""
SPECS = {
    "qwen3": SmallTextModel("qwen3", seed=21, tied=True, head_dim=32),
    "llama": SmallTextModel("llama", seed=22, generation="4", rope=LLAMA3_ROPE),
    "mistral": SmallTextModel("mistral", seed=23, extra={"sliding_window": 20}),
    "qwen2": SmallTextModel("qwen2", seed=24, generation="4"),
    "llama-2": SmallTextModel("llama", seed=25, generation="4"),  # with a tokenizer of SentencePiece's kind
}


def write_base(folder, name, cache_dir):
    """A model's folder with tokenizer and template, and without any processor."""
    own = {"sentencepiece": {}} if name == "llama-2" else {"tokenizer_merges": 300}
    model, _ = small_text_models.write_model(folder, SPECS[name], cache_dir=cache_dir, **own)
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "repetition_penalty": PENALTY, "do_sample": True, "top_k": 20}))
    return model


def write_task(root):
    (root / "tasks").mkdir()
    (root / "tasks" / "own.toml").write_text(TASK)
    rows = [json.dumps({"question": question, "answer": "yes"}) for question in QUESTIONS]
    (root / "tasks" / "val.jsonl").write_text("\n".join(rows) + "\n")


def evaluate(bin_dir, checkpoint, root, tasks="own", *arguments):
    command = [bin_dir / "evalcar", "eval", checkpoint, "--tasks", tasks, "--data", root, "--output", root / "out", "--device", "cpu",
               "--dtype", "float32", "--json", "--set", f"evaluate.tasks_dir={root / 'tasks'}", *arguments]  # fmt: skip
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=500, check=False)


def answers(bin_dir, checkpoint, root, *arguments):
    done = evaluate(bin_dir, checkpoint, root, "own", *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    (path,) = (root / "out").glob("**/*_samples_own.jsonl")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    shutil.rmtree(root / "out")
    return [line["filtered_resps"] for line in sorted(lines, key=lambda line: line["doc_id"])]  # without blanks around it


@torch.inference_mode()
def by_transformers(model, folder, penalty=PENALTY, before=""):
    """Greedy, one prompt at a time, with generation_config's penalty: as lmms-eval's wrapper generates; the content is a text."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = []
    for question in QUESTIONS:
        messages = [{"role": "user", "content": before + question + "\nAnswer in one word."}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        inputs = tokenizer([text], return_tensors="pt")
        out = model.generate(inputs["input_ids"], attention_mask=inputs["attention_mask"], do_sample=False, max_new_tokens=TOKENS,
                             repetition_penalty=penalty, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
        answer = out[0, inputs["input_ids"].shape[1] :]
        found.append(tokenizer.decode(answer, skip_special_tokens=True, clean_up_tokenization_spaces=False).strip())
    return found


@pytest.mark.parametrize("name", ["qwen3", "llama-2", *(pytest.param(name, marks=pytest.mark.full) for name in ("llama", "mistral", "qwen2"))])
def test_every_answer_is_that_of_transformers(bin_dir, cache_dir, tmp_path, name):
    checkpoint = tmp_path / "run" / "checkpoint-7"
    model = write_base(checkpoint, name, cache_dir)
    write_task(tmp_path)

    got = answers(bin_dir, checkpoint, tmp_path)

    assert got == by_transformers(model, checkpoint)
    assert len(set(got)) > 2, got


def test_examples_before_the_question_reach_the_model_and_are_counted(bin_dir, cache_dir, tmp_path):
    checkpoint = tmp_path / "run" / "checkpoint-7"
    model = write_base(checkpoint, "qwen3", cache_dir)
    write_task(tmp_path)
    shots = [("Which tree is the oldest?", "pine"), ("2 + 2 =", "four"), ("What is green?", "grass")]
    (tmp_path / "tasks" / "train.jsonl").write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in shots))
    (tmp_path / "tasks" / "own.toml").write_text(TASK + '[fewshot]\nfiles = ["train.jsonl"]\nsampler = "first_n"\n')
    before = "".join(f"{q}\nAnswer in one word. {a}\n\n" for q, a in shots[:2])

    two = ["--set", "evaluate.num_fewshot=2"]
    done = evaluate(bin_dir, checkpoint, tmp_path, "own", *two)
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads(next((tmp_path / "out").glob("**/*_results.json")).read_text())
    shutil.rmtree(tmp_path / "out")
    got = answers(bin_dir, checkpoint, tmp_path, *two)

    assert results["n-shot"] == {"own": 2} and results["configs"]["own"]["num_fewshot"] == 2
    assert got == by_transformers(model, checkpoint, before=before)
    assert got != by_transformers(model, checkpoint)
    assert answers(bin_dir, checkpoint, tmp_path) == by_transformers(model, checkpoint)

    partly = evaluate(bin_dir, checkpoint, tmp_path, "own,docvqa_val", *two)
    assert partly.returncode == 4 and "docvqa_val has no examples for evaluate.num_fewshot = 2" in partly.stderr, partly.stderr


def in_fsdp2(work, base, model):
    (folder,) = fsdp2_checkpoints.write_run(work / "run", base, [3], world_size=2, ema=True, expected_dir=work / "expected", noise=0.05)
    return folder, torch.load(work / "expected" / "3-ema.pt"), ["--weights", "ema"]


def in_dcp(work, base, model):
    folder = work / "run" / "checkpoint-3" / "pytorch_model_fsdp_0"
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(4)
    state = {name: value + 0.05 * value.std() * torch.randn(value.shape, generator=generator)
             for name, value in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    dcp.save({"model": state}, checkpoint_id=str(folder), no_dist=True)
    return folder.parent, state, ["--set", f"evaluate.base_model={base}"]


def in_torchtitan(work, base, model):
    run = titan_checkpoints.write_run(work / "titan", base, steps=[3])
    state = dict(titan_checkpoints.expected_of(work / "titan", 3)["state"])
    if model.config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return run / "step-3", state, ["--set", f"evaluate.base_model={base}"]


def in_an_adapter(work, base, model):
    targets = ["q_proj", "v_proj", "gate_proj", "down_proj"]
    folder = lora_adapters.write(work / "run" / "checkpoint-3", base, type(model), r=4, lora_alpha=6, target_modules=targets)
    return folder, lora_adapters.merged_by_peft(folder, base, type(model)), []


@pytest.mark.parametrize(("name", "write"), [
    ("qwen3", in_an_adapter),
    ("llama", in_torchtitan),
    pytest.param("llama", in_dcp, marks=pytest.mark.full),
    pytest.param("qwen3", in_torchtitan, marks=pytest.mark.full),
    pytest.param("qwen2", in_fsdp2, marks=pytest.mark.full),
    pytest.param("mistral", in_an_adapter, marks=pytest.mark.full),
    pytest.param("qwen3", in_dcp, marks=pytest.mark.full),
    pytest.param("llama", in_fsdp2, marks=pytest.mark.full),
])  # fmt: skip
def test_the_weights_of_a_training_answer_as_transformers_does_with_them(bin_dir, cache_dir, tmp_path, name, write):
    base = tmp_path / "base"
    model = write_base(base, name, cache_dir)
    write_task(tmp_path)
    before = by_transformers(model, base)

    checkpoint, state, arguments = write(tmp_path, base, model)

    model.load_state_dict(state)
    # lmms-eval reads the folder that it is given: a configuration without generation settings beside it has the defaults.
    own = (checkpoint / "config.json").exists() and not (checkpoint / "generation_config.json").exists()
    expected = by_transformers(model, base, 1.0 if own else PENALTY)
    assert expected != before, "the training changed no answer: this proves nothing"
    assert answers(bin_dir, checkpoint, tmp_path, *arguments) == expected


def test_the_sidecar_measures_every_step_of_torchtitan_and_knows_its_weights_again(bin_dir, cache_dir, tmp_path):
    base = tmp_path / "base"
    write_base(base, "llama", cache_dir)
    write_task(tmp_path)
    run = titan_checkpoints.write_run(tmp_path / "titan", base, steps=[3, 6])
    command = [bin_dir / "evalcar", "run", run, "--once", "--tasks", "own", "--data", tmp_path, "--device", "cpu", "--dtype", "float32",
               "--set", f"evaluate.tasks_dir={tmp_path / 'tasks'}", "--set", "watch.pattern=step-{step}", "--set", "watch.settle_time=1s",
               "--set", f"evaluate.base_model={base}", "--set", "evaluate.average_last=2", "--set", f"store.path={tmp_path / 'run.db'}"]  # fmt: skip

    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in (run / "_evalcar" / "metrics.jsonl").read_text().splitlines()]
    hashes = {(line["global_step"], line["checkpoint_type"]): line["weights_sha256"] for line in lines}
    assert sorted(hashes) == [(3, "regular"), (6, "average"), (6, "regular")]
    steps = ",".join(str(run / f"step-{step}") for step in (3, 6))
    subprocess.run([str(bin_dir / "evalcar"), "merge", "--input_dir", steps, "--merge", "--model_name_or_class", str(base), "--output_dir",
                    str(tmp_path / "mean")], capture_output=True, timeout=60, check=True)  # fmt: skip
    assert hash_of(bin_dir / "evalcar", tmp_path / "mean", "regular") == hashes[6, "average"]
    for step in (3, 6):  # as the agent looks again where it has to
        inspected = subprocess.run([str(bin_dir / "evalcar"), "inspect", str(run / f"step-{step}"), "--hash", "--json",
                                    "--model_name_or_class", str(base)], capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
        assert json.loads(inspected.stdout)["weights_sha256"] == hashes[step, "regular"]


def test_a_task_with_pictures_is_refused_by_name_and_the_others_are_answered(bin_dir, cache_dir, tmp_path):
    checkpoint = tmp_path / "run" / "checkpoint-7"
    write_base(checkpoint, "qwen3", cache_dir)
    write_task(tmp_path)
    data_sets.write_docvqa(pathlib.Path(tmp_path), count=2)

    done = evaluate(bin_dir, checkpoint, tmp_path, "own,docvqa_val")

    assert "docvqa_val" in done.stderr and "a qwen3 model reads text alone" in done.stderr, done.stderr
    assert list((tmp_path / "out").glob("**/*_samples_own.jsonl"))
    assert not list((tmp_path / "out").glob("**/*_samples_docvqa_val.jsonl"))
    alone = evaluate(bin_dir, checkpoint, tmp_path, "docvqa_val")
    assert alone.returncode == 2 and "reads text alone" in alone.stderr, (alone.returncode, alone.stderr)
