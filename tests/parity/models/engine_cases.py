"""What the engine's parity tests and benchmark share: prompts with pictures, transformers' answers, the probe."""

import json
import pathlib
import subprocess
import tempfile

import numpy as np
import torch

GRID = 28  # pixels of a merged token: pictures of the tests are multiples, so that nothing is resized


def picture(seed, height, width):
    """(height, width, 3) uint8: smooth shapes with noise, so that patches differ."""
    generator = np.random.RandomState(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 90 * np.sin(x / generator.uniform(5, 40) + y / generator.uniform(5, 40) + c) for c in range(3)]
    noise = generator.randint(-30, 31, (height, width, 3))
    return np.clip(np.stack(waves, -1) + noise, 0, 255).astype(np.uint8)


def pixel_values(pictures):
    """What transformers' own image processor gives the model for pictures that need no resize."""
    from transformers import Qwen2VLImageProcessor

    processor = Qwen2VLImageProcessor(do_resize=False)
    made = processor(images=[torch.from_numpy(p).permute(2, 0, 1) for p in pictures], return_tensors="pt")
    return made["pixel_values"], made["image_grid_thw"]


def prompt(ids, vocab, seed, sizes, before=6, after=9, between=4):
    """Random words around the placeholders of pictures of `sizes`; nothing after the words is a special token."""
    generator = np.random.RandomState(seed)
    words = lambda n: generator.randint(0, min(ids.values()), n).tolist()  # noqa: E731
    tokens = [ids["<|im_start|>"], *words(before)]
    for height, width in sizes:
        count = height * width // GRID**2
        tokens += [ids["<|vision_start|>"], *[ids["<|image_pad|>"]] * count, ids["<|vision_end|>"], *words(between)]
    return tokens + words(after)


def batch_inputs(ids, prompts, pictures_of):
    """generate()'s inputs for a left-padded batch."""
    longest = max(map(len, prompts))
    input_ids = torch.tensor([[ids["<|endoftext|>"]] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    inputs = {"input_ids": input_ids, "attention_mask": mask}
    pictures = [p for ps in pictures_of for p in ps]
    if pictures:
        inputs["pixel_values"], inputs["image_grid_thw"] = pixel_values(pictures)
        inputs["mm_token_type_ids"] = (input_ids == ids["<|image_pad|>"]).int()
    return inputs


@torch.inference_mode()
def answers_only(model, ids, prompts, pictures_of, max_new_tokens):
    """transformers' greedy answers to a batch, as a benchmark would ask for them."""
    inputs = batch_inputs(ids, prompts, pictures_of)
    out = model.generate(**inputs, do_sample=False, max_new_tokens=max_new_tokens, eos_token_id=None,
                         pad_token_id=ids["<|endoftext|>"])  # fmt: skip
    return out[:, inputs["input_ids"].shape[1] :].tolist()


@torch.inference_mode()
def reference(model, ids, prompts, pictures_of, max_new_tokens=32, stop_ids=(), penalty=1.0):
    """transformers' greedy answers to a batch (left-padded), and its raw scores: ([tokens], [(steps, vocab)])."""
    inputs = batch_inputs(ids, prompts, pictures_of)
    longest = inputs["input_ids"].shape[1]
    out = model.generate(
        **inputs, do_sample=False, max_new_tokens=max_new_tokens, repetition_penalty=penalty,
        pad_token_id=ids["<|endoftext|>"], eos_token_id=list(stop_ids) or None, output_logits=True,
        return_dict_in_generate=True,
    )  # fmt: skip
    tokens, logits = [], []
    for row, sequence in enumerate(out.sequences[:, longest:].tolist()):
        end = next((i for i, t in enumerate(sequence) if t in stop_ids), len(sequence))
        tokens.append(sequence[:end])
        logits.append(torch.stack([step[row] for step in out.logits[: min(end + 1, len(sequence))]]).float())
    model.model.rope_deltas = None  # of this batch; transformers would take them for the next text-only one
    return tokens, logits


class Pictures:
    """Pictures written for the probe, by index."""

    def __init__(self, folder):
        self.folder, self.arrays, self.entries = pathlib.Path(tempfile.mkdtemp(dir=folder)), [], []

    def add(self, array, key=None):
        index = len(self.arrays)
        path = self.folder / f"picture-{index}.rgb"
        path.write_bytes(array.tobytes())
        self.arrays.append(array)
        entry = {"rgb": str(path), "height": array.shape[0], "width": array.shape[1]}
        self.entries.append(entry if key is None else {**entry, "key": key})
        return index


def run_sessions(bin_dir, folder, sessions, pictures=None):
    """Runs [(options, runs)], each on an engine of its own, in one process (see engine_probe.cpp); returns their documents.

    One thread unless told otherwise: models this small gain nothing from more, and wait for each other on a busy machine.
    """
    job = pathlib.Path(folder) / "job.json"
    content = {
        "images": pictures.entries if pictures else [],
        "sessions": [{"options": {"threads": 1, **options}, "runs": runs} for options, runs in sessions],
    }
    job.write_text(json.dumps(content))
    done = subprocess.run([str(bin_dir / "engine_probe"), str(job)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_probe(bin_dir, folder, runs, pictures=None, **options):
    """Runs the engine on `runs` and returns its document."""
    return run_sessions(bin_dir, folder, [(options, runs)], pictures)[0]


def read_logits(path, vocab, lengths):
    """The probe's scores, cut into requests of `lengths` steps."""
    rows = np.fromfile(path, dtype=np.float32).reshape(-1, vocab)
    assert rows.shape[0] == sum(lengths), (rows.shape, lengths)
    return [torch.from_numpy(part) for part in np.split(rows, np.cumsum(lengths)[:-1])]
