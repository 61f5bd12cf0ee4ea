"""The engine beside what people would use instead: the same work, prompts, weights and threads, on the CPU in float32, in one run.

    build/venv/bin/python tests/bench/engine_bench.py [--work G1,L2] [--repeat 5] [--record tests/bench/RESULTS.md]

    G1  greedy text, one request at a time, two sizes, weights     transformers.generate; llama.cpp
        stored in bfloat16 or in float32
    G2  64 requests of mixed lengths in one go (--requests);       transformers.generate, best batch size, longest first
        weights as in G1
    G3  unique pages of about 2,000 picture tokens, short answers; transformers.generate, best batch size
        weights as in G1
    G4  4.2 questions on each picture, as docvqa has them;         transformers.generate, best batch size
        weights as in G1
    L1  4 choices x 1 token behind five examples                   transformers in lm-eval's order, best batch size
    L2  4 choices x 20 tokens behind five examples                 the same
    C1  "shards complete" to the first score, to the full score:   lmms-eval 0.7.3, started on the merged folder
        the agent with an evaluator that has measured another
        checkpoint
    C2  five checkpoints in a row, weights drifting, one agent     five processes with transformers, best batch size

Outputs are compared before a time is told: tokens equal, log-likelihoods within float32's rounding with the same best choice. Then both
sides take turns; medians, with the least and the most. What is in the timed part is printed with each work: here neither loading nor
tokenizing, on either side (both get token ids); pictures are RGB pixels, and both sides make patches of them. Both sides have done the
whole work once before their first timed turn. In C1 and C2 everything is: starting, reading the data, tokenizing, loading, scoring (C2's
peer does not score). The peer's batch size is the fastest of a sweep over the whole work. Cells that we lose
are printed like the others; an aim is "reach on the CPU" of the project's plan.

llama.cpp is the wheel xllamacpp (AVX2 code; llama-cpp-python is on PyPI as sources alone), with weights and cache in float32: its bfloat16
rounds what is multiplied, too, which is other work. vLLM is no peer: its wheel for the CPU asks for torch 2.13.0+cpu, which is not on PyPI.
"""

import argparse
import contextlib
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
SOURCE = HERE.parents[2]
sys.path[:0] = [str(HERE.parent), str(SOURCE / "tests" / "fixtures")]
os.environ.setdefault("DS_ACCELERATOR", "cpu")  # accelerate imports DeepSpeed, which prints that it finds no GPU

import engine_checkpoints  # noqa: E402
import engine_scenes  # noqa: E402
import engine_sides  # noqa: E402
import results_file  # noqa: E402

TITLE = "# Results of engine_bench.py"
TOKENS = "from token ids to answers, weights resident"
PIXELS = "from RGB pixels and token ids to answers, weights resident"


@dataclasses.dataclass
class Cell:
    """One measured comparison. Times in seconds, a value for each turn."""

    id: str
    work: str  # what is done, in words
    timed: str  # what is inside of the times
    peer: str
    aim: float | None  # times as fast; None: for comparison alone
    ours: list = dataclasses.field(default_factory=list)
    theirs: list = dataclasses.field(default_factory=list)
    equal: int = 0
    of: int = 0
    notes: list = dataclasses.field(default_factory=list)

    @property
    def ratio(self):
        return statistics.median(self.theirs) / statistics.median(self.ours)

    def row(self):
        times = [f"{statistics.median(side):.3f} ({min(side):.3f} to {max(side):.3f})" for side in (self.ours, self.theirs)]
        return f"| {self.id} | {self.equal} of {self.of} | {times[0]} | {times[1]} | {self.peer} | {self.ratio:.2f} |"

    def verdict(self):
        if self.equal != self.of:
            return f"- {self.id}: NOT EQUAL, {self.of - self.equal} of {self.of} answers differ: these times mean nothing"
        if self.aim is None:
            return f"- {self.id}: {self.ratio:.2f} times as fast as {self.peer} (no aim)"
        return f"- {self.id} {'holds' if self.ratio >= self.aim else 'FALLS SHORT'}: {self.ratio:.2f} times as fast as {self.peer} (aim: {self.aim:g})"


def sweep(peer, batches, notes, **how):
    """(the fastest batch size over the whole work, its answers)"""
    peer.run(1, count=2, **how)  # nothing is cold any more
    seconds, answers = {}, {}
    for batch in batches:
        answers[batch], seconds[batch] = peer.run(batch, **how)
    if len(batches) > 1:
        notes.append("batch sizes tried: " + ", ".join(f"{batch}: {each:.2f} s" for batch, each in seconds.items()))
    best = min(seconds, key=seconds.get)
    return best, answers[best]


def seconds_of_reading(folder, threads):
    """What it takes to read a model's stored weights once a token, for all tokens that are asked for: the least of 20 sums over as
    many bytes. No decoding of one request is faster, unless it skips tokens."""
    import torch

    size = sum(file.stat().st_size for file in (folder / "checkpoint").glob("*.safetensors"))
    tokens = sum(request["max_new_tokens"] for request in json.loads((folder / "scene.json").read_text())["requests"])
    torch.set_num_threads(threads)
    numbers, seconds = torch.ones(size // 4), []
    for _ in range(20):
        begin = time.perf_counter()
        numbers.sum()
        seconds.append(time.perf_counter() - begin)
    return tokens * min(seconds)


def compare(args, name, aim, write, *parameters, timed=TOKENS, once=False, llama_cpp_aim=None, reads_weights=False):
    """The cells of one scene: the engine against transformers, with `once` also against one row a context, and with an aim for it
    against llama.cpp. `reads_weights`: what reading the weights takes is told, too."""
    with tempfile.TemporaryDirectory(prefix="engine-bench-") as made, contextlib.ExitStack() as peers:
        folder = pathlib.Path(made)
        work = write(folder, *parameters)
        batches = json.loads((folder / "scene.json").read_text())["batches"]
        sides = []  # (cell, its peer, how that is asked, its answers)

        def add(peer, other, cell_name, cell_aim, words, **how):
            cell = Cell(cell_name, work, timed, "", cell_aim)
            best, answers = sweep(peer, other, cell.notes, **how)
            cell.peer = words.format(best)
            sides.append((cell, peer, {"batch": best, **how}, answers))

        transformers = peers.enter_context(engine_sides.Peer(folder, args.threads))
        add(transformers, batches, name, aim, "transformers, batch {}")
        if once:
            add(transformers, batches, f"{name}, one row a context", None, "transformers, batch {}, lm-eval's logits_cache", once=True)
        if llama_cpp_aim:
            llama_cpp = peers.enter_context(engine_sides.Peer(folder, args.threads, HERE.parent / "engine_llama_cpp.py"))
            add(llama_cpp, [1], f"{name}, llama.cpp", llama_cpp_aim, "llama.cpp (xllamacpp), float32")
        got, _ = engine_sides.run_engine(folder, args.bin_dir, args.threads)
        for cell, _, _, answers in sides:
            cell.of, cell.equal = len(got), sum(engine_sides.same(a, b) for a, b in zip(got, answers, strict=True))
            cell.notes += [f"answer {i}: {a}, {cell.peer}: {b}" for i, (a, b) in enumerate(zip(got, answers, strict=True))
                           if not engine_sides.same(a, b)][:3]  # fmt: skip
        for _ in range(args.repeat):  # in turns, so that a busy machine is busy for all
            seconds = engine_sides.run_engine(folder, args.bin_dir, args.threads)[1]
            for cell, peer, how, _ in sides:
                cell.ours.append(seconds)
                cell.theirs.append(peer.run(**how)[1])
        if reads_weights:
            cell, reading = sides[0][0], seconds_of_reading(folder, args.threads)
            cell.notes.append(f"reading the weights once a token takes {reading:.3f} s: {100 * reading / statistics.median(cell.ours):.0f} % of "
                              f"evalcar's time, and so no one is more than {statistics.median(cell.theirs) / reading:.2f} times as fast as transformers")  # fmt: skip
    return [cell for cell, *_ in sides]


# What weights are stored in; float32 is computed with. Most checkpoints of large models hold bfloat16; a trainer's own shards float32.
STORED = ("bfloat16", "float32")


def g1(args):
    if args.small:
        works = [("G1 tiny", 3, "tiny", 2, 8)]
    else:
        works = [("G1 0.05 B", 3, "0.05B", 3, 64), ("G1 0.2 B", 1.5, "0.2B", 2, 32)]
    return [cell for name, aim, size, prompts, steps in works for stored in STORED
            for cell in compare(args, f"{name}, {stored}", aim, engine_scenes.one_at_a_time, size, prompts, steps, args.seed, stored,
                                llama_cpp_aim=1.1, reads_weights=True)]  # fmt: skip


def g2(args):
    size, count, steps, batches = ("tiny", 6, 12, [2, 6]) if args.small else ("0.05B", args.requests, 48, [8, 16, 32, 64])
    return [cell for stored in STORED
            for cell in compare(args, f"G2, {stored}", 2.5, engine_scenes.many, size, count, steps, args.seed, batches, stored)]  # fmt: skip


def g3(args):
    size, pictures, grid, steps = ("tiny", 2, (6, 8), 4) if args.small else ("18M", 4, (44, 46), 8)
    return [cell for stored in STORED
            for cell in compare(args, f"G3, {stored}", 2, engine_scenes.pages, size, [1] * pictures, grid, steps, args.seed, [1, 2, 4],
                                stored, timed=PIXELS)]  # fmt: skip


def g4(args):
    size, questions, grid, batches = ("tiny", [2, 3], (6, 8), [1, 3]) if args.small else ("18M", [4, 4, 4, 4, 5], (22, 24), [1, 2, 4, 8])
    return [cell for stored in STORED
            for cell in compare(args, f"G4, {stored}", 8, engine_scenes.pages, size, questions, grid, 8, args.seed, batches, stored,
                                timed=PIXELS)]  # fmt: skip


def l1(args):
    size, questions, batches = ("tiny", 3, [1, 4]) if args.small else ("0.02B", 12, [1, 4, 16])
    return compare(args, "L1", 8, engine_scenes.choices, size, questions, 1, args.seed, batches, once=True)


def l2(args):
    size, questions, batches = ("tiny", 3, [1, 4]) if args.small else ("0.02B", 12, [1, 4, 16])
    return compare(args, "L2", 4, engine_scenes.choices, size, questions, 20, args.seed, batches)


def training(args, folder, steps, pages):
    size, pixels = ("tiny", 112) if args.small else ("18M", 448)
    return engine_checkpoints.Training(folder, args.bin_dir, size, steps, pages, pixels, args.seed)


def compare_texts(cell, pairs):
    """`pairs` of lists of texts, ours first."""
    for ours, theirs in pairs:
        cell.of += len(theirs)
        cell.equal += sum(a == b for a, b in zip(ours, theirs, strict=True))
        cell.notes += [f"answer {i}: {a!r}, the peer: {b!r}" for i, (a, b) in enumerate(zip(ours, theirs)) if a != b][:3]


def c1(args):
    """The agent has measured checkpoint 1, its evaluator is warm; each turn is the next checkpoint."""
    with tempfile.TemporaryDirectory(prefix="engine-bench-") as made:
        folder, steps = pathlib.Path(made), range(1, args.repeat + 2)
        course = training(args, folder, steps, 18)  # a score of a part needs 20 questions in 30 %
        timed = "from the last file of a checkpoint's shards to a score in metrics.jsonl; the peer's process from start to end"
        seconds = {batch: engine_checkpoints.lmms_eval(course, 1, batch, folder / "theirs") for batch in ([8] if args.small else [1, 8])}
        best = min(seconds, key=lambda batch: seconds[batch][1])
        cells = [Cell(f"C1 {what} score", course.describe(), timed, f"lmms-eval 0.7.3, batch {best}", 10) for what in ("first", "full")]
        cells[0].notes.append("batch sizes tried: " + ", ".join(f"{batch}: {each[1]:.2f} s" for batch, each in seconds.items()))
        agent = course.agent(folder / "home")
        course.save(1, agent.run)
        agent.start()
        try:
            agent.wait_for(lambda a: (1, "regular") in a.published(), what="the result of checkpoint 1")
            for step in steps[1:]:
                found = engine_checkpoints.until_scored(agent, step, course.save(step, agent.run))
                expected, lasted = engine_checkpoints.lmms_eval(course, step, best, folder / "theirs")
                agent.wait_for(lambda a, step=step: (step, "regular") in a.published(), what=f"the result of checkpoint {step}")
                for cell, each in zip(cells, found, strict=True):
                    compare_texts(cell, [(engine_checkpoints.answers_of(agent.run, step), expected)])
                    cell.ours.append(each)
                    cell.theirs.append(lasted)
        finally:
            agent.stop()
    return cells


def c2(args):
    """All checkpoints are there when ours begins."""
    with tempfile.TemporaryDirectory(prefix="engine-bench-") as made:
        folder, steps = pathlib.Path(made), range(1, 3 if args.small else 6)
        course = training(args, folder, steps, 4 if args.small else 10)
        timed = f"for {len(steps)} checkpoints in a row: `evalcar run --once` from start to end; the peer's {len(steps)} processes from start to end"
        seconds = {batch: engine_checkpoints.transformers(course, 1, batch)[1] for batch in ([8] if args.small else [1, 4, 8, 20])}
        best = min(seconds, key=seconds.get)
        cell = Cell("C2", course.describe(), timed, f"transformers, batch {best}", 10)
        cell.notes.append("batch sizes tried: " + ", ".join(f"{batch}: {each:.2f} s" for batch, each in seconds.items()))
        for turn in range(args.repeat):
            answers, lasted = engine_checkpoints.all_at_once(course, folder / f"home-{turn}")
            theirs = {step: engine_checkpoints.transformers(course, step, best) for step in steps}
            compare_texts(cell, [(answers[step], theirs[step][0]) for step in steps])
            cell.ours.append(lasted)
            cell.theirs.append(sum(each for _, each in theirs.values()))
    return [cell]


WORKS = {"G1": g1, "G2": g2, "G3": g3, "G4": g4, "L1": l1, "L2": l2, "C1": c1, "C2": c2}


def machine():
    """What the figures hold for, in a line."""
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers", "lmms_eval", "xllamacpp"))
    return f"{os.cpu_count()} cores of {cpu}, {memory:.0f} GiB, Linux {platform.release()}; Python {platform.python_version()}, {packages}"


def section(cells):
    """A work's table, what was done, and how it stands to the aims."""
    first = cells[0]
    lines = ["", f"## {first.id.split()[0].strip(',')}: seconds {first.timed}", ""]
    lines += [f"{cell.id}: {cell.work}" for cell in cells if cell.aim is not None]
    lines += ["", "| cell | equal answers | evalcar (least to most) | peer (least to most) | peer | times as fast |", "|---|---|---|---|---|---|"]
    lines += [cell.row() for cell in cells]
    lines += ["", *(cell.verdict() for cell in cells), *(f"- {cell.id}: {note}" for cell in cells for note in cell.notes)]
    return lines


def commit():
    done = subprocess.run(["git", "-C", str(SOURCE), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def build_type(bin_dir):
    cache = bin_dir.parent / "CMakeCache.txt"
    lines = cache.read_text().splitlines() if cache.exists() else []
    return next((f"built as {line.split('=')[1]}" for line in lines if line.startswith("CMAKE_BUILD_TYPE:")), str(bin_dir))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default=",".join(WORKS), help="which, separated by commas")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--requests", type=int, default=64, help="of G2: 64 to 256")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="tiny models: only whether both sides say the same")
    parser.add_argument("--bin-dir", type=pathlib.Path, default=SOURCE / "build" / "dev" / "bin")
    parser.add_argument("--record", type=pathlib.Path, help="a Markdown file for what is printed; other sections stay")
    args = parser.parse_args(arguments)
    chosen = args.work.split(",")
    if unknown := [name for name in chosen if name not in WORKS]:
        parser.error(f"--work: {', '.join(unknown)} is none of {', '.join(WORKS)}")
    text, equal = [], True

    def tell(*lines):
        text.extend(lines)
        print("\n".join(lines), flush=True)

    tell(f"commit {commit()}, {build_type(args.bin_dir)}", machine(),
         f"float32, {args.threads} threads on both sides; medians of {args.repeat} rounds, the sides in turn")  # fmt: skip
    for name in chosen:
        cells = WORKS[name](args)
        tell(*section(cells))
        equal = equal and all(cell.equal == cell.of for cell in cells)
    if args.record:
        command = " ".join(["python tests/bench/engine_bench.py", *(arguments or sys.argv[1:])])
        results_file.put(args.record, TITLE, ["", f"`{command}`", "", *text])
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
