"""What the fault tests share: ways to break things, and how to see that nothing else broke.

A row passes if no invariant broke during the fault, the agent is alive (or was started again) and has converged within 30 s
after the fault is over, and a healthy checkpoint written afterwards, the canary, gets exactly the right metric, once:

    def test_fsync_eio_metric(bench):
        sidecar = bench.sidecar()
        tools.strace(sidecar, "fsync", "error=EIO", when=3)
        sidecar.start()
        ...
        tools.check_canary(bench, sidecar)

Ways to break things, each of which skips the test where the machine lacks it: strace(), limit(), as_user(), MountNamespace
(the fixture `namespace`), ShimBuilder (`preload`), NotifySocket (`notify`), without_network()."""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time

import checkpoints
import fake_evaluator
import pytest
from harness import hash_of

CANARY_STEP = 90_000
CONVERGES_S = 30


def eventually(condition, timeout=60, what="the condition", pause=0.02):
    """Polls until condition() is true and gives what it returned; fails, saying what was waited for."""
    start = time.monotonic()
    while time.monotonic() - start < timeout:
        if found := condition():
            return found
        time.sleep(pause)
    raise AssertionError(f"{what} did not come in {timeout} s")


def within(seconds, evalcar, action):
    """What action() gives, which has to come in this time; where even a start of the program takes long, on a loaded machine, in that
    of 50 starts."""
    began = time.monotonic()
    given = action()
    took = time.monotonic() - began
    if took >= seconds:
        began = time.monotonic()
        for _ in range(5):
            subprocess.run([evalcar, "--version"], check=True, capture_output=True, timeout=60)
        start = (time.monotonic() - began) / 5
        assert took < 50 * start, f"took {took:.2f} s, expected less than {seconds} s (a start of the program takes {start:.3f} s)"
    return given


def need(*programs):
    """Skips the test where a program is missing."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here")


# ---- the canary, and what must hold throughout and after


def check_canary(bench, sidecar, *, step=CANARY_STEP, evaluated_by=None, timeout=CONVERGES_S):
    """Writes a healthy checkpoint and asks for exactly its own metric, once; then for the invariants of the files.

    The sidecar runs on, or is run once if it has ended. `evaluated_by`: a sidecar with other arguments (without the fault)."""
    agent = evaluated_by or sidecar
    folder = checkpoints.write_hugging_face(bench.run, step, seed=f"canary {step}")
    sha256 = hash_of(bench.evalcar, folder, "regular")
    running = agent.process is not None and agent.process.poll() is None
    if running:
        agent.wait_for(lambda s: (step, "regular") in s.published(), timeout=timeout, what="the canary's result")
    else:
        code = agent.once(timeout=2 * timeout)
        assert (step, "regular") in agent.published(), (code, agent.states(), agent.log())
    lines = [line for line in agent.metrics_lines() if line["global_step"] == step]
    assert len(lines) == 1, lines
    assert lines[0]["weights_sha256"] == sha256 and lines[0]["final"] is True
    assert lines[0]["metrics"]["eval/docvqa_val/anls"] == pytest.approx(fake_evaluator.expected_value(sha256, "docvqa_val", 6))
    check_files(bench.run)


def check_files(run):
    """I3 and I5: whole files, rising seq, each (step, kind) published once a set of metrics unless superseded, no strange names beside checkpoints."""
    home = pathlib.Path(run) / "_evalcar"
    metrics = home / "metrics.jsonl"
    if metrics.exists():
        text = metrics.read_text()
        assert text == "" or text.endswith("\n"), "a torn last line"
        lines = [json.loads(line) for line in text.splitlines()]
        numbers = [line["seq"] for line in lines]
        assert numbers == sorted(set(numbers)), numbers
        replaced = {line["supersedes"] for line in lines if line.get("supersedes")}
        final = [(line["global_step"], line["checkpoint_type"], *sorted(line["metrics"])) for line in lines if line["final"] and line["seq"] not in replaced]
        assert len(final) == len(set(final)), f"published twice: {final}"
    for name in ("best.json", "status.json"):
        if (home / name).exists():
            json.loads((home / name).read_text())
    if pathlib.Path(run).is_dir():
        strange = [name for name in os.listdir(run) if name.startswith("checkpoint") and not name.removeprefix("checkpoint-").isdigit()]
        assert strange == [], strange


def tree_of(root):
    """{path: (type, inode, size, mtime_ns)} of everything below a folder, `_evalcar` left out: compare before with after."""
    found = {}
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name != "_evalcar"]
        for name in [*names, *files]:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            found[os.path.relpath(path, root)] = (info.st_mode, info.st_ino, info.st_size, info.st_mtime_ns)
    return found


# ---- looking at a process


def family(pid):
    """The process and all its descendants."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                text = pathlib.Path(f"/proc/{entry}/stat").read_text()
                parents[int(entry)] = int(text[text.rindex(")") + 2:].split()[1])
    found = [pid]
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return found


def open_files(pid):
    """{descriptor: what it leads to}"""
    found = {}
    for entry in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found[int(entry)] = os.readlink(f"/proc/{pid}/fd/{entry}")
    return found


def held_in(root, pid, looks=20):
    """What the process and its descendants hold open, map or stand in below a folder (I5), `_evalcar` left out. Looks again while a
    folder is open, and gives those that always are: a list of names is read from an open folder."""
    always = None
    for _ in range(looks):
        files, folders = held_now_in(root, pid)
        if files:
            return files
        always = folders if always is None else always & folders
        if not always:
            return []
        time.sleep(0.05)
    return sorted(always)


def held_now_in(root, pid):
    """(files, folders), each by the process's own mounts."""
    inside, ours = f"{root}/", f"{root}/_evalcar/"
    files, folders = [], set()
    for member in family(pid):
        with contextlib.suppress(OSError):
            links = [*pathlib.Path(f"/proc/{member}/fd").iterdir(), pathlib.Path(f"/proc/{member}/cwd")]
            found = [line.split(None, 5)[5] for line in pathlib.Path(f"/proc/{member}/maps").read_text().splitlines() if "/" in line]
            for link in links:
                with contextlib.suppress(OSError):
                    path = os.readlink(link)
                    if not link.is_dir():
                        found.append(path)
                    elif path.startswith(inside) and not path.startswith(ours):
                        folders.add(path)
            files += [path for path in found if path.startswith(inside) and not path.startswith(ours)]
    return files, folders


def watches_of(pid):
    """How many inotify watches the process has."""
    count = 0
    for descriptor, target in open_files(pid).items():
        if target == "anon_inode:inotify":
            count += pathlib.Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().count("inotify wd:")
    return count


def threads_of(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def rss_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid):
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    fields = text[text.rindex(")") + 2:].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- strace: the k-th call of a kind fails, kills or stalls


def strace(sidecar, calls, injection="", *, when="", follow=False, log=None):
    """From its next start the sidecar runs under strace. `calls`: "fsync" or "pwrite64,rename"; `injection`: what strace puts after
    the calls ("error=EIO", "signal=KILL", "delay_exit=2000000", "retval=0"; "": only traced); `when`: "3", "3+", "1..20".

    Counts are of each process for itself: without `follow` only the agent is traced, not the evaluators that it starts. The
    process of the sidecar stays the agent (its pid, its signals, its exit code): the tracer is a process beside it.
    Gives the path of strace's log."""
    need("strace")
    if (why := strace_refused()) is not None:
        pytest.skip(f"strace cannot trace here: {why}")
    log = pathlib.Path(log or sidecar.home / "strace.log")
    log.unlink(missing_ok=True)
    words = ["strace", "-D", "-qq", "-o", str(log), "-e", f"trace={calls}", "-e", "signal=none"]
    if follow:
        words.insert(1, "-f")
    if injection:
        words += ["-e", f"inject={calls}:{injection}" + (f":when={when}" if when else "")]
    if sidecar.command[0] == "strace":  # the next step of a sweep
        sidecar.command = sidecar.command[sidecar.command.index("--") + 1:]
    sidecar.command = [*words, "--", *sidecar.command]
    return log


@functools.cache
def strace_refused():
    """Why the kernel does not let this user trace; None: it does."""
    done = subprocess.run(["strace", "-D", "-qq", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 and not done.stderr else done.stderr.strip()


def unbroken(sidecar):
    """Takes strace(), limit(), as_user(), a namespace away from its next start."""
    sidecar.command = sidecar.command[sidecar.command.index(sidecar.evalcar):]


def calls_in(log, name):
    """How many calls of that name a strace log holds, however they ended."""
    return sum(line.lstrip("0123456789 ").startswith(f"{name}(") for line in pathlib.Path(log).read_text(errors="replace").splitlines())


# ---- other limits and users


def limit(sidecar, **limits):
    """prlimit(1): limit(sidecar, nofile=32, nproc=100)."""
    need("prlimit")
    sidecar.command = ["prlimit", *[f"--{name}={value}" for name, value in limits.items()], *sidecar.command]


def as_user(sidecar, uid=65534):
    """Runs it as another user, without root's privileges. Its home must be writable for that user."""
    need("setpriv")
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    sidecar.command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs", *sidecar.command]


def without_network(sidecar):
    """Runs it in a network namespace that has nothing, not even a working loopback."""
    need("unshare")
    words = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-current-user", "--net"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no network namespace can be made here")
    sidecar.command = [*words, *sidecar.command]


class MountNamespace:
    """Mounts that only the processes put into it see. Tests look in through path().

        namespace.mount_tmpfs(home / "small", "size=1m")
        namespace.enter(sidecar)                       # from its next start
        namespace.remount(home / "small", "ro")"""

    def __init__(self, holder, words):
        self.holder = holder
        self.words = words

    @classmethod
    def make(cls):
        """One, or a sentence why there is none."""
        for program in ("unshare", "nsenter", "mount"):
            if shutil.which(program) is None:
                return f"no {program} here"
        root = os.geteuid() == 0
        words = ["unshare", "--mount", "--propagation", "private"] + ([] if root else ["--user", "--map-root-user"])
        holder = subprocess.Popen([*words, "sh", "-c", "echo ready; exec sleep 100000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if holder.stdout.readline() != "ready\n":
            holder.wait()
            return "no mount namespace can be made here: " + holder.stderr.read().strip()
        enter = ["nsenter", "-t", str(holder.pid), "--mount"] + ([] if root else ["--user", "--preserve-credentials"])
        return cls(holder, enter)

    def run(self, *command):
        """Runs a command inside; fails if it does."""
        done = subprocess.run([*self.words, *map(str, command)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def mount_tmpfs(self, folder, options="size=1m"):
        """Over a folder, which is made."""
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        self.run("mount", "-t", "tmpfs", "-o", options, "tmpfs", folder)
        return self.path(folder)

    def remount(self, folder, options):
        self.run("mount", "-o", f"remount,{options}", folder)

    def unmount(self, folder):
        self.run("umount", folder)

    def path(self, path):
        """How a test outside sees a path that lies inside."""
        return pathlib.Path(f"/proc/{self.holder.pid}/root{path}")

    def enter(self, sidecar):
        """From its next start the sidecar runs inside (nsenter execs: its pid stays the agent's)."""
        sidecar.command = [*self.words, *sidecar.command]

    def close(self):
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()
        self.holder.stderr.close()


class ShimBuilder:
    """Compiles small libraries for LD_PRELOAD: for what strace cannot say (did it but returned an error, one-byte writes, a fake
    statfs). Start the source with tools.SHIM_HEAD, which has real(name), is_agent() and switched_on(variable)."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def build(self, source):
        need("gcc")
        name = hashlib.sha256(source.encode()).hexdigest()[:16]
        library = self.folder / f"{name}.so"
        if not library.exists():
            code = self.folder / f"{name}.c"
            code.write_text(source)
            subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(code), "-ldl"], check=True)
        return library


SHIM_HEAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>
/* The function that this one stands before: static T (*next)(...) = real("name"); */
__attribute__((unused)) static void* real(const char* name) { return dlsym(RTLD_NEXT, name); }
/* The agent itself, or one of its commands; not what it starts besides. */
__attribute__((unused)) static int is_agent(void) { return strcmp(program_invocation_short_name, "evalcar") == 0; }
/* A test switches a fault on by making the file that the environment variable names, and off by removing it. */
__attribute__((unused)) static int switched_on(const char* variable) {
  const char* path = getenv(variable);
  return path != NULL && faccessat(AT_FDCWD, path, F_OK, 0) == 0;
}
"""


def use_shim(sidecar, library, **environment):
    """Loads it into the agent and all that it starts: a shim asks is_agent() where that matters."""
    sidecar.environment["LD_PRELOAD"] = str(library)
    sidecar.environment.update({name: str(value) for name, value in environment.items()})


# ---- the service manager's side


class NotifySocket:
    """Stands in for systemd: everything that was sent to NOTIFY_SOCKET, with the time at which it came."""

    def __init__(self, path, abstract=False):
        self.address = f"\0{path}" if abstract else str(path)
        self.name = f"@{path}" if abstract else str(path)
        self.heard = []  # (monotonic seconds, datagram)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.address)
        self.socket.settimeout(0.1)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.listen, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self.socket.close()

    def listen(self):
        while not self.ended.is_set():
            with contextlib.suppress(TimeoutError):
                datagram = self.socket.recv(65536)
                self.heard.append((time.monotonic(), datagram.decode()))

    def environment(self, watchdog_s=None):
        """What a service manager sets."""
        found = {"NOTIFY_SOCKET": self.name}
        return found if watchdog_s is None else {**found, "WATCHDOG_USEC": str(int(watchdog_s * 1e6))}

    def lines(self):
        """[(time, "READY=1"), …] of every line of every datagram."""
        return [(when, line) for when, text in list(self.heard) for line in text.splitlines()]

    def times(self, line):
        """When a line came."""
        return [when for when, heard in self.lines() if heard == line]

    def wait_for(self, line, count=1, timeout=60):
        """Waits until it came so many times; gives when the last of them did."""
        eventually(lambda: len(self.times(line)) >= count, timeout, f"{line} on the notify socket ({self.lines()})")
        return self.times(line)[count - 1]
