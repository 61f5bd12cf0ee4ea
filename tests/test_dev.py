"""The functions of ./dev, one by one, with stand-ins for the tools."""

import re
import subprocess

import pytest

# Which package of Debian 12 and Ubuntu 24.04 brings a program that tests ask for with need(…).
PACKAGE_OF = {"strace": "strace", "bindfs": "bindfs", "unshare": "util-linux", "setpriv": "util-linux", "prlimit": "util-linux",
              "mountpoint": "util-linux", "losetup": "mount", "mkfs.ext4": "e2fsprogs", "systemd-analyze": "systemd", "ip": "iproute2",
              "sqlite3": "sqlite3", "gcc": "g++"}  # fmt: skip


def call(source_dir, script):
    """Runs a script after the definitions of ./dev, in the source tree."""
    definitions = (source_dir / "dev").read_text().replace('main "$@"\n', "").replace('"${BASH_SOURCE[0]}"', f'"{source_dir}/dev"')
    return subprocess.run(["bash", "-c", definitions + script], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("said, ended", [
    ("10 warnings generated.", 0),  # what a clean tree prints
    ("", 0),
    ("thing.cpp:1: error: too long", 1),
    ("10 warnings generated.", 1),
])
def test_tidy_ends_with_0_exactly_if_every_clang_tidy_did(source_dir, tmp_path, said, ended):
    stand_in = tmp_path / "bin" / "clang-tidy"
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit {ended}\n")
    stand_in.chmod(0o755)

    done = call(source_dir, f'build() {{ :; }}\nvenv="{tmp_path}"\ntidy\necho "went on"\n')

    assert (done.returncode != 0) == (ended != 0), done.stderr
    assert ("went on" in done.stdout) == (ended == 0)
    assert ("error: too long" in done.stdout) == ("error" in said)
    assert "unbound" not in done.stderr and "warnings generated" not in done.stdout


@pytest.mark.parametrize("system, expected", [("ID=debian\nVERSION_CODENAME=bookworm\n", ["chromium"]), ("ID=ubuntu\nID_LIKE=debian\n", [])])
def test_the_tests_bring_a_browser_where_the_system_has_a_package_of_one(source_dir, tmp_path, system, expected):
    release = tmp_path / "os-release"
    release.write_text(system)
    nothing_installed = "dpkg-query() { :; }\n"

    script = f'{nothing_installed}packages="$fault_packages $(browser_packages {release})"\nmissing_packages\n'
    done = call(source_dir, script)

    assert done.stdout.split() == ["strace", "bindfs", "util-linux", "mount", "iproute2", "e2fsprogs", "systemd", *expected], done.stderr
    assert "$(browser_packages)" in (source_dir / "dev").read_text().split("main() {")[1]


def test_each_program_that_a_fault_test_needs_comes_with_a_package(source_dir):
    """Else its rows are skipped on a bare machine, and nobody notices."""
    needed = {"ip"}  # asked for by running it
    for path in (source_dir / "tests" / "faults").glob("*.py"):
        for words in re.findall(r"\bneed\(([^)]*)\)", path.read_text()):
            needed.update(re.findall(r'"([^"]+)"', words))
    done = call(source_dir, 'echo "$packages $fault_packages"')
    installed = set(done.stdout.split()[::2])

    assert {"systemd-analyze", "mkfs.ext4", "strace"} <= needed
    assert {program: PACKAGE_OF.get(program) for program in needed if PACKAGE_OF.get(program) not in installed} == {}
