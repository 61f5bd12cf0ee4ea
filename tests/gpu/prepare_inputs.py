"""Prepares what the GPU tests and the GPU benchmark read, where transformers is at hand.

    build/venv/bin/python tests/gpu/prepare_inputs.py FOLDER [--small]

FOLDER/model      a random Qwen2.5-VL checkpoint; in FOLDER/text the same files of a random Qwen3
FOLDER/other      another checkpoint of each, FOLDER/other/model and FOLDER/text/other/model: the same shape, other weights
FOLDER/*.rgb      raw pictures of the exact grid
FOLDER/cases.json prompts, transformers' greedy tokens in float32 on the CPU, and its own error in bfloat16
FOLDER/logits.f32 transformers' scores, (steps, vocab) float32, request after request
Carry the folder to the machine with the GPU, set EVALCAR_GPU_INPUTS to it, and run gpu_tests and gpu_bench there.
"""

import argparse
import dataclasses
import hashlib
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1] / "fixtures"))

STEPS = 32
SIZES = [(5 * 28, 3 * 28), (3 * 28, 11 * 28), (28, 7 * 28)]
IMAGES = [[0], [1], [2], [1, 0], []]  # per prompt
LENGTHS = (3, 64, 65, 200)  # of the text model's prompts


def write_inputs(folder, cache_dir, spec, text_spec):
    """A model with pictures, and in FOLDER/text one that normalises its heads and takes none."""
    import engine_cases as cases
    import numpy as np
    import small_models
    import small_text_models

    folder.mkdir(parents=True, exist_ok=True)
    model, ids = small_models.write_model(folder / "model", spec, cache_dir=cache_dir)
    vocab = model.config.text_config.vocab_size
    arrays = [cases.picture(100 * spec.seed + i, *size) for i, size in enumerate(SIZES)]
    prompts = [cases.prompt(ids, vocab, 10 * spec.seed + i, [SIZES[j] for j in chosen], before=3 + 5 * i)
               for i, chosen in enumerate(IMAGES)]  # fmt: skip
    small_models.write_model(folder / "other/model", dataclasses.replace(spec, seed=spec.seed + 1), cache_dir=cache_dir)
    write_cases(folder, (model, small_models.build(spec, ids)), ids, prompts, IMAGES, arrays)

    folder = folder / "text"
    model, _ = small_text_models.write_model(folder / "model", text_spec)
    small_text_models.write_model(folder / "other/model", dataclasses.replace(text_spec, seed=text_spec.seed + 1))
    generator = np.random.RandomState(text_spec.seed)
    prompts = [generator.randint(3, text_spec.vocab, length).tolist() for length in LENGTHS]
    write_cases(folder, (model, small_text_models.build(text_spec)), {"<|endoftext|>": 0}, prompts, [[]] * len(prompts), [])


def write_cases(folder, models, ids, prompts, chosen_of, arrays):
    """What transformers makes of the prompts, by the first model; the second is the same one, to be made bfloat16."""
    import engine_cases as cases
    import small_models
    import torch

    model, half = models
    images = []
    for i, array in enumerate(arrays):
        (folder / f"picture-{i}.rgb").write_bytes(array.tobytes())
        images.append({"rgb": f"picture-{i}.rgb", "height": array.shape[0], "width": array.shape[1],
                       "sha256": hashlib.sha256(array.tobytes()).hexdigest()})  # fmt: skip
    pictures_of = [[arrays[j] for j in chosen] for chosen in chosen_of]
    tokens, logits = [], []
    for prompt, pictures in zip(prompts, pictures_of, strict=True):
        made = cases.reference(model, ids, [prompt], [pictures], STEPS)
        tokens += made[0]
        logits += made[1]
    margins = [(best[:, 0] - best[:, 1]).min().item() for best in (rows.topk(2, dim=-1).values for rows in logits)]
    largest = max(rows.abs().max().item() for rows in logits)
    # A token may only differ where the scores do: transformers' best two are never closer than twice the tolerance.
    assert min(margins) > 2 * 1e-4 * largest, f"margin {min(margins):.1e} of {largest:.1e}: choose another seed"
    small_models.cast(half, torch.bfloat16)
    errors = [(cases.reference(half, ids, [p], [a], 1)[1][0][0] - rows[0]).pow(2).mean().sqrt().item()
              for p, a, rows in zip(prompts, pictures_of, logits, strict=True)]  # fmt: skip
    with open(folder / "logits.f32", "wb") as file:
        for rows in logits:
            file.write(rows.numpy().astype("<f4").tobytes())
    requests = [{"tokens": p, "images": chosen, "expected": t} for p, chosen, t in zip(prompts, chosen_of, tokens, strict=True)]
    content = {"vocab": logits[0].shape[1], "bfloat16_error": sum(errors) / len(errors), "images": images, "requests": requests}
    (folder / "cases.json").write_text(json.dumps(content))


SMALL_TEXT = {"family": "qwen3", "seed": 33, "tied": True, "head_dim": 32, "rope_theta": 1e6}


def main():
    import small_models
    import small_text_models

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--small", action="store_true", help="the smallest model: seconds, for checking the tests themselves")
    args = parser.parse_args()
    spec, text = small_models.SmallModel(seed=32), small_text_models.SmallTextModel(**SMALL_TEXT)
    if not args.small:
        text = small_text_models.SmallTextModel(
            "qwen3", seed=4, vocab=4000, hidden=512, intermediate=1408, layers=4, heads=8, kv_heads=2, head_dim=128, rope_theta=1e6)
        spec = small_models.SmallModel(
            seed=3, merges=4000, hidden=384, intermediate=1024, layers=6, heads=6, kv_heads=2, mrope_section=(8, 12, 12),
            vision_depth=6, vision_hidden=256, vision_intermediate=700, vision_heads=4, window=112, full_attention=(2, 5), gain=1.2)  # fmt: skip
    write_inputs(args.folder, args.folder, spec, text)


if __name__ == "__main__":
    main()
