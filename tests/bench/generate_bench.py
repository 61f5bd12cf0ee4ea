"""Samples per second and peak memory of the engine and of transformers.generate, side by side on the CPU in float32.

    build/venv/bin/python tests/bench/generate_bench.py [--size 18M] [--questions 4] [--pictures 4] [--repeat 3]

The same model folder, prompts and threads; several short questions on each picture, short answers. transformers gets its
best batch size (a sweep) and prompts sorted by length; outputs are compared first. Each side's memory is the peak RSS of a
process of its own that loads, then answers everything. Ratios are printed, times are medians of alternating runs.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
SOURCE = HERE.parents[2]
sys.path.insert(0, str(SOURCE / "tests" / "fixtures"))

STEPS = 8

# Heads of 64, as the real models' language side has 128 and their vision side 80.
SIZES = {
    "18M": dict(hidden=384, intermediate=1024, layers=6, heads=6, kv_heads=2, vision_depth=6, vision_hidden=256,
                vision_intermediate=704, vision_heads=8, full_attention=(2, 5)),
    "200M": dict(hidden=1024, intermediate=2816, layers=12, heads=16, kv_heads=4, vision_depth=12, vision_hidden=512,
                 vision_intermediate=1408, vision_heads=8, full_attention=(3, 7, 11)),
}  # fmt: skip


def write_scene(folder, args):
    """A random model of that size, `pictures` pictures, `questions` questions on each."""
    import engine_cases as cases
    import small_models

    model, ids = small_models.write_model(
        folder / "checkpoint", seed=args.seed, merges=4000, mrope_section=(8, 12, 12), window=112, gain=1.2, **SIZES[args.size])
    vocab = model.config.text_config.vocab_size
    pictures = cases.Pictures(folder)
    requests = []
    for p in range(args.pictures):
        size = (28 * (10 + 2 * (p % 4)), 28 * (14 - p % 3))
        pictures.add(cases.picture(p, *size))
        head = cases.prompt(ids, vocab, 1000 + p, [size], before=14, between=0, after=0)
        for q in range(args.questions):
            tokens = head + cases.prompt(ids, vocab, 2000 + 97 * p + q, [], before=10 + 3 * q, after=6)
            requests.append({"tokens": tokens, "images": [p], "max_new_tokens": STEPS})
    (folder / "scene.json").write_text(json.dumps({"requests": requests, "pictures": pictures.entries, "ids": ids}))
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters / 1e6:.0f} M parameters; {args.pictures} pictures x {args.questions} questions; prompts of "
          f"{min(len(r['tokens']) for r in requests)} to {max(len(r['tokens']) for r in requests)} tokens; {STEPS} new tokens; "
          f"{args.threads} threads")  # fmt: skip


def transformers_side(folder, batches, repeat, threads):
    """Runs in a process of its own; prints {"answers", "seconds": {batch: [..]}, "peak_rss_bytes"}."""
    import engine_cases as cases
    import numpy as np
    import torch
    from transformers import Qwen2_5_VLForConditionalGeneration

    torch.set_num_threads(threads)
    scene = json.loads((folder / "scene.json").read_text())
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder / "checkpoint", dtype=torch.float32).eval()
    arrays = [np.fromfile(e["rgb"], np.uint8).reshape(e["height"], e["width"], 3) for e in scene["pictures"]]
    order = sorted(range(len(scene["requests"])), key=lambda i: -len(scene["requests"][i]["tokens"]))
    seconds, answers = {}, {}
    for batch in batches:
        for _ in range(repeat):
            start = time.perf_counter()
            for first in range(0, len(order), batch):
                chosen = [scene["requests"][i] for i in order[first : first + batch]]
                tokens = cases.answers_only(
                    model, scene["ids"], [r["tokens"] for r in chosen], [[arrays[j] for j in r["images"]] for r in chosen], STEPS)  # fmt: skip
                answers.update(zip(order[first : first + batch], tokens, strict=True))
            seconds.setdefault(batch, []).append(time.perf_counter() - start)
    # Not ru_maxrss: that of a process counts what its parent held when it forked.
    peak = int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    print(json.dumps({"answers": [answers[i] for i in range(len(order))], "seconds": seconds, "peak_rss_bytes": peak}))


def run_transformers(folder, batches, repeat, threads):
    command = [sys.executable, str(HERE), "--side", str(folder), "--batches", *map(str, batches), "--repeat", str(repeat),
               "--threads", str(threads)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def run_engine(folder, bin_dir, repeat, threads):
    import engine_cases as cases

    scene = json.loads((folder / "scene.json").read_text())
    pictures = cases.Pictures(folder)
    pictures.entries = scene["pictures"]
    run = {"folder": str(folder / "checkpoint"), "requests": scene["requests"], "repeat": repeat}
    (result,) = cases.run_probe(bin_dir, folder, [run], pictures, threads=threads)["runs"]
    assert "error" not in result, result
    return result


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=4)
    parser.add_argument("--questions", type=int, default=4)
    parser.add_argument("--size", choices=SIZES, default="18M")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--bin-dir", type=pathlib.Path, default=SOURCE / "build" / "dev" / "bin")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--side", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.side:
        transformers_side(args.side, args.batches, args.repeat, args.threads)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_scene(folder, args)
        samples = args.pictures * args.questions
        sweep = run_transformers(folder, args.batches, 1, args.threads)
        best = int(min(sweep["seconds"], key=lambda batch: sweep["seconds"][batch][0]))
        for batch, (once,) in sweep["seconds"].items():
            print(f"  transformers, batch {batch:>2}: {samples / once:6.2f} samples/s" + (" (best)" if int(batch) == best else ""))
        ours, theirs = [], []
        for _ in range(args.repeat):  # alternating, so that a busy machine is busy for both
            theirs.append(run_transformers(folder, [best], 1, args.threads))
            ours.append(run_engine(folder, args.bin_dir, 1, args.threads))
        equal = sum(a["tokens"] == b for a, b in zip(ours[0]["answers"], theirs[0]["answers"], strict=True))
        print(f"  equal answers: {equal} of {samples}")
        rate = lambda side: samples / statistics.median(side)  # noqa: E731
        fast, slow = rate([r["seconds"][0] for r in ours]), rate([r["seconds"][str(best)][0] for r in theirs])
        memory = [statistics.median(r["peak_rss_bytes"] for r in side) for side in (ours, theirs)]
        print(f"  evalcar {fast:.2f} samples/s, transformers {slow:.2f}: ratio {fast / slow:.2f}")
        print(f"  peak memory {memory[0] / 2**20:.0f} MiB, transformers {memory[1] / 2**20:.0f} MiB: ratio {memory[0] / memory[1]:.2f}")
        return 0 if equal == samples else 1


if __name__ == "__main__":
    sys.exit(main())
