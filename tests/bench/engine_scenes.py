"""Models and requests of engine_bench.py's works: written to a folder, from which both sides read them.

A scene is {"pixels": bool, "requests", "pictures", "ids", "steps", "options", "batches"}: requests and pictures as engine_probe takes them,
`options` are the probe's, `batches` what the peer tries. The models are random, as real checkpoints: the answers mean nothing, and vary.
"""

import json

import numpy as np

# With 16,384 words, tied.
TEXT_SIZES = {
    "tiny": dict(hidden=64, intermediate=112, layers=2, heads=2, kv_heads=1, vocab=500),
    "0.02B": dict(hidden=384, intermediate=1024, layers=8, heads=6, kv_heads=2, vocab=16384),
    "0.05B": dict(hidden=512, intermediate=1536, layers=12, heads=8, kv_heads=4, vocab=16384),
    "0.2B": dict(hidden=1024, intermediate=2816, layers=16, heads=16, kv_heads=4, vocab=16384),
}
# Heads of 64 on the language side and 32 on the tower's; real models have 128 and 80.
PICTURE_SIZES = {
    "tiny": dict(hidden=64, intermediate=112, layers=2, heads=4, kv_heads=2, vision_depth=2, merges=400),
    "18M": dict(hidden=384, intermediate=1024, layers=6, heads=6, kv_heads=2, vision_depth=6, vision_hidden=256, vision_intermediate=704,
                vision_heads=8, full_attention=(2, 5), mrope_section=(8, 12, 12), window=112, gain=1.2, merges=4000),
}  # fmt: skip


def write(folder, model, **scene):
    """Leaves scene.json beside the model's folder "checkpoint"; gives the parameters in millions."""
    (folder / "scene.json").write_text(json.dumps({"pictures": [], "ids": {"<|endoftext|>": 0}, "pixels": False, "options": {}, **scene}))
    return sum(p.numel() for p in model.parameters()) / 1e6


def store_in(stored, model, folder):
    """The weights of a written model once more, as `stored`; computed with is float32 on both sides."""
    import torch

    if stored != "float32":
        model.to(getattr(torch, stored)).save_pretrained(folder / "checkpoint")


def text_model(folder, size, seed, stored="float32"):
    import small_text_models

    spec = small_text_models.SmallTextModel("qwen3", seed=seed, tied=True, head_dim=64, **TEXT_SIZES[size])
    model, _ = small_text_models.write_model(folder / "checkpoint", spec)
    store_in(stored, model, folder)
    return model, TEXT_SIZES[size]["vocab"]


def words(generator, vocab, count):
    return generator.randint(3, vocab, count).tolist()


def one_at_a_time(folder, size, prompts, steps, seed, stored):
    """G1: prompts of 20 to 80 tokens, each answered alone; computed in float32, whatever dtype the weights are `stored` in."""
    model, vocab = text_model(folder, size, seed, stored)
    generator = np.random.RandomState(seed)
    requests = [{"tokens": words(generator, vocab, 20 + 60 * i // max(prompts - 1, 1)), "max_new_tokens": steps} for i in range(prompts)]
    millions = write(folder, model, requests=requests, steps=steps, batches=[1], options={"batch_size": 1, "share_prefixes": False})
    return f"{millions:.3g} M parameters, {prompts} prompts one at a time, {steps} new tokens each, weights stored in {stored}"


def many_requests(generator, vocab, count, steps):
    stops = generator.choice(np.arange(3, vocab), 2 * vocab // steps, replace=False).tolist()
    return [{"tokens": words(generator, vocab, int(generator.randint(8, 129))), "max_new_tokens": steps, "stop_ids": stops}
            for _ in range(count)]  # fmt: skip


def choice_requests(generator, vocab, questions, length):
    examples = words(generator, vocab, 5 * 60)
    return [{"tokens": examples + words(generator, vocab, int(generator.randint(30, 90))),
             "continuations": [words(generator, vocab, length) for _ in range(4)]} for _ in range(questions)]  # fmt: skip


def page_requests(folder, ids, vocab, questions_of, grid, steps):
    """(pictures, requests, in words how many of what)"""
    import engine_cases as cases

    pictures, requests = cases.Pictures(folder), []
    for p, questions in enumerate(questions_of):
        size_of = (cases.GRID * (grid[0] + 2 * (p % 3)), cases.GRID * (grid[1] - p % 3))
        pictures.add(cases.picture(p, *size_of))
        head = cases.prompt(ids, vocab, 1000 + p, [size_of], before=14, between=0, after=0)
        for q in range(questions):
            tokens = head + cases.prompt(ids, vocab, 2000 + 97 * p + q, [], before=10 + 3 * q, after=6)
            requests.append({"tokens": tokens, "images": [p], "max_new_tokens": steps})
    of_picture = sorted(r["tokens"].count(ids["<|image_pad|>"]) for r in requests)
    return pictures, requests, (f"{len(questions_of)} pictures of {of_picture[0]} to {of_picture[-1]} tokens, "
                                f"{len(requests) / len(questions_of):.1f} questions on each, {steps} new tokens")  # fmt: skip


def many(folder, size, count, steps, seed, batches, stored):
    """G2: prompts of 8 to 128 tokens; one word in steps / 2 ends an answer, so answers are of any length up to `steps`."""
    model, vocab = text_model(folder, size, seed, stored)
    generator = np.random.RandomState(seed)
    requests = many_requests(generator, vocab, count, steps)
    millions = write(folder, model, requests=requests, steps=steps, batches=batches)
    return f"{millions:.3g} M parameters, {count} requests, prompts of 8 to 128 tokens, up to {steps} new tokens, weights stored in {stored}"


def choices(folder, size, questions, length, seed, batches):
    """L1, L2: four choices of `length` tokens to each question; before every question the same five examples."""
    model, vocab = text_model(folder, size, seed)
    generator = np.random.RandomState(seed)
    requests = choice_requests(generator, vocab, questions, length)
    millions = write(folder, model, requests=requests, steps=0, batches=batches)
    return f"{millions:.3g} M parameters, {questions} questions x 4 choices x {length} tokens, five examples of 60 tokens before each"


def pages(folder, size, questions_of, grid, steps, seed, batches, stored):
    """G3, G4: len(questions_of) pictures of about grid[0] x grid[1] merged tokens, so many questions on each."""
    import small_models

    model, ids = small_models.write_model(folder / "checkpoint", seed=seed, **PICTURE_SIZES[size])
    store_in(stored, model, folder)
    vocab = model.config.text_config.vocab_size
    pictures, requests, asked = page_requests(folder, ids, vocab, questions_of, grid, steps)
    millions = write(folder, model, requests=requests, pictures=pictures.entries, ids=ids, pixels=True, steps=steps, batches=batches)
    return f"{millions:.3g} M parameters, {asked}, weights stored in {stored}"
