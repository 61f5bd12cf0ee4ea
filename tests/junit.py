"""Counts and lists the cases of JUnit files (ctest, Catch2 and pytest write them).

    junit.py count FILE                   prints "passed failed skipped"
    junit.py failures FILE                prints one line a failed case
    junit.py single FILE NAME STATUS      writes a file with one case
    junit.py join FILE OTHER…             adds the cases of the others to a file
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


def join(path, *others):
    joined = tree.Element("testsuites")
    for file in (path, *others):
        joined.extend(list(elements(file, "testsuite")))
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
    elif command == "join":
        join(path, *rest)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
