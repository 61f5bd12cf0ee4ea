"""Keeps tests/RESULTS.md: what each evidence line's last run at full size gave, and at which commit.

    record.py RESULTS.md TIME DIR   renews the lines whose cases are all in the JUnit files of DIR; TIME is when their run began

A run may be of everything or of some parts. A line of which only some test files ran is left as it was, and said to be.
"""

import collections
import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess
import sys

import junit

# The evidence lines of the work and the Python tests that prove them; the first prefix that fits counts.
EVIDENCE = (
    ("tests.parity.models.test_tokens", "Tokens: generated ids and logits are transformers'"),
    ("tests.parity.models.test_llava_onevision", "Tokens: generated ids and logits are transformers'"),
    ("tests.parity.models.test_vlm_families", "Tokens: generated ids and logits are transformers'"),
    ("tests.parity.models.test_text_families", "Tokens: generated ids and logits are transformers'"),
    ("tests.parity.models.test_likelihoods", "Likelihoods: lm-eval's choices and perplexities, transformers' loss"),
    ("tests.e2e.test_likelihood_tasks", "Likelihoods: lm-eval's choices and perplexities, transformers' loss"),
    ("tests.parity.models", "Engine: batches, sharing, swaps, refused weights"),
    ("tests.e2e.test_answers_vlm", "Answers: every sample and metric is lmms-eval's"),
    ("tests.e2e.test_answers", "Answers: every sample and metric is lmms-eval's"),
    ("tests.e2e.test_text_models", "Answers of text models: transformers', in every layout of weights"),
    ("tests.parity.tasks.test_real_run", "Answers: every sample and metric is lmms-eval's"),
    ("tests.parity.text", "Text: ids are the Rust tokenizers', chat templates Jinja2's"),
    ("tests.parity.vision", "Pixels: decoded and resized as Pillow and torchvision do"),
    ("tests.parity.checkpoint.test_dcp", "Layouts: torch.distributed.checkpoint, as DCP itself reads it"),
    ("tests.parity.checkpoint.test_dcp_runs", "Layouts: torch.distributed.checkpoint, as DCP itself reads it"),
    ("tests.parity.checkpoint.test_dcp_corpus", "Layouts: torch.distributed.checkpoint, as DCP itself reads it"),
    ("tests.parity.checkpoint.test_lora", "Layouts: LoRA adapters, to the bits of PEFT"),
    ("tests.parity.checkpoint.test_deepspeed", "Layouts: DeepSpeed ZeRO, as zero_to_fp32 reads it"),
    ("tests.parity.checkpoint.test_deepspeed_trainer", "Layouts: DeepSpeed ZeRO, as zero_to_fp32 reads it"),
    ("tests.parity.checkpoint.test_loading", "Merged folders: transformers 4.57 and 5.x load them and answer alike"),
    ("tests.parity.checkpoint", "Weights: merged shards are full_tensor(), bit for bit"),
    ("tests.parity.tasks.test_own_tasks", "Own task: a task file of the user's"),
    ("tests.parity.tasks", "Scores: every metric is lmms-eval's"),
    ("tests.parity.publish", "Result files: lmms-eval's and TensorBoard's own readers"),
    ("tests.pickup", "Pick-up: scores in the trainer, its best checkpoint, its end"),
    ("tests.e2e.test_trainers", "End to end: real trainers, the agent killed in the middle"),
    ("tests.e2e.test_averages", "Averages: the mean of the last checkpoints, whatever retention takes"),
    ("tests.e2e.test_bad_input", "Bad input: the sentence, the exit code, nothing partial"),
    ("tests.e2e.test_install", "Installed programs without the build"),
    ("tests.faults.test_api_beside_faults", "API: lmms-eval's clients and lmms-engine's trainer, and part D of the faults"),
    ("tests.faults.test_http", "API: lmms-eval's clients and lmms-engine's trainer, and part D of the faults"),
    ("tests.faults.test_lifecycle", "Faults: signals, readiness, reload, limits, leaks, logs, upgrades"),
    ("tests.faults.test_state", "Faults: crashes, power cuts, disks, the database"),
    ("tests.faults.test_watching", "Faults: watching, leases, retention, file systems"),
    ("tests.faults.test_worker", "Faults: evaluators that crash, hang, lie or lack their device"),
    ("tests.parity.webhook", "Webhook: every result, in order, signed, over restarts"),
    ("tests.e2e.test_posted_results", "Webhook: every result, in order, signed, over restarts"),
    ("tests.e2e.test_http_clients", "API: lmms-eval's clients and lmms-engine's trainer, and part D of the faults"),
    ("tests.e2e.test_http_absent", "API: lmms-eval's clients and lmms-engine's trainer, and part D of the faults"),
    ("tests.e2e.test_http_jobs", "API: lmms-eval's clients and lmms-engine's trainer, and part D of the faults"),
    ("tests.e2e.test_http_merge", "API: lmms-eval's clients and lmms-engine's trainer, and part D of the faults"),
    ("tests.e2e.test_http_standing", "API: lmms-eval's clients and lmms-engine's trainer, and part D of the faults"),
    ("tests.e2e.test_lmms_engine", "API: lmms-eval's clients and lmms-engine's trainer, and part D of the faults"),
    ("tests.e2e.test_comparison", "People: comparisons, monitoring, the page in a real browser"),
    ("tests.e2e.test_monitoring", "People: comparisons, monitoring, the page in a real browser"),
    ("tests.e2e.test_live_page", "People: comparisons, monitoring, the page in a real browser"),
    ("tests.e2e.test_sample_pictures", "People: comparisons, monitoring, the page in a real browser"),
    ("tests.e2e.test_page", "People: comparisons, monitoring, the page in a real browser"),
    ("tests.e2e.test_torture", "Torture: every checkpoint of a trainer on its worst days, and the trainer unharmed"),
    ("tests.e2e.test_cut_anywhere", "Complete or not: a file that ends at any byte, in each layout"),
    ("tests.e2e.test_special_files", "Special files: FIFOs, devices, folders and links out among the weights, in each layout"),
    ("tests.e2e.test_soak", "Soak: what the agent takes does not grow with what it has done"),
    ("tests.e2e", "Agent and commands: kills, retention, rewrites, restarts"),
    ("tests.bench.test_merge_bench", "Figures: merging and hashing"),
    ("tests.bench.test_engine_gpu_bench", "GPU: the inputs of its tests and benchmark, prepared beforehand"),
    ("tests.bench.test_service_gpu_bench", "GPU: the inputs of its tests and benchmark, prepared beforehand"),
    ("tests.bench.test_engine_bench", "Figures: the engine beside transformers and lmms-eval"),
    ("tests.bench.test_generate", "Figures: answers"),
    ("tests.bench.test_picture_queue", "Figures: preparing pictures"),
    ("tests.bench.test_preprocess", "Figures: preparing pictures"),
    ("tests.bench.test_preparation", "Figures: preparing prompts"),
    ("tests.bench", "Figures: the agent, its API and page, the trainer's callback"),
    ("tests.gpu", "GPU: the inputs of its tests and benchmark, prepared beforehand"),
    ("tests.test_tree", "Tree: every test is in the build"),
    ("tests.test_dev", "Tree: ./dev says what is wrong"),
    ("tests.test_record", "Tree: ./dev says what is wrong"),
)


def evidence_of(file, group):
    """What line of the record a case belongs to."""
    if not file.name.startswith("pytest"):
        if file.name.startswith("full-unit_"):
            return f"unit, at full size: {file.stem.removeprefix('full-unit_')}"
        return "Fuzz: every parser" if file.name.startswith("fuzz") else file.stem.replace("-", " ")
    return next((name for prefix, name in EVIDENCE if f"{group}.".startswith(f"{prefix}.")), group)


class Line:
    """One evidence line: the states of its cases, what they measured, and of which commit and run they are."""

    def __init__(self, counts, commit, started, figures=()):
        self.counts, self.commit, self.started, self.figures = counts, commit, started, list(figures)

    def row(self, name):
        return f"| {name} | {' | '.join(map(str, self.counts))} | {self.commit} | {self.started} |"


def modules_of(source):
    """The modules of Python tests in a source tree, as JUnit files name them."""
    return {".".join(path.relative_to(source).with_suffix("").parts) for path in pathlib.Path(source).glob("tests/**/test_*.py")}


def lines_of_run(folder, source, commit, started):
    """(name -> Line of what ran whole, names of what ran in part) of the JUnit files in a folder."""
    states, figures, ran = collections.defaultdict(list), collections.defaultdict(list), set()
    expected = collections.defaultdict(set)
    modules = modules_of(source)
    for module in modules:
        expected[evidence_of(pathlib.Path("pytest.xml"), module)].add(module)
    for file in sorted(pathlib.Path(folder).glob("*.xml")):
        for group, _, state in junit.cases(file):
            states[evidence_of(file, group)].append(state)
            if file.name.startswith("pytest"):
                ran.update(module for module in modules if f"{group}.".startswith(f"{module}."))
        for group, text in junit.figures(file):
            figures[evidence_of(file, group)].append(text)
    in_part = {name for name in states if expected[name] - ran}
    whole = {name: Line(junit.tally(seen), commit, started, figures[name]) for name, seen in states.items() if name not in in_part}
    return whole, in_part


ROW = re.compile(r"\| (?P<name>[^|]+) \| (?P<passed>\d+) \| (?P<failed>\d+) \| (?P<skipped>\d+) \| (?P<commit>[^|]+) \| (?P<started>[^|]+) \|")
FIGURES = re.compile(r"^### (?P<name>[^\n]+)\n\n~~~\n(?P<text>.*?)\n~~~$", re.MULTILINE | re.DOTALL)


def read(text):
    """The lines of a record as `written` made it."""
    lines = {}
    for row in text.splitlines():
        if match := ROW.fullmatch(row):
            counts = [int(match[key]) for key in ("passed", "failed", "skipped")]
            lines[match["name"]] = Line(counts, match["commit"], match["started"])
    for match in FIGURES.finditer(text):
        if match["name"] in lines:
            lines[match["name"]].figures = [match["text"]]
    return lines


def written(lines, last_machine):
    text = [
        "# Results at full size",
        "",
        "Written by `./dev test --all`: an evidence line is proven by its last run at full size, here with the commit and the time of that run.",
        "`./dev test --all PART…` renews the lines of some parts; a line is renewed only by all of its tests.",
        "",
        f"The last run was on {last_machine}.",
        "",
        "| evidence | passed | failed | skipped | commit | run |",
        "|---|---|---|---|---|---|",
        *(lines[name].row(name) for name in sorted(lines)),
        "",
        "## What the cases measured",
    ]
    for name in sorted(lines):
        if lines[name].figures:
            text += ["", f"### {name}", "", "~~~", *(figure.strip("\n") for figure in lines[name].figures), "~~~"]
    return "\n".join(text) + "\n"


def machine():
    """The processor, memory and versions that the figures belong to."""
    processor = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    memory = int(next(line.split()[1] for line in open("/proc/meminfo") if line.startswith("MemTotal"))) / 2**20
    compiler = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers", "lmms_eval"))
    return f"{os.cpu_count()} cores of {processor}, {memory:.0f} GiB; {platform.freedesktop_os_release()['PRETTY_NAME']}, {compiler}; {packages}"


def commit_here():
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    changed = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    return commit + ("+changes" if any("RESULTS.md" not in line for line in changed.splitlines()) else "")


def main(results, started, folder):
    results, source = pathlib.Path(results), pathlib.Path(__file__).resolve().parent.parent
    lines = read(results.read_text()) if results.exists() else {}
    whole, in_part = lines_of_run(folder, source, commit_here(), started)
    lines |= whole
    results.write_text(written(lines, machine()))
    for name in sorted(in_part):
        print(f"not renewed, only some of its tests ran: {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
