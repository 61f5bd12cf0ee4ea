"""Counts and lists the cases of JUnit files (ctest, Catch2 and pytest write them), and keeps tests/RESULTS.md.

    junit.py count FILE                   prints "passed failed skipped"
    junit.py failures FILE                prints one line a failed case
    junit.py single FILE NAME STATUS      writes a file with one case
    junit.py record RESULTS.md TIME DIR   writes the record of a run from the files in DIR
"""

import collections
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as tree


def cases(path):
    """(group, name, "passed" | "failed" | "skipped") of every case; nothing if the file is missing or torn."""
    try:
        root = tree.parse(path).getroot()
    except (OSError, tree.ParseError):
        return
    for case in root.iter("testcase"):
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


# The evidence lines of the work, and the folders of the Python tests that prove them.
EVIDENCE = {
    "tests.parity.engine": "Tokens: generated ids and logits against transformers",
    "tests.parity.text": "Text: ids against the Rust tokenizers, chat templates against Jinja2",
    "tests.parity.vision": "Pixels: decoding and resizing against Pillow and torchvision",
    "tests.parity.checkpoint": "Weights: merged shards against full_tensor()",
    "tests.parity.tasks": "Scores and answers against lmms-eval",
    "tests.parity.metrics": "Scores against lmms-eval",
    "tests.e2e": "End to end: real trainers, the installed programs",
    "tests.faults": "Faults",
    "tests.bench": "Figures, as ratios of one run",
}


def evidence_of(file, group):
    """What line of the record a case belongs to."""
    if file.name != "pytest.xml":
        return file.stem
    parts = group.split(".")
    folder = ".".join(parts[:3] if parts[:2] == ["tests", "parity"] else parts[:2])
    return EVIDENCE.get(folder, folder)


def record(results, started, folder):
    groups = collections.defaultdict(list)
    for file in sorted(pathlib.Path(folder).glob("*.xml")):
        for group, _, state in cases(file):
            groups[evidence_of(file, group)].append(state)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    changed = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    note = " with uncommitted changes" if any("RESULTS.md" not in line for line in changed.splitlines()) else ""
    lines = [
        "# Results of the last `./dev test --all`",
        "",
        "Written by that command: an evidence line is proven by its last run at full size.",
        "",
        f"Commit {commit}{note}, {started}",
        "",
        "| evidence | passed | failed | skipped |",
        "|---|---|---|---|",
    ]
    lines += [f"| {name} | " + " | ".join(map(str, tally(states))) + " |" for name, states in sorted(groups.items())]
    totals = tally(state for states in groups.values() for state in states)
    lines += ["| **all** | " + " | ".join(map(str, totals)) + " |"]
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
