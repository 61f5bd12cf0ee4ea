"""What the previous checkpoint's answers save as drafts while weights drift: the engine with and without, on the CPU in float32.

    build/venv/bin/python tests/bench/draft_bench.py [--size 0.05B] [--sequences 1,2,4,8] [--repeat 3]

Each row is one checkpoint after another: each matrix of the model gets normal noise of `drift` times its own standard deviation. `sequences`
prompts are answered together, prompts included in the time. Tokens are compared before a time is told. Both ways take turns on one
machine; the ratio is of medians. A random model's answers part from their drafts sooner than a trained one's of the same drift: the tokens
that were right say what a ratio is of.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve()
SOURCE = HERE.parents[2]
sys.path[:0] = [str(HERE.parent), str(SOURCE / "tests" / "fixtures")]
os.environ.setdefault("DS_ACCELERATOR", "cpu")  # accelerate imports DeepSpeed, which prints that it finds no GPU

import engine_cases as cases  # noqa: E402
import engine_scenes  # noqa: E402
import small_models  # noqa: E402

DRIFTS = (0.0, 0.0002, 0.001, 0.01)
NEW_TOKENS = 48


class Scene:
    def __init__(self, folder, bin_dir, threads, size, sequences, seed):
        import numpy

        self.folder, self.bin_dir, self.options = folder, bin_dir, {"threads": threads, "batch_size": sequences}
        model, vocab = engine_scenes.text_model(folder, size, seed)
        self.millions = sum(p.numel() for p in model.parameters()) / 1e6
        generator = numpy.random.RandomState(seed)
        self.requests = [{"tokens": engine_scenes.words(generator, vocab, 40), "max_new_tokens": NEW_TOKENS} for _ in range(sequences)]

    def answers(self, checkpoint, drafts=None):
        """(answers, seconds) of one turn."""
        requests = self.requests
        if drafts is not None:
            requests = [{**request, "draft": draft} for request, draft in zip(requests, drafts, strict=True)]
        (run,) = cases.run_probe(self.bin_dir, self.folder, [{"folder": str(checkpoint), "requests": requests}], **self.options)["runs"]
        assert "error" not in run, run
        return run["answers"], run["seconds"][0]


def measure(scene, drift, repeat):
    """A row of the table; None where tokens differ."""
    first = scene.folder / "checkpoint"
    later = small_models.drift(first, scene.folder / f"drift-{drift}", drift, seed=1)
    tokens = lambda answers: [answer["tokens"] for answer in answers]  # noqa: E731
    drafts = tokens(scene.answers(first)[0])
    scene.answers(later)  # nothing is cold any more
    without, with_drafts = [], []
    for _ in range(repeat):
        plain, seconds = scene.answers(later)
        without.append(seconds)
        drafted, seconds = scene.answers(later, drafts)
        with_drafts.append(seconds)
        if tokens(plain) != tokens(drafted):
            return None
    tried, taken = (sum(answer.get("drafted", (0, 0))[i] for answer in drafted) for i in (0, 1))
    slow, fast = statistics.median(without), statistics.median(with_drafts)
    return f"| {len(drafts)} | {drift} | {taken} of {tried} | {slow:.3f} | {fast:.3f} | {slow / fast:.2f} |"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", type=pathlib.Path, default=SOURCE / "build" / "release" / "bin")
    parser.add_argument("--size", default="0.05B", choices=engine_scenes.TEXT_SIZES)
    parser.add_argument("--sequences", default="1,2,4,8")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args(arguments)
    equal = True
    print("| answered together | drift | draft tokens right | seconds without | with | times as fast |\n|---|---|---|---|---|---|")
    for sequences in map(int, args.sequences.split(",")):
        with tempfile.TemporaryDirectory(prefix="draft-bench-") as made:
            scene = Scene(pathlib.Path(made), args.bin_dir, args.threads, args.size, sequences, seed=7)
            for drift in DRIFTS:
                row = measure(scene, drift, args.repeat)
                equal &= row is not None
                print(row or f"- {sequences} together, drift {drift}: NOT EQUAL, drafts change tokens", flush=True)
    print(f"{scene.millions:.3g} M parameters, {NEW_TOKENS} new tokens each, {args.threads} threads, medians of {args.repeat}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
