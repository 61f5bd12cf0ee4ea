"""The tree keeps its own rules: every test file is built, nothing new lies at the top."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import record


def tracked(source_dir):
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=source_dir, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.splitlines() if (source_dir / name).exists()]


def test_every_cpp_test_and_probe_is_in_the_build(source_dir, build_dir):
    built = {command["file"] for command in json.loads((build_dir / "compile_commands.json").read_text())}

    missing = [
        name
        for name in tracked(source_dir)
        if name.startswith("tests/")
        and name.endswith(("_test.cpp", "_probe.cpp", "_bench.cpp"))
        and str(source_dir / name) not in built
    ]

    assert missing == [], "in no CMakeLists.txt"


def test_where_there_is_a_cuda_compiler_every_kernel_is_compiled_for_both_generations(source_dir, build_dir):
    """CMake builds for the CPU alone, quietly, where it finds none."""
    if not shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin"):
        pytest.skip("no CUDA compiler on this machine")
    commands = {command["file"]: command["command"] for command in json.loads((build_dir / "compile_commands.json").read_text())}
    kernels = [str(source_dir / name) for name in tracked(source_dir) if name.endswith(".cu")]

    wanted = ("arch=compute_80,code=[sm_80]", "arch=compute_90,code=[compute_90,sm_90]")
    lacking = {kernel: [each for each in wanted if each not in commands.get(kernel, "")] for kernel in kernels}

    assert kernels and all(not each for each in lacking.values()), lacking


def test_every_row_of_the_corpus_of_bad_files_names_tests_that_are_there(source_dir):
    """corpus_tests.tsv: a row's name, and a test that makes such a file and knows what has to come of it."""
    rows = [line.split("\t") for line in (source_dir / "tests/fixtures/corpus_tests.tsv").read_text().splitlines()]

    missing = []
    for name, file, title in rows:
        text = (source_dir / file).read_text() if (source_dir / file).exists() else ""
        text = re.sub(r'"\s*\n\s*"', "", text)  # a title over two lines
        is_there = f"def {title}(" in text if file.endswith(".py") else re.search(r'TEST_CASE\(\s*"' + re.escape(title) + '"', text)
        if not is_there:
            missing.append((name, file, title))

    assert missing == []
    assert len({name for name, _, _ in rows}) == 125  # all but GGUF's, which is not read


def test_every_fuzz_target_is_in_the_build(source_dir):
    targets = (source_dir / "tests/fuzz/CMakeLists.txt").read_text()

    missing = [
        path.name
        for path in (source_dir / "tests/fuzz").glob("*_fuzz.cpp")
        if f"NAME {path.name.removesuffix('_fuzz.cpp')} " not in targets
    ]

    assert missing == []


def test_only_the_agreed_entries_lie_at_the_top(source_dir):
    agreed = {"CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE", "dev",
              "agent", "evaluator", "store", "tests", "systemd"}  # fmt: skip

    seen = {name.split("/")[0] for name in tracked(source_dir)}

    assert {name for name in seen if not name.startswith(".")} <= agreed


def test_every_case_belongs_to_a_line_of_the_record_that_has_a_name(source_dir):
    """Where record.py knows none, tests/RESULTS.md would show the module's or the file's name."""
    modules = [name.removesuffix(".py").replace("/", ".") for name in tracked(source_dir) if name.startswith("tests/") and "/test_" in name]

    unnamed = [module for module in modules if record.evidence_of(pathlib.Path("pytest.xml"), module) == module]

    assert len(modules) > 30 and unnamed == []
    assert record.evidence_of(pathlib.Path("full-unit_checkpoint.xml"), "") == "unit, at full size: checkpoint"


def test_every_kernel_waits_for_the_ones_before_it(source_dir):
    """launch() lets a kernel begin before the one ahead of it has ended (evaluator/kernels/kernel_launch.h)."""
    waits = {}
    for name in tracked(source_dir):
        if name.endswith(".cu"):
            text = (source_dir / name).read_text()
            assert "<<<" not in text, f"{name}: not by launch()"
            for body in re.split(r"^__global__", text, flags=re.MULTILINE)[1:]:
                kernel = re.search(r"__launch_bounds__\([^)]*\)\s+(\w+)\(", body)[1]
                waits[name, kernel, len(waits)] = "\n  wait_for_earlier_kernels();\n" in body.partition("\n}\n")[0]

    assert len(waits) >= 12
    assert [kernel for kernel, does in waits.items() if not does] == []


def function_names(text, in_anonymous):
    """{(namespace, name)} of the functions at the margin: those that a source has for itself, or those that a header gives to its room."""
    text = re.sub(r'R"(\w*)\(.*?\)\1"', '""', text, flags=re.DOTALL)
    namespace, anonymous, names = "", False, set()
    for line in text.splitlines():
        if found := re.match(r"namespace ([\w:]+) \{", line):
            namespace = found[1]
        anonymous = (anonymous or line == "namespace {") and line != "}  // namespace"
        found = re.match(r"(?:\[\[\w+\]\] )?(?:template <.*> )?(?!static_assert|__)[A-Za-z_][\w:<>,&*\[\] ]*?[ &*>](\w+)\(", line)
        if found and anonymous == in_anonymous:
            names.add((namespace, found[1]))
    return names


def test_files_that_are_compiled_together_have_functions_of_names_of_their_own(source_dir, build_dir):
    """The compiler refuses two of the same arguments. Of others a file might call its neighbour's instead of its own, or instead of what
    a header declares in the namespace around."""
    commands = json.loads((build_dir / "compile_commands.json").read_text())
    batches = [pathlib.Path(each["file"]) for each in commands if "/Unity/unity_" in each["file"]]
    declared = set()
    for name in tracked(source_dir):
        if name.endswith(".h"):
            declared |= function_names((source_dir / name).read_text(), in_anonymous=False)

    owners, hidden = {}, []
    for batch in batches:
        for file in re.findall(r'#include "(.*)"', batch.read_text()):
            for namespace, name in function_names(pathlib.Path(file).read_text(), in_anonymous=True):
                owners.setdefault((batch, namespace, name), set()).add(file)
                around = namespace.split("::")
                if any(("::".join(around[: n + 1]), name) in declared for n in range(len(around))):
                    hidden.append((file, namespace, name))

    assert len(owners) > 1000, "batches or names are no longer where they are looked for"
    assert [(key[1:], files) for key, files in owners.items() if len(files) > 1] == []
    assert hidden == []
