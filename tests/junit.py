"""Counts and lists the cases of JUnit files (ctest, Catch2 and pytest write them).

    junit.py count FILE                   prints "passed failed skipped"
    junit.py failures FILE                prints one line a failed case
    junit.py single FILE NAME STATUS      writes a file with one case
    junit.py whole FILE PROGRAMS FOLDER   adds to a file the cases that the programs of another one left in FOLDER/PROGRAM.xml
"""

import collections
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


def figures(path):
    """(group, text) of what the cases of a file measured: the properties "figures" that the fixture of that name leaves."""
    for case in elements(path, "testcase"):
        for value in case.iter("property"):
            if value.get("name") == "figures":
                yield case.get("classname") or "", value.get("value").strip("\n")


def single(path, name, status):
    suite = tree.Element("testsuite")
    case = tree.SubElement(suite, "testcase", name=name)
    if status != "0":
        tree.SubElement(case, "failure", message=f"status {status}")
    tree.ElementTree(suite).write(path)


def whole(path, programs, folder):
    """A program that left no case, or that failed without a failed case, is a failed case itself."""
    joined = tree.Element("testsuites")
    joined.append(tree.parse(path).getroot())
    for _, program, state in cases(programs):
        left = f"{folder}/{program}.xml"
        seen = {case for _, _, case in cases(left)}
        joined.extend(elements(left, "testsuite"))
        if (not seen and state == "passed") or (state == "failed" and "failed" not in seen):
            case = tree.SubElement(tree.SubElement(joined, "testsuite"), "testcase", name=program)
            tree.SubElement(case, "failure", message=f"{state}, but left {len(seen)} kinds of cases in {left}")
    tree.ElementTree(joined).write(path)


def main(command, path, *rest):
    if command == "count":
        print(*tally(state for _, _, state in cases(path)))
    elif command == "failures":
        for group, name, state in cases(path):
            if state == "failed":
                print("  not ok:", f"{group}.{name}" if group and group != name else name)
    elif command == "single":
        single(path, *rest)
    elif command == "whole":
        whole(path, *rest)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
