"""C1 and C2 on a GPU, in bfloat16: the whole service, from a checkpoint's last file to its scores.

    python3 tests/bench/service_gpu_bench.py prepare FOLDER                              where this repository's Python packages are
    python3 tests/bench/service_gpu_bench.py measure FOLDER --bin-dir BIN [--work C1,C2] [--repeat 3] [--folder /dev/shm] [--record FILE]

    C1  a checkpoint of 8.3 B parameters in the page cache: to its first and its full score, with the evaluator not
        yet started, resident, and with the next one read ahead      reach: 3 s before the first token; 50 ms when read ahead
    C2  five checkpoints in a row, weights drifting, one agent beside five processes with transformers, best batch size   10 times

Random weights in Hugging Face's shards, whose trainer_state.json comes last: from then on the clock of C1 runs. In C1 `loaded` is what the
agent logs of the evaluator: reading, hashing, checking and copying to the device. In C2 everything counts: starting, reading the data,
tokenizing, loading, scoring. First both sides of C2 answer one checkpoint in float32, and these answers have to be equal; in bfloat16 the
best token of a random model is ahead by less than rounding, so there only the share of equal answers is told.
`prepare` leaves the data and the tokenizer; `measure` needs no more than torch, torchvision, transformers, accelerate, pyarrow and
qwen_vl_utils.
"""

import argparse
import gc
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
TESTS = HERE.parents[1]
sys.path[:0] = [str(HERE.parent), str(TESTS / "e2e"), str(TESTS), str(TESTS / "fixtures")]

import engine_checkpoints  # noqa: E402
import results_file  # noqa: E402
import small_models  # noqa: E402

TITLE = "# Results of service_gpu_bench.py"
TASK = engine_checkpoints.TASK
TOWER = dict(vision_depth=32, vision_hidden=1280, vision_intermediate=3420, vision_heads=16, window=112, full_attention=(7, 15, 23, 31))
LARGE = dict(hidden=3584, intermediate=18944, layers=28, heads=28, kv_heads=4, mrope_section=(16, 24, 24), tied=False, gain=1.2, **TOWER)
MIDDLE = dict(hidden=2048, intermediate=11008, layers=12, heads=16, kv_heads=2, mrope_section=(16, 24, 24), gain=1.2, **TOWER)
SMALL = dict(hidden=64, intermediate=112, layers=2, heads=4, kv_heads=2, mrope_section=(2, 3, 3), vision_depth=2, gain=1.2)
PAGES = {"C1": 140, "C2": 8}  # an evaluation in C1 lasts as long as the next checkpoint takes to be read beside it
VOCABULARY = 152064  # rows of Qwen2.5-VL 7B's table
PAGE = 1120  # pixels each way, a multiple of 28: 1,600 tokens, and no side resizes it


def device():
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"  # the CPU: whether the program itself is right


def prepare(folder, small):
    import data_sets
    import qwen_tokenizer

    pixels = 112 if small else PAGE
    (folder / "model").mkdir(parents=True)
    ids = qwen_tokenizer.write_tokenizer(folder / "model", 400 if small else 4000)
    small_models.write_processor(folder / "model", "5")
    (folder / "ids.json").write_text(json.dumps(ids))
    for work, pages in PAGES.items():
        data_sets.write_docvqa(folder / work, 4 * (8 if small else pages), 3, (pixels, pixels), questions_per_image=4)


# ---- checkpoints ----


class Model:
    """A random model on the device, which drifts; `store` writes it as it is."""

    def __init__(self, prepared, spec, vocabulary):
        import torch
        import transformers

        ids = json.loads((prepared / "ids.json").read_text())
        changes = {"extra_vocabulary": max(8, vocabulary - max(ids.values()) - 1)}
        self.prepared, self.generator = prepared, torch.Generator(device=device()).manual_seed(5)
        config = small_models._config(small_models.SmallModel(**spec, **changes), ids)
        with torch.device(device()):
            self.model = transformers.Qwen2_5_VLForConditionalGeneration(config).eval()
        small_models.cast(self.model, torch.bfloat16)
        small_models.draw_weights(self.model, 3, spec["gain"])
        self.model.generation_config.eos_token_id = [ids["<|im_end|>"], ids["<|endoftext|>"]]
        self.model.generation_config.pad_token_id = ids["<|endoftext|>"]
        self.millions = sum(p.numel() for p in self.model.parameters()) / 1e6

    def drift(self, amount=0.02):
        import torch

        with torch.no_grad():
            for parameter in self.model.parameters():
                noise = torch.randn(parameter.shape, generator=self.generator, device=parameter.device, dtype=parameter.dtype)
                parameter.add_(noise, alpha=amount * parameter.float().std(correction=0).item())

    def store(self, folder, shard_size):
        self.model.save_pretrained(folder, max_shard_size=shard_size)
        for path in (self.prepared / "model").iterdir():
            shutil.copyfile(path, folder / path.name)
        return folder


def save(stored, run, step):
    """Puts a checkpoint into the output directory by hard links, trainer_state.json last, as transformers' Trainer does; gives the time at
    which it was whole."""
    target = run / f"checkpoint-{step}"
    target.mkdir()
    for name in sorted(os.listdir(stored)):
        os.link(stored / name, target / name)
    state = {"global_step": step, "epoch": 0.1 * step, "max_steps": 1000, "save_steps": 1, "log_history": []}
    (target / "trainer_state.json").write_text(json.dumps(state))
    return time.perf_counter()


def agent(args, home, data, dtype, *arguments):
    import sidecar

    (home / "out").mkdir(parents=True)
    settings = ["--data", str(data), "--device", "cuda:0" if device() == "cuda" else "cpu", "--dtype", dtype,
                "--set", "evaluate.policy=every", "--set", "evaluate.share_gpu=true",  # this process has drawn the weights on it
                 "--set", f"evaluate.gen_kwargs=max_new_tokens={engine_checkpoints.NEW_TOKENS}"]  # fmt: skip
    return sidecar.Sidecar(args.bin_dir, home, home / "out", tasks=TASK, arguments=[*settings, *arguments])


def loaded(log, step):
    """(seconds of loading, whether it was read ahead), as the agent logged it."""
    for line in log.splitlines():
        if "event=loaded" in line and re.search(rf"\bstep={step}\b", line):
            return float(re.search(r"\bseconds=([0-9.]+)", line)[1]), "(read ahead)" in line
    raise AssertionError(f"checkpoint {step} was never loaded:\n{log[-3000:]}")


# ---- C1 ----


def mixed(stock, folder, number, other):
    """A checkpoint of weights of its own that costs no memory: each shard is out of one of two stored ones, by the bits of `number`, or out
    of the `other` one. Two of the same number share no file (one that is linked or unlinked meanwhile is read again), nor their tower."""
    names = sorted(os.listdir(stock[0]))
    shards = [name for name in names if name.endswith(".safetensors")]
    assert number < 2 ** (len(shards) - 1) and names == sorted(os.listdir(stock[1])), names
    folder.mkdir()
    for name in names:
        bit = number >> shards.index(name) & 1 if name in shards else 0
        os.link(stock[bit ^ other] / name, folder / name)
    return folder


def c1(args, prepared, folder):
    spec, vocabulary, shard = (SMALL, 0, "60KB") if args.small else (LARGE, VOCABULARY, "3GB")
    model = Model(prepared, spec, vocabulary)
    stored = [model.store(folder / "stored-0", shard)]
    model.drift()
    stored.append(model.store(folder / "stored-1", shard))
    millions = model.millions
    del model
    release()
    size = sum(path.stat().st_size for path in stored[0].glob("*.safetensors"))
    last = args.repeat + 3
    stock = {}
    for step in range(1, last + 1):  # the last two are of the same number
        number, other = divmod(step + 1 + last % 2, 2)
        stock[step] = mixed(stored, folder / f"mixed-{step}", number, other)
    lines = [f"{millions:.4g} M parameters, {size / 1e9:.3g} GB, questions of docvqa_val: "
             f"{questions(prepared / 'C1')} on {questions(prepared / 'C1') // 4} pages, up to {engine_checkpoints.NEW_TOKENS} new tokens", ""]  # fmt: skip
    rows = []
    pictures_anew = ["--set", "limits.encoded_pictures=0B"]  # each tower counts as one that is trained
    one = agent(args, folder / "home", prepared / "C1", "bfloat16", *pictures_anew)
    begun = time.perf_counter()
    one.start()
    try:
        save(stock[1], one.run, 1)
        rows.append(("not yet started", 1, *engine_checkpoints.until_scored(one, 1, begun)))
        for step in range(2, last - 1):
            wait_for_result(one, step - 1)
            rows.append(("resident", step, *engine_checkpoints.until_scored(one, step, save(stock[step], one.run, step))))
        wait_for_result(one, last - 2)
        begun = save(stock[last - 1], one.run, last - 1)
        save(stock[last], one.run, last)
        rows.append(("resident, another is waiting", last - 1, *engine_checkpoints.until_scored(one, last - 1, begun)))
        begun = time.perf_counter()
        rows.append(("resident, from the score of the one before", last, *engine_checkpoints.until_scored(one, last, begun)))
        wait_for_result(one, last)
    finally:
        one.stop()
    log = one.log()
    lines += ["| evaluator | to the first score, s | to the full score, s | of that loading, s |", "|---|---|---|---|"]
    for name, step, first, full in rows:
        seconds, ahead = loaded(log, step)
        lines.append(f"| {name} | {first:.3f} | {full:.3f} | {seconds:.3f}{' (was read ahead)' if ahead else ''} |")
    assert "same vision tower" not in log, log[-3000:]
    fresh = agent(args, folder / "fresh", prepared / "C1", "bfloat16", *pictures_anew)
    save(stock[last], fresh.run, last)
    assert fresh.once() == 0, fresh.log()[-3000:]
    answers = engine_checkpoints.answers_of(one.run, last)
    equal = equal_answers(answers, engine_checkpoints.answers_of(fresh.run, last))
    lines += ["", f"- {equal} of {len(answers)} answers of the last checkpoint are those of an agent that has seen no other"
                  + ("" if equal == len(answers) else ": NOT EQUAL")]  # fmt: skip
    if args.log:
        lines += ["", "~~~", *log.splitlines(), "~~~"]
    return lines, equal == len(answers)


def wait_for_result(one, step):
    one.wait_for(lambda a: (step, "regular") in a.published(), what=f"the result of checkpoint {step}")


def questions(data):
    from pyarrow import parquet

    return sum(parquet.ParquetFile(file).metadata.num_rows for file in data.rglob("*.parquet"))


def release():
    gc.collect()
    if device() == "cuda":
        import torch

        torch.cuda.empty_cache()


# ---- C2 ----


class Stored:
    """What engine_checkpoints.transformers() asks of a training."""

    def __init__(self, folders, data):
        self.folders, self.data = folders, data

    def merged_folder(self, step):
        return self.folders[step - 1]


def equal_answers(ours, theirs):
    return sum(a == b for a, b in zip(ours, theirs, strict=True))


def all_at_once(args, stored, home, dtype, steps):
    one = agent(args, home, stored.data, dtype)
    for step in steps:
        save(stored.merged_folder(step), one.run, step)
    start = time.perf_counter()
    assert one.once() == 0, one.log()[-3000:]
    seconds = time.perf_counter() - start
    answers = {step: engine_checkpoints.answers_of(one.run, step) for step in steps}
    shutil.rmtree(home)
    return answers, seconds


def c2(args, prepared, folder):
    spec, vocabulary, shard = (SMALL, 0, "200KB") if args.small else (MIDDLE, VOCABULARY, "2GB")
    model, folders = Model(prepared, spec, vocabulary), []
    for step in range(1, 3 if args.small else 6):
        model.drift()
        folders.append(model.store(folder / f"merged-{step}", shard))
    millions = model.millions
    del model
    release()
    stored, steps = Stored(folders, prepared / "C2"), range(1, len(folders) + 1)
    words = (f"{millions:.4g} M parameters, {len(steps)} checkpoints, {questions(stored.data)} questions on {questions(stored.data) // 4} pages, "
             f"up to {engine_checkpoints.NEW_TOKENS} new tokens")  # fmt: skip
    exact = {"device": device(), "dtype": "float32"}
    ours, _ = all_at_once(args, stored, folder / "home-exact", "float32", [1])
    theirs, _ = engine_checkpoints.transformers(stored, 1, 4, **exact)
    count = equal_answers(ours[1], theirs)
    lines = [words, "", f"- in float32 {count} of {len(theirs)} answers are equal" + ("" if count == len(theirs) else ": NOT EQUAL, these times mean nothing")]
    for a, b in [(a, b) for a, b in zip(ours[1], theirs) if a != b][:3]:
        lines.append(f"- {a!r}, transformers: {b!r}")
    fast = {"device": device(), "dtype": "bfloat16"}
    batches = [4] if args.small else [8, 32]
    tried = {batch: engine_checkpoints.transformers(stored, 1, batch, **fast) for batch in batches}
    best = min(tried, key=lambda batch: tried[batch][1])
    lines.append("- batch sizes tried: " + ", ".join(f"{batch}: {each[1]:.2f} s" for batch, each in tried.items()))
    mine, peer = [], []
    for turn in range(args.repeat):
        answers, seconds = all_at_once(args, stored, folder / f"home-{turn}", "bfloat16", steps)
        mine.append(seconds)
        if turn == 0 or not args.one_peer_turn:
            known = {1: tried[best]} if args.one_peer_turn else {}  # the same process on the same checkpoint
            told = {step: known.get(step) or engine_checkpoints.transformers(stored, step, best, **fast) for step in steps}
            peer.append(sum(each for _, each in told.values()))
    same = sum(equal_answers(answers[step], told[step][0]) for step in steps)
    ratio = statistics.median(peer) / statistics.median(mine)
    lines += [f"- in bfloat16 {same} of {sum(map(len, answers.values()))} answers are equal", "",
              "| way | seconds (least to most) | runs |", "|---|---|---|",
              *(f"| {name} | {statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f}) | {len(each)} |"
                for name, each in (("`evalcar run --once`", mine), (f"{len(steps)} processes with transformers, batch {best}", peer))),
              "", f"- C2 {'holds' if ratio >= 10 else 'FALLS SHORT'}: {ratio:.1f} times as fast as transformers (aim: 10)"]  # fmt: skip
    return lines, count == len(theirs)


WORKS = {"C1": c1, "C2": c2}


def measure(args, arguments):
    import torch
    import transformers

    lines, equal = [], True

    def tell(*more):
        lines.extend(more)
        print("\n".join(more), flush=True)

    name = torch.cuda.get_device_name() if device() == "cuda" else "no GPU"
    tell(f"{name}, {os.cpu_count()} cores; torch {torch.__version__}, transformers {transformers.__version__}, Python {platform.python_version()}, "
         f"Linux {platform.release()}")  # fmt: skip
    for work in args.work.split(","):
        with tempfile.TemporaryDirectory(prefix="service-gpu-bench-", dir=args.folder) as made:
            try:
                told, same = WORKS[work](args, args.prepared, pathlib.Path(made))
            except (AssertionError, RuntimeError) as error:  # the other work is still worth its time
                told, same = [f"- {work} FAILED: {str(error)[-3000:]}"], False
        tell("", f"## {work}", "", *told)
        equal = equal and same
        release()
    if args.record:
        command = " ".join(["python3 tests/bench/service_gpu_bench.py", *arguments])
        results_file.put(args.record, TITLE, ["", f"`{command}`", "", *lines])
    return 0 if equal else 1


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "measure"])
    parser.add_argument("prepared", type=pathlib.Path, help="what `prepare` leaves")
    parser.add_argument("--bin-dir", type=pathlib.Path, help="where evalcar and evalcar-evaluator are")
    parser.add_argument("--work", default="C1,C2")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--one-peer-turn", action="store_true", help="C2's processes with transformers once each, where time is short")
    parser.add_argument("--folder", type=pathlib.Path, help="for the checkpoints, some 35 GB; the fastest there is")
    parser.add_argument("--log", action="store_true", help="what the agent logged in C1")
    parser.add_argument("--small", action="store_true", help="tiny models: only whether both sides say the same")
    parser.add_argument("--record", type=pathlib.Path, help="a Markdown file for what is printed; other sections stay")
    args = parser.parse_args(arguments)
    if args.what == "prepare":
        return prepare(args.prepared, args.small)
    return measure(args, arguments or sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
