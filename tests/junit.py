"""Counts and lists the cases of JUnit files (ctest, Catch2 and pytest write them), and keeps tests/RESULTS.md.

    junit.py count FILE                   prints "passed failed skipped"
    junit.py failures FILE                prints one line a failed case
    junit.py single FILE NAME STATUS      writes a file with one case
    junit.py record RESULTS.md TIME DIR   writes the record of a run from the files in DIR
"""

import collections
import importlib.metadata
import os
import pathlib
import platform
import subprocess
import sys
import xml.etree.ElementTree as tree


def elements(path, tag):
    """Every element of that name; none if the file is missing or torn."""
    try:
        yield from tree.parse(path).getroot().iter(tag)
    except (OSError, tree.ParseError):
        return


def cases(path):
    """(group, name, "passed" | "failed" | "skipped") of every case."""
    for case in elements(path, "testcase"):
        tags = {child.tag for child in case}
        if tags & {"failure", "error"} or case.get("status") == "fail":
            state = "failed"
        elif "skipped" in tags or case.get("status") in ("notrun", "disabled"):
            state = "skipped"
        else:
            state = "passed"
        yield case.get("classname") or "", case.get("name") or "", state


def tally(states):
    counts = collections.Counter(states)
    return [counts[state] for state in ("passed", "failed", "skipped")]


# The evidence lines of the work and the Python tests that prove them; the first prefix that fits counts.
EVIDENCE = (
    ("tests.parity.models.test_tokens", "Tokens: generated ids and logits are transformers'"),
    ("tests.parity.models.test_vlm_families", "Tokens: generated ids and logits are transformers'"),
    ("tests.parity.models.test_text_families", "Tokens: generated ids and logits are transformers'"),
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
    ("tests.faults.test_lifecycle", "Faults: signals, readiness, reload, limits, leaks, logs, upgrades"),
    ("tests.faults", "Faults: crashes, disks, watching, evaluators"),
    ("tests.parity.webhook", "Webhook: every result, in order, signed, over restarts"),
    ("tests.e2e.test_posted_results", "Webhook: every result, in order, signed, over restarts"),
    ("tests.e2e.test_comparison", "People: comparisons, monitoring, the page in a real browser"),
    ("tests.e2e.test_monitoring", "People: comparisons, monitoring, the page in a real browser"),
    ("tests.e2e.test_live_page", "People: comparisons, monitoring, the page in a real browser"),
    ("tests.e2e.test_page", "People: comparisons, monitoring, the page in a real browser"),
    ("tests.e2e", "Agent and commands: kills, retention, rewrites, restarts"),
    ("tests.bench", "Figures"),
    ("tests.gpu", "GPU: the inputs of its tests and benchmark, prepared beforehand"),
    ("tests.test_tree", "Tree: every test is in the build"),
    ("tests.test_dev", "Tree: ./dev says what is wrong"),
)


def evidence_of(file, group):
    """What line of the record a case belongs to."""
    if not file.name.startswith("pytest"):
        if file.name.startswith("full-unit_"):
            return f"unit, at full size: {file.stem.removeprefix('full-unit_')}"
        return "Fuzz: every parser" if file.name.startswith("fuzz") else file.stem.replace("-", " ")
    return next((name for prefix, name in EVIDENCE if f"{group}.".startswith(f"{prefix}.")), group)


def figures(path):
    """What the cases of a file measured: the properties "figures" that the fixture of that name leaves."""
    for value in elements(path, "property"):
        if value.get("name") == "figures":
            yield value.get("value").strip("\n")


def machine():
    """The processor, memory and versions that the figures belong to."""
    processor = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    memory = int(next(line.split()[1] for line in open("/proc/meminfo") if line.startswith("MemTotal"))) / 2**20
    compiler = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers", "lmms_eval"))
    return f"{os.cpu_count()} cores of {processor}, {memory:.0f} GiB; {platform.freedesktop_os_release()['PRETTY_NAME']}, {compiler}; {packages}"


def record(results, started, folder):
    groups, measured = collections.defaultdict(list), []
    for file in sorted(pathlib.Path(folder).glob("*.xml")):
        for group, _, state in cases(file):
            groups[evidence_of(file, group)].append(state)
        measured += figures(file)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    changed = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    note = " with uncommitted changes" if any("RESULTS.md" not in line for line in changed.splitlines()) else ""
    lines = [
        "# Results of the last `./dev test --all`",
        "",
        "Written by that command: an evidence line is proven by its last run at full size.",
        "",
        f"Commit {commit}{note}, {started}; {machine()}.",
        "",
        "| evidence | passed | failed | skipped |",
        "|---|---|---|---|",
    ]
    lines += [f"| {name} | " + " | ".join(map(str, tally(states))) + " |" for name, states in sorted(groups.items())]
    totals = tally(state for states in groups.values() for state in states)
    lines += ["| **all** | " + " | ".join(map(str, totals)) + " |", "", "What the cases measured:", "", "```"]
    lines += [*measured, "```"]
    pathlib.Path(results).write_text("\n".join(lines) + "\n")


def single(path, name, status):
    suite = tree.Element("testsuite")
    case = tree.SubElement(suite, "testcase", name=name)
    if status != "0":
        tree.SubElement(case, "failure", message=f"status {status}")
    tree.ElementTree(suite).write(path)


def main(command, path, *rest):
    if command == "count":
        print(*tally(state for _, _, state in cases(path)))
    elif command == "failures":
        for group, name, state in cases(path):
            if state == "failed":
                print("  not ok:", f"{group}.{name}" if group and group != name else name)
    elif command == "single":
        single(path, *rest)
    elif command == "record":
        record(path, *rest)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
