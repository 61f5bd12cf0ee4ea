"""The tree keeps its own rules: every test file is built, nothing new lies at the top."""

import json
import subprocess


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
