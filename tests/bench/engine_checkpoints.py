"""C1 and C2 of engine_bench.py: checkpoints in a training's output directory, beside processes started for each.

The data are docvqa's shape (four questions on a page), the checkpoints an lmms-engine run's FSDP2 shards with drifting weights. The peers get
each checkpoint merged to a folder beforehand; that merge is not in their times. As a program (`engine_checkpoints.py FOLDER DATA BATCH DEVICE DTYPE`)
this is C2's peer: one process with transformers alone, which asks docvqa_val in the words and with the pictures of lmms-eval's wrapper.
"""

import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
TESTS = HERE.parents[1]
sys.path[:0] = [str(TESTS / "e2e"), str(TESTS), str(TESTS / "fixtures")]

TASK = "docvqa_val"
NEW_TOKENS = 8  # as many as docvqa's answers have, on average
LIMITS = {"min_pixels": 200704, "max_pixels": 1605632}  # of lmms-eval's wrapper, and ours


class Training:
    """What a trainer would save: `shards` has checkpoint-<step>, `merged_folder` the same weights as transformers reads them."""

    def __init__(self, folder, bin_dir, size, steps, pages, pixels, seed):
        import data_sets
        import engine_scenes
        import fsdp2_checkpoints
        import small_models

        self.folder, self.bin_dir, self.steps = folder, bin_dir, steps
        self.shards, self.data = folder / "shards", folder / "data"
        model, _ = small_models.write_model(folder / "model", seed=seed, **engine_scenes.PICTURE_SIZES[size])
        self.millions = sum(p.numel() for p in model.parameters()) / 1e6
        self.questions = 4 * pages
        data_sets.write_docvqa(self.data, self.questions, seed, (pixels, pixels), questions_per_image=4)
        fsdp2_checkpoints.write_run(self.shards, folder / "model", steps, world_size=2, noise=0.02, seed=seed)
        for step in steps:
            subprocess.run([bin_dir / "evalcar", "merge", "--input_dir", self.shards / f"checkpoint-{step}", "--output_dir",
                            self.merged_folder(step)], check=True, capture_output=True)  # fmt: skip

    def merged_folder(self, step):
        return self.folder / f"merged-{step}"

    def agent(self, home, *arguments):
        import sidecar

        (home / "out").mkdir(parents=True)
        settings = ["--data", str(self.data), "--device", "cpu", "--dtype", "float32", "--set", f"evaluate.gen_kwargs=max_new_tokens={NEW_TOKENS}"]
        return sidecar.Sidecar(self.bin_dir, home, home / "out", tasks=TASK, arguments=[*settings, *arguments])

    def save(self, step, run):
        """Puts a checkpoint there, its config.json last, as rank 0 does; gives the time at which it was whole."""
        source, target = self.shards / f"checkpoint-{step}", run / f"checkpoint-{step}"
        shutil.copytree(source, target, ignore=lambda folder, names: ["config.json"] if pathlib.Path(folder) == source else [])
        shutil.copyfile(source / "config.json", target / "config.json")
        return time.perf_counter()

    def describe(self):
        return f"{self.millions:.3g} M parameters, {self.questions} questions on {self.questions // 4} pages, up to {NEW_TOKENS} new tokens"


def answers_of(run, step):
    """What the agent has published: the answers in the order of the documents."""
    (path,) = (run / "_evalcar" / "results" / str(step)).rglob(f"*_samples_{TASK}.jsonl")
    samples = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [sample["filtered_resps"] for sample in sorted(samples, key=lambda sample: sample["doc_id"])]


def until_scored(agent, step, begun):
    """(seconds to the first score, to the full one) of a checkpoint that was whole at `begun`."""
    first = None
    while True:
        for line in agent.metrics_lines():
            if line["global_step"] == step:
                first = first or time.perf_counter() - begun
                if line["final"]:
                    return first, time.perf_counter() - begun
        assert agent.process.poll() is None and time.perf_counter() - begun < 300, agent.log()[-3000:]
        time.sleep(0.005)


def lmms_eval(training, step, batch, folder):
    """(answers, seconds of the whole process)"""
    from fixtures import lmms_eval_run

    start = time.perf_counter()
    told = lmms_eval_run.run_lmms_eval(training.merged_folder(step), training.data, [TASK], folder, batch_size=batch,
                                       gen_kwargs=f"max_new_tokens={NEW_TOKENS}")
    seconds = time.perf_counter() - start
    shutil.rmtree(folder)
    return [sample["filtered_resps"] for sample in sorted(told.samples[TASK], key=lambda sample: sample["doc_id"])], seconds


def transformers(training, step, batch, device="cpu", dtype="float32"):
    """(answers, seconds of the whole process)"""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, str(HERE), str(training.merged_folder(step)), str(training.data), str(batch), device, dtype],
                          capture_output=True, text=True, env=dict(os.environ, TRANSFORMERS_OFFLINE="1"))  # fmt: skip
    seconds = time.perf_counter() - start
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), seconds


def all_at_once(training, home):
    """({step: answers}, seconds) of `evalcar run --once` over all checkpoints, its start and end included."""
    agent = training.agent(home, "--set", "evaluate.policy=every")
    for step in training.steps:
        training.save(step, agent.run)
    start = time.perf_counter()
    assert agent.once() == 0, agent.log()[-3000:]
    seconds = time.perf_counter() - start
    answers = {step: answers_of(agent.run, step) for step in training.steps}
    shutil.rmtree(home)
    return answers, seconds


# ---- from here on: C2's peer ----


def answer_all(checkpoint, data, batch, device, dtype):
    import torch
    from PIL import Image
    from pyarrow import parquet
    from qwen_vl_utils import process_vision_info
    from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration

    onto = {} if device == "cpu" else {"device_map": device}  # straight onto it; by accelerate
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(checkpoint, dtype=getattr(torch, dtype), **onto).eval()
    processor = AutoProcessor.from_pretrained(checkpoint, **LIMITS)
    rows = [row for file in sorted((data / "lmms-lab" / "DocVQA").rglob("*.parquet")) for row in parquet.read_table(file).to_pylist()]
    answers = []
    for first in range(0, len(rows), batch):
        turns = []
        for row in rows[first : first + batch]:
            image = {"type": "image", "image": Image.open(io.BytesIO(row["image"]["bytes"])), **LIMITS}
            text = {"type": "text", "text": row["question"] + "\nAnswer the question using a single word or phrase."}
            turns.append([{"role": "user", "content": [image, text]}])
        texts = processor.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        inputs = processor(text=texts, images=process_vision_info(turns)[0], padding=True, padding_side="left", return_tensors="pt",
                           **({} if device == "cpu" else {"device": device})).to(device)
        with torch.inference_mode():
            out = model.generate(**inputs, do_sample=False, max_new_tokens=NEW_TOKENS, eos_token_id=processor.tokenizer.eos_token_id,
                                 pad_token_id=processor.tokenizer.pad_token_id)  # fmt: skip
        made = processor.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        answers += [text.strip() for text in made]
    print(json.dumps(answers))


if __name__ == "__main__":
    answer_all(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
