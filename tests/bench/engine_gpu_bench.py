"""The engine beside transformers on a GPU, in bfloat16: the works of engine_bench.py with models of 1.7 B (or 8 B) and 3 B parameters.

    python3 tests/bench/engine_gpu_bench.py --bin-dir BIN [--work G1,L2] [--repeat 5] [--record tests/bench/RESULTS.md]

    G1  greedy text, one request at a time             reach: 8 times as fast, 80 % of what reading the weights allows
    G2  128 requests of mixed lengths in one go        6 times; 70 %
    G3  unique pages of about 2,000 picture tokens     4 times; 60 % of the card's matrix products
    G4  4.2 questions on each picture                  8 times
    L1  4 choices x 1 token behind five examples       8 times
    L2  4 choices x 20 tokens behind five examples     4 times

Random weights, the same files for both sides. First both sides compute in float32, and their answers have to be equal: in bfloat16 the best
token of a random model is ahead by less than rounding, so there only the share of equal tokens is told. Then each side runs in bfloat16 so
many times behind one that does not count, transformers with the fastest batch size of a sweep, sdpa, and its picture processor on the GPU.
What is timed is engine_bench.py's: from token ids and pixels to answers, weights resident. "What the card gives" is measured in the same
run: bytes read and written by a large copy, and a product of bfloat16 matrices. Needs no more than torch, transformers and numpy.
"""

import argparse
import dataclasses
import gc
import json
import pathlib
import platform
import shutil
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
SOURCE = HERE.parents[2]
sys.path[:0] = [str(HERE.parent), str(SOURCE / "tests" / "fixtures")]

import engine_cases as cases  # noqa: E402
import engine_scenes  # noqa: E402
import engine_sides  # noqa: E402
import numpy as np  # noqa: E402
import results_file  # noqa: E402
import small_models  # noqa: E402
import torch  # noqa: E402

TITLE = "# Results of engine_gpu_bench.py"
TEXT = dict(vocab=151936, hidden=2048, intermediate=6144, layers=28, heads=16, kv_heads=8, head_dim=128, tied=True, rope_theta=1e6)
LARGE_TEXT = {**TEXT, "hidden": 4096, "intermediate": 12288, "layers": 36, "heads": 32, "tied": False}
PICTURES = dict(hidden=2048, intermediate=11008, layers=36, heads=16, kv_heads=2, mrope_section=(16, 24, 24), vision_depth=32,
                vision_hidden=1280, vision_intermediate=3420, vision_heads=16, window=112, full_attention=(7, 15, 23, 31), gain=1.2)  # fmt: skip
SMALL_TEXT = {**TEXT, "vocab": 500, "hidden": 128, "intermediate": 224, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 64}
SMALL_PICTURES = dict(hidden=256, intermediate=512, layers=2, heads=4, kv_heads=2, mrope_section=(8, 12, 12), vision_depth=2, gain=1.2)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # the CPU: whether the program itself is right


@dataclasses.dataclass
class Work:
    """What is asked: written by one of engine_scenes' ways into a folder."""

    id: str
    aim: float
    batches: list
    write: object  # (folder, batches): what is done, in words
    least_bytes: bool = False  # whether reading the weights for each token bounds it
    share: float = 0  # of the card's matrix products that reading the prompts is to reach


# ---- models, drawn on the GPU ----


def made(factory, config, seed, gain):
    with torch.device(DEVICE):
        model = factory(config).eval()
    small_models.cast(model, torch.bfloat16)
    small_models.draw_weights(model, seed, gain)
    return model


def text_model(folder, spec):
    import transformers

    config = transformers.Qwen3Config(
        vocab_size=spec["vocab"], hidden_size=spec["hidden"], intermediate_size=spec["intermediate"], num_hidden_layers=spec["layers"],
        num_attention_heads=spec["heads"], num_key_value_heads=spec["kv_heads"], head_dim=spec["head_dim"], rms_norm_eps=1e-6,
        max_position_embeddings=4096, rope_parameters={"rope_type": "default", "rope_theta": spec["rope_theta"]},
        tie_word_embeddings=spec["tied"], bos_token_id=1, eos_token_id=2)  # fmt: skip
    model = made(transformers.Qwen3ForCausalLM, config, 3, 1.6)
    model.save_pretrained(folder)
    return model


def picture_model(folder, spec):
    import qwen_tokenizer
    import transformers

    ids = {name: 151643 + i for i, (name, _) in enumerate(qwen_tokenizer.ADDED_TOKENS)}
    config = small_models._config(small_models.SmallModel(**spec), ids)
    model = made(transformers.Qwen2_5_VLForConditionalGeneration, config, 3, spec["gain"])
    model.save_pretrained(folder)
    return model


def operations_of(model, scene, of_causal=0.5):
    """Multiplications and additions of reading the prompts of a model with pictures: the products of the tower, once a picture, of the
    layers, once a token, and of attention, of which the layers' mask leaves the share `of_causal`. What decoding takes is left out."""
    tower, text = model.model.visual, model.model.language_model
    vision, config = model.config.vision_config, model.config.text_config
    matrices = lambda module: sum(p.numel() for p in module.parameters() if p.dim() > 1)  # noqa: E731
    patches_of = [e["height"] * e["width"] // vision.patch_size**2 for e in scene["pictures"]]
    window = (vision.window_size // vision.patch_size) ** 2
    full = len(vision.fullatt_block_indexes)
    total = 0
    for patches in patches_of:
        total += 2 * patches * (matrices(tower.patch_embed) + matrices(tower.blocks) + matrices(tower.merger) / vision.spatial_merge_size**2)
        total += 4 * patches * vision.hidden_size * (full * patches + (vision.depth - full) * min(window, patches))
    heads = config.num_attention_heads * (config.hidden_size // config.num_attention_heads)
    for request in scene["requests"]:
        tokens = len(request["tokens"])
        total += 2 * tokens * matrices(text.layers) + of_causal * 4 * tokens**2 * heads * config.num_hidden_layers
    return total


# ---- scenes ----


def write_scene(folder, **scene):
    (folder / "scene.json").write_text(json.dumps({"pictures": [], "ids": {"<|endoftext|>": 0}, "pixels": False, "options": {}, **scene}))


def texts(requests_of, steps, options=None):
    def write(folder, batches):
        generator = np.random.RandomState(3)
        requests, words = requests_of(generator)
        write_scene(folder, requests=requests, steps=steps, batches=batches, options=options or {})
        return words

    return write


def one_at_a_time(vocab, prompts, steps):
    def requests_of(generator):
        requests = [{"tokens": engine_scenes.words(generator, vocab, 20 + 60 * i), "max_new_tokens": steps} for i in range(prompts)]
        return requests, f"{prompts} prompts one at a time, {steps} new tokens each"

    return texts(requests_of, steps, {"batch_size": 1, "share_prefixes": False})


def many(vocab, count, steps):
    words = f"{count} requests, prompts of 8 to 128 tokens, up to {steps} new tokens"
    return texts(lambda generator: (engine_scenes.many_requests(generator, vocab, count, steps), words), steps)


def choices(vocab, questions, length):
    words = f"{questions} questions x 4 choices x {length} tokens, five examples of 60 tokens before each"
    return texts(lambda generator: (engine_scenes.choice_requests(generator, vocab, questions, length), words), 0)


def pages(ids, vocab, questions_of, grid, steps):
    def write(folder, batches):
        pictures, requests, words = engine_scenes.page_requests(folder, ids, vocab, questions_of, grid, steps)
        write_scene(folder, requests=requests, pictures=pictures.entries, ids=ids, pixels=True, steps=steps, batches=batches)
        return words

    return write


# ---- the two sides ----


def synchronized(work):
    start = time.perf_counter()
    answers = work()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return answers, time.perf_counter() - start


def peer(model, scene, batch):
    arrays = [np.fromfile(e["rgb"], np.uint8).reshape(e["height"], e["width"], 3) for e in scene["pictures"]]
    with torch.inference_mode():
        if scene["steps"]:
            return synchronized(lambda: engine_sides.generate(model, scene, arrays, batch))
        return synchronized(lambda: engine_sides.score(model, scene, batch))


def engine(args, folder, checkpoint, scene, sessions):
    """[(answers, seconds of each run but the first, a profile or None)] of `sessions`, each (dtype, runs that count, more options)."""
    pictures = cases.Pictures(folder)
    pictures.entries = scene["pictures"]
    asked = []
    for dtype, repeat, options in sessions:
        run = {"folder": str(checkpoint), "requests": scene["requests"], "repeat": repeat + 1, "profile": args.profile and repeat > 0}
        asked.append(({**scene["options"], "device": DEVICE, "dtype": dtype, "threads": 0, **options}, [run]))
    told = []
    for document in cases.run_sessions(args.bin_dir, folder, asked, pictures):
        if "error" in document:
            raise RuntimeError(document["error"]["message"])
        (run,) = document["runs"]
        if "error" in run:
            raise RuntimeError(run["error"]["message"])
        told.append(([a["scores"] if "scores" in a else a["tokens"] for a in run["answers"]], run["seconds"][1:], run.get("profile")))
    return told


def same(ours, theirs):
    """The models are some three times as deep as engine_bench.py's."""
    return engine_sides.same(ours, theirs, rounding=2e-5)


def equal_tokens(ours, theirs):
    """Share of the tokens that are equal up to the first that is not."""
    equal = sum(next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b))) for a, b in zip(ours, theirs, strict=True))
    return equal / max(1, sum(map(len, theirs)))


def measure(args, work, checkpoint, model, card):
    """(the lines of one work, whether the answers are equal)"""
    with tempfile.TemporaryDirectory(prefix="engine-gpu-bench-") as made_in:
        folder = pathlib.Path(made_in)
        words = work.write(folder, work.batches)
        scene = json.loads((folder / "scene.json").read_text())
        millions = sum(p.numel() for p in model.parameters()) / 1e6
        lines = ["", f"## {work.id}", "", f"{millions:.4g} M parameters, {words}", ""]
        small_models.cast(model, torch.float32)
        expected, _ = peer(model, scene, max(work.batches) if work.least_bytes else min(work.batches))
        small_models.cast(model, torch.bfloat16)
        peer(model, {**scene, "requests": scene["requests"][:2]}, 1)
        tried = {batch: peer(model, scene, batch) for batch in work.batches}
        best = min(tried, key=lambda batch: tried[batch][1])
        theirs = [peer(model, scene, best)[1] for _ in range(args.repeat)]
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
        sessions = [("float32", 0, {}), ("bfloat16", args.repeat, {})]
        if scene["steps"]:
            sessions.append(("bfloat16", args.repeat, {"decode_graphs": False}))
        (exact, *_), (answers, ours, profile), *without = engine(args, folder, checkpoint, scene, sessions)

    equal = [same(a, b) for a, b in zip(exact, expected, strict=True)]
    lines.append(f"- in float32 {sum(equal)} of {len(equal)} answers are equal" + ("" if all(equal) else ": NOT EQUAL, these times mean nothing"))
    for i in [i for i, each in enumerate(equal) if not each][:3]:
        lines.append(f"- answer {i}: {str(exact[i])[:200]}, transformers: {str(expected[i])[:200]}")
    if len(work.batches) > 1:
        lines.append("- batch sizes tried: " + ", ".join(f"{batch}: {each[1]:.2f} s" for batch, each in tried.items()))
    if scene["steps"]:
        lines.append(f"- in bfloat16 {100 * equal_tokens(answers, tried[best][0]):.0f} % of the tokens come before the first difference of their answer")
    rows = [("evalcar", ours), *(("evalcar without CUDA graphs", each[1]) for each in without), (f"transformers, batch {best}", theirs)]
    if any(each[0] != answers for each in without):
        lines.append("- NOT EQUAL: evalcar with and without CUDA graphs")
    lines += ["", "| way | seconds (least to most) | times as fast as transformers |", "|---|---|---|"]
    lines += [f"| {name} | {statistics.median(each):.4f} ({min(each):.4f} to {max(each):.4f}) | {statistics.median(theirs) / statistics.median(each):.2f} |"
              for name, each in rows]  # fmt: skip
    ratio = statistics.median(theirs) / statistics.median(ours)
    lines += ["", f"- {work.id} {'holds' if ratio >= work.aim else 'FALLS SHORT'}: {ratio:.2f} times as fast as transformers (aim: {work.aim:g})"]
    if work.least_bytes and card:
        tokens = sum(map(len, answers)) if work.id == "G1" else max(map(len, answers))
        least = tokens * millions * 1e6 * 2 / card["bytes"]
        lines.append(f"- reading the weights once a token takes {least:.4f} s at what the card gives: {100 * least / statistics.median(ours):.0f} % of the time")
    if work.share and card:
        least = operations_of(model, scene) / card["operations"]
        share = least / statistics.median(ours)
        lines.append(f"- {work.id} {'holds' if share >= work.share else 'FALLS SHORT'}: the prompts' products take {least:.4f} s at what the card gives, "
                     f"{100 * share:.0f} % of the time (aim: {100 * work.share:.0f} %)")  # fmt: skip
    if profile:
        lines += [f"- the device is busy for {profile['busy']:.4f} s of {profile['span']:.4f} (profiled)", "",
                  "| kernel | calls | ms | us each |", "|---|---|---|---|",
                  *(f"| {name[:120].replace('|', ' ')} | {count} | {1e3 * each:.2f} | {1e6 * each / count:.1f} |"
                    for name, count, each in profile["kernels"][:16])]  # fmt: skip
    return lines, all(equal)


def card_gives():
    """Bytes a second of a large copy, and operations a second of a product in bfloat16."""
    if DEVICE == "cpu":
        return None

    def timed(work, times):
        work()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            work()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / times

    a = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    b = torch.randn_like(a)
    operations = 2 * 8192**3 / timed(lambda: a @ b, 20)
    source = torch.empty(2**30, device=DEVICE, dtype=torch.float32).normal_()
    target = torch.empty_like(source)
    return {"bytes": 2 * source.numel() * 4 / timed(lambda: target.copy_(source), 10), "operations": operations}


def works(args, ids):
    text, picture = (SMALL_TEXT, SMALL_PICTURES) if args.small else (LARGE_TEXT if args.large else TEXT, PICTURES)
    vocab, count = text["vocab"], 6 if args.small else args.requests
    steps = 12 if args.small else args.steps
    questions = 4 if args.small else 48
    grid = (6, 8) if args.small else (44, 46)
    page_vocab = max(ids.values()) + 1
    return {
        "G1": Work("G1", 8, [1], one_at_a_time(vocab, 2, steps), least_bytes=True),
        "G2": Work("G2", 6, [2, 6] if args.small else [64, 128], many(vocab, count, steps), least_bytes=True),
        "L1": Work("L1", 8, [4] if args.small else [16, 64], choices(vocab, questions, 1)),
        "L2": Work("L2", 4, [4] if args.small else [16, 64], choices(vocab, questions, 20)),
        "G3": Work("G3", 4, [1, 2] if args.small else [1, 4, 8], pages(ids, page_vocab, [1] * (2 if args.small else 16), grid, 8), share=0.6),
        "G4": Work("G4", 8, [2] if args.small else [4, 8, 16],
                   pages(ids, page_vocab, [2, 3] if args.small else [4, 4, 4, 4, 5] * 2, (6, 8) if args.small else (22, 24), 8)),
    }, text, picture  # fmt: skip


def main(arguments=None):
    import qwen_tokenizer
    import transformers

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", type=pathlib.Path, required=True, help="where engine_probe is")
    parser.add_argument("--work", default="G1,G2,L1,L2,G3,G4")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="tiny models: only whether both sides say the same")
    parser.add_argument("--large", action="store_true", help="the model of G1, G2, L1 and L2 has 8 B parameters, as Qwen3's has")
    parser.add_argument("--folder", type=pathlib.Path, help="for the checkpoints, some 10 GB (20 with --large); the fastest there is")
    parser.add_argument("--profile", action="store_true", help="which kernels evalcar's time goes to")
    parser.add_argument("--steps", type=int, default=128, help="of G1 and G2: new tokens")
    parser.add_argument("--layers", type=int, help="of the model with pictures, where time is short")
    parser.add_argument("--requests", type=int, default=128, help="of G2")
    parser.add_argument("--record", type=pathlib.Path, help="a Markdown file for what is printed; other sections stay")
    args = parser.parse_args(arguments)
    ids = {name: 151643 + i for i, (name, _) in enumerate(qwen_tokenizer.ADDED_TOKENS)}
    known, text, picture = works(args, ids)
    if args.layers:
        picture = {**picture, "layers": args.layers}
    lines, equal, models = [], True, {}

    def tell(*more):
        lines.extend(more)
        print("\n".join(more), flush=True)

    card = card_gives()
    name = torch.cuda.get_device_name() if card else "no GPU"
    tell(f"{name}; torch {torch.__version__}, transformers {transformers.__version__}, Python {platform.python_version()}, Linux {platform.release()}",
         f"bfloat16; medians of {args.repeat} runs")  # fmt: skip
    if card:
        tell(f"what the card gives: {card['bytes'] / 1e12:.2f} TB/s copied, {card['operations'] / 1e12:.0f} TFLOP/s in bfloat16")
    root = pathlib.Path(tempfile.mkdtemp(prefix="engine-gpu-bench-", dir=args.folder))
    try:
        for each in args.work.split(","):
            kind = "pictures" if each in ("G3", "G4") else "text"
            if kind not in models:
                models.clear()  # one at a time in the card's memory
                gc.collect()
                models[kind] = (picture_model if kind == "pictures" else text_model)(root / kind, picture if kind == "pictures" else text)
            try:
                told, same_answers = measure(args, known[each], root / kind, models[kind], card)
            except (AssertionError, RuntimeError) as error:  # the other works are still worth their time
                told, same_answers = ["", f"- {each} FAILED: {str(error)[-1500:]}"], False
            tell(*told)
            equal = equal and same_answers
    finally:
        shutil.rmtree(root)
    if args.record:
        command = " ".join(["python3 tests/bench/engine_gpu_bench.py", *(arguments or sys.argv[1:])])
        results_file.put(args.record, TITLE, ["", f"`{command}`", "", *lines])
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
