"""What is to be done before the first question of a checkpoint is asked: files read, prompts rendered and tokenized, pictures
hashed. The first checkpoint of a run, the second, and the first one of a process that is started later; beside them
transformers' way to the same prompts, which it goes for every checkpoint.

    build/venv/bin/python tests/bench/preparation_bench.py [--bin-dir build/dev/bin] [--questions 1000] [--pixels 700] [--record]

The pages are noise, so that a page's file is about as large as a scan's. Prints seconds from `evaluate` to `prepared`, and the
processor's seconds of the whole process meanwhile. Never a timed test.
"""

import argparse
import contextlib
import io
import os
import pathlib
import platform
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
TESTS = HERE.parents[1]
sys.path[:0] = [str(TESTS / "e2e"), str(TESTS), str(TESTS / "fixtures"), str(TESTS / "bench")]

TASK = "docvqa_val"


def write_pages(root, questions, pixels, seed=11):
    """docvqa_val with four questions on a page of `pixels` x `pixels` of noise."""
    import data_sets
    import numpy
    from datasets import Features, Sequence, Value
    from datasets import Image as ImageFeature
    from PIL import Image

    rows = data_sets.docvqa_rows(questions, seed, (64, 64), questions_per_image=4)
    draw = numpy.random.default_rng(seed)
    pages = {}
    for row in rows:
        page = row["docId"]
        if page not in pages:
            noise = draw.integers(0, 256, (pixels, pixels, 3), dtype=numpy.uint8)
            pages[page] = {"bytes": data_sets.encode(Image.fromarray(noise), "jpeg"), "path": f"{page}.jpg"}
        row["image"] = pages[page]
    texts = {name: Value("string") for name in ("questionId", "question")}
    features = Features({**texts, "question_types": Sequence(Value("string")), "image": ImageFeature(), "docId": Value("int64"),
                         "ucsf_document_id": Value("string"), "ucsf_document_page_no": Value("string"),
                         "answers": Sequence(Value("string")), "data_split": Value("string")})  # fmt: skip
    data_sets._write_splits(pathlib.Path(root) / "lmms-lab" / "DocVQA", rows, features, "DocVQA", "DocVQA", "validation", 1)
    return root


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def prepared(evaluator, checkpoint, data, job):
    """(seconds, processor seconds, fingerprint) of one checkpoint, whose answers nobody waits for."""
    evaluator.load(checkpoint, job=job)
    spent, start = processor_seconds(evaluator.process.pid), time.perf_counter()
    evaluator.evaluate(data, [TASK], job=job)
    told = evaluator.wait_for("prepared")
    seconds, spent = time.perf_counter() - start, processor_seconds(evaluator.process.pid) - spent
    evaluator.say("cancel", id=job)
    with contextlib.suppress(AssertionError):
        evaluator.wait_for("error")
    return seconds, spent, told["tasks"][0]["sha256"]


def ours(bin_dir, checkpoints, data, cache):
    """Of each checkpoint in one process: prepared()."""
    from evaluator import Evaluator

    options = ["--preparation-cache", str(cache), "--preparation-cache-bytes", str(1 << 30)] if cache else []
    with Evaluator(bin_dir, *options) as evaluator:
        found = [prepared(evaluator, checkpoint, data, str(i)) for i, checkpoint in enumerate(checkpoints)]
        evaluator.say("bye")
    return found


def transformers_prompts(checkpoint, data, count):
    """(seconds, processor seconds) for the token ids of the first `count` questions: rows read, pictures opened and sized, chat
    template, tokenizer. The pixels, which ours makes later and keeps apart, are not made."""
    from PIL import Image
    from pyarrow import parquet
    from qwen_vl_utils.vision_process import smart_resize
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(checkpoint)
    start, spent = time.perf_counter(), time.process_time()
    asked = 0
    for file in sorted((pathlib.Path(data) / "lmms-lab" / "DocVQA").rglob("*.parquet")):
        for row in parquet.read_table(file).slice(0, count - asked).to_pylist():
            image = Image.open(io.BytesIO(row["image"]["bytes"]))
            height, width = smart_resize(image.height, image.width, 28, 3136, 1605632)
            text = row["question"] + "\nAnswer the question using a single word or phrase."
            turn = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}]
            rendered = processor.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
            tokens = processor.image_token * (height // 28 * (width // 28))
            processor.tokenizer(rendered.replace(processor.image_token, tokens))["input_ids"]
            asked += 1
    return time.perf_counter() - start, time.process_time() - spent


def main(arguments=None):
    source = HERE.parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", type=pathlib.Path, default=source / "build" / "dev" / "bin")
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--pixels", type=int, default=700)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="also into RESULTS.md")
    options = parser.parse_args(arguments)

    import small_models

    lines = []

    def say(line):
        print(line)
        lines.append(line)

    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for step in (1, 2):
            small_models.write_model(root / f"checkpoint-{step}", small_models.SmallModel(seed=step, layers=2, merges=None))
        data = write_pages(root / "data", options.questions, options.pixels)
        size = sum(path.stat().st_size for path in data.rglob("*.parquet"))
        time.sleep(2.5)  # a file that was written just now could change unseen
        both = [root / "checkpoint-1", root / "checkpoint-2"]
        rounds = {"first checkpoint, nothing kept": [], "second checkpoint, nothing kept": [], "first checkpoint": [],
                  "second checkpoint": [], "first checkpoint of a later process": []}  # fmt: skip
        fingerprints = set()
        for number in range(options.repeats):
            cache = root / f"prepared-{number}"
            made = [*ours(options.bin_dir, both, data, None), *ours(options.bin_dir, both, data, cache), *ours(options.bin_dir, both[1:], data, cache)]
            fingerprints |= {found[2] for found in made}
            for way, found in zip(rounds, made):
                rounds[way].append(found)
            kept = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
        assert len(fingerprints) == 1, "the same questions, and so the same fingerprint"
        few = min(options.questions, 400)
        theirs = [transformers_prompts(both[0], data, few) for _ in range(options.repeats)]

        say("`python tests/bench/preparation_bench.py " + " ".join(sys.argv[1:]) + "`")
        say(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}; medians of {options.repeats} rounds, the ways in turn")
        say("")
        say(f"## {options.questions} questions on {(options.questions + 3) // 4} pages, {size / 1e6:.0f} MB of Parquet in the page cache; {kept / 1e6:.1f} MB are kept")
        say("")
        say("| way | seconds (least to most) | processor seconds | ms a question |")
        say("|---|---|---|---|")

        def row(way, found, count):
            seconds = [one[0] for one in found]
            middle = statistics.median(seconds)
            say(f"| {way} | {middle:.3f} ({min(seconds):.3f} to {max(seconds):.3f}) | {statistics.median(one[1] for one in found):.2f} | {1e3 * middle / count:.3f} |")
            return min(seconds)

        least = {way: row(f"evalcar, {way}", found, options.questions) for way, found in rounds.items()}
        reference = row(f"transformers, any checkpoint ({few} questions)", theirs, few) / few * options.questions
        say("")
        second = least["second checkpoint"]
        say(f"- by the least seconds of each, the second checkpoint is prepared {least['second checkpoint, nothing kept'] / second:.0f} times as fast as "
            f"without what is kept, {reference / second:.0f} times as fast as transformers makes the prompts")  # fmt: skip
    if options.record:
        import results_file

        results_file.put(HERE.parent / "RESULTS.md", "# Results of preparation_bench.py", ["", *lines])


if __name__ == "__main__":
    main()
