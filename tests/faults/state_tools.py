"""What the rows of part A share: a faulty disk by LD_PRELOAD, power cuts on a loop mount, kills, and what must be true afterwards."""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import time

import checkpoints
import pytest
import tools
from tensorboard.backend.event_processing import event_file_loader
from tensorboard.util import tensor_util
from harness import Bench, check_published_once, hash_of

CRASH_POINTS = ("after_claim", "after_load", "mid_eval", "after_eval", "after_commit", "after_tmp_write", "after_rename",
                "after_line", "after_mark")  # fmt: skip


def need_crash_points(build_dir):
    if "EVALCAR_CRASH_POINTS:BOOL=ON" not in (build_dir / "CMakeCache.txt").read_text():
        pytest.skip("built without EVALCAR_CRASH_POINTS (preset dev has it)")


def save(bench, *steps):
    """Checkpoints, and what has to be published of them: {(step, kind): sha256}."""
    return {(step, "regular"): hash_of(bench.evalcar, checkpoints.write_hugging_face(bench.run, step, seed=f"seed {step}"), "regular")
            for step in steps}  # fmt: skip


BENCHES = []  # of this test, besides its fixture's


def another_bench(bin_dir, folder):
    """For one step of a sweep. What still runs on it when the test ends is killed."""
    folder.mkdir(parents=True)
    made = Bench(bin_dir, folder)
    made.run.mkdir()
    BENCHES.append(made)
    return made


def close_benches():
    for sidecar in (sidecar for bench in BENCHES for sidecar in bench.sidecars):
        if sidecar.process and sidecar.process.poll() is None:
            sidecar.kill()
    BENCHES.clear()


def generated(bench, sha256=""):
    """How often the evaluator generated an answer (for these weights)."""
    return len(bench.heard(f"generate {sha256[:12]}"))


def check_whole(bench, sidecar, expected, kept=()):
    """Published once, each the number of its own weights; a sound database; nothing left over but the leases `kept`."""
    check_published_once(sidecar, expected)
    tools.check_files(bench.run)
    assert sidecar.query("PRAGMA integrity_check") == [("ok",)]
    assert sorted(set(leftovers(bench.run, sidecar.database.parent))) == [str(bench.run / "_evalcar" / "leases" / name) for name in sorted(kept)]


def outcome(sidecar):
    """What a run leaves that others read, without its times and its names for itself: after a kill it is that of an undisturbed run."""
    home = sidecar.run / "_evalcar"
    found = {re.sub(r"\d{8}_\d{6}", "TIME", str(path.relative_to(home))): path for path in home.rglob("*") if path.is_file()}
    documents = {name: json.loads(path.read_text()) for name, path in found.items() if name.endswith("_results.json")}
    told = [{key: line[key] for key in ("seq", "global_step", "checkpoint_type", "weights_sha256", "final", "metrics", "samples")}
            for line in sidecar.metrics_lines()]  # fmt: skip
    order = {(line["global_step"], line["checkpoint_type"]): line["seq"] for line in told}  # which kind comes first is not fixed
    return {
        "files": sorted(found),
        "results": {name: [document[key] for key in ("results", "n-samples", "versions", "higher_is_better")] for name, document in documents.items()},
        "samples files": {name: path.read_text() for name, path in found.items() if "_samples_" in name},
        "samples": sorted(sidecar.query("SELECT step, checkpoint_type, task, doc_id, line FROM samples")),
        "metrics": sorted(sidecar.query("SELECT step, checkpoint_type, task, metric, value, stderr FROM metrics")),
        "best": json.loads(found["best.json"].read_text()),
        "lines": {key: {**line, "seq": None} for key, line in zip(order, told, strict=True)},
        "events": sorted(scalars(path) for name, path in found.items() if "tfevents" in name),
        "links": sorted((str(path.relative_to(sidecar.run)), os.readlink(path)) for path in sidecar.run.rglob("*") if path.is_symlink()),
    }


def scalars(path):
    """Of an event file: [(tag, step, value)], each as often as it is there."""
    return sorted((value.tag, event.step, tensor_util.make_ndarray(value.tensor).item() if value.HasField("tensor") else value.simple_value)
                  for event in event_file_loader.EventFileLoader(str(path)).Load() for value in event.summary.value)  # fmt: skip


def leftovers(*folders):
    """Temporary files, and leases."""
    found = []
    for folder in folders:
        for path in pathlib.Path(folder).rglob("*"):
            if ".tmp." in path.name or path.name.endswith(".new") or path.parent.name == "leases":
                found.append(str(path))
    return found


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def status_of(sidecar):
    """The heartbeat, from wherever it is now; {} before the first."""
    for path in (sidecar.run / "_evalcar" / "status.json", pathlib.Path(f"{sidecar.database}.status.json")):
        if path.exists():
            return json.loads(path.read_text())
    return {}


def warning_of(sidecar):
    return (status_of(sidecar).get("agent") or {}).get("warning", "")


def put_database(sidecar, place, namespace=None):
    """Another place for the database, perhaps one that only a namespace has."""
    sidecar.command = [f"store.path={place}" if word.startswith("store.path=") else word for word in sidecar.command]
    sidecar.database = pathlib.Path(place)
    if namespace is not None:
        sidecar.database = namespace.path(place)
        sidecar.query = lambda sql: rows_inside(namespace, place, sql)


def rows_inside(namespace, database, sql, *options):
    """SQLite resolves /proc/PID/root, so a database of a namespace is asked there; [] while it cannot be."""
    tools.need("sqlite3")
    done = subprocess.run([*namespace.words, "sqlite3", *(options or ("-readonly",)), "-json", str(database), sql], capture_output=True,
                          text=True, check=False)  # fmt: skip
    return [tuple(row.values()) for row in json.loads(done.stdout or "[]")] if done.returncode == 0 else []


def see_inside(bench, sidecar, namespace):
    """From now on this test writes and reads the output directory as it is inside the namespace."""
    bench.run = sidecar.run = namespace.path(bench.run)


def fill(folder):
    """Takes all the space of a small file system; gives the file that holds it."""
    filler = pathlib.Path(folder) / "filler"
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            for size in (65536, 4096, 512, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"x" * size):
                        pass
            break
    return filler


def take_inodes(folder):
    """Takes all inodes of a small file system, and none of its space; gives the folder that holds them."""
    taken = pathlib.Path(folder) / "taken"
    taken.mkdir()
    with contextlib.suppress(OSError):
        for number in range(100_000):
            (taken / str(number)).touch()
    return taken


# A disk that misbehaves while the file FAULT_SWITCH names exists, for paths that hold FAULT_PATH ("…$": end so). FAULT_CALLS: which calls;
# FAULT_ERRNO: with what they fail; FAULT_TIMES: how often at most; FAULT_AFTER: they do their work, then say that they failed.
# Calls: write (all that put bytes into a file), sync, close, open (for writing), name (rename, unlink, mkdir, link), flock,
# short (one byte at a time, every other time EINTR), statfs (says FAULT_FS_TYPE).
FAULTY_DISK = tools.SHIM_HEAD + r"""
#include <sys/file.h>
#include <sys/uio.h>
static int remaining = -2;
static int wanted(const char* call) {
  const char* calls = getenv("FAULT_CALLS");
  const char* found = calls == NULL ? NULL : strstr(calls, call);
  return found != NULL && (getenv("FAULT_SWITCH") == NULL || switched_on("FAULT_SWITCH"));
}
static int matches(const char* path) {
  const char* part = getenv("FAULT_PATH");
  if (part == NULL) return 1;
  size_t size = strlen(part), whole = strlen(path);
  if (size == 0 || part[size - 1] != '$') return strstr(path, part) != NULL;
  return whole >= size - 1 && strncmp(path + whole - (size - 1), part, size - 1) == 0;
}
static int matches_fd(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n <= 0 || path[0] != '/') return 0;
  path[n] = 0;
  return matches(path);
}
static int fails(void) {
  if (remaining == -2) remaining = getenv("FAULT_TIMES") != NULL ? atoi(getenv("FAULT_TIMES")) : -1;
  if (remaining == 0) return 0;
  if (remaining > 0) --remaining;
  errno = getenv("FAULT_ERRNO") != NULL ? atoi(getenv("FAULT_ERRNO")) : EIO;
  return 1;
}
static int turn;
ssize_t write(int fd, const void* bytes, size_t size) {
  static ssize_t (*next)(int, const void*, size_t);
  if (next == NULL) next = real("write");
  if (wanted("write") && matches_fd(fd) && fails()) return -1;
  if (size > 1 && wanted("short") && matches_fd(fd)) {
    if (++turn % 2) return errno = EINTR, -1;
    size = 1;
  }
  return next(fd, bytes, size);
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  static ssize_t (*next)(int, const void*, size_t, off64_t);
  if (next == NULL) next = real("pwrite64");
  if (wanted("write") && matches_fd(fd) && fails()) return -1;
  if (size > 16 && wanted("short") && matches_fd(fd)) {
    if (++turn % 2) return errno = EINTR, -1;
    size = size / 2;
  }
  return next(fd, bytes, size, offset);
}
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) { return pwrite64(fd, bytes, size, offset); }
int ftruncate64(int fd, off64_t size) {
  static int (*next)(int, off64_t);
  if (next == NULL) next = real("ftruncate64");
  return wanted("write") && matches_fd(fd) && fails() ? -1 : next(fd, size);
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }
int fsync(int fd) {
  static int (*next)(int);
  if (next == NULL) next = real("fsync");
  return wanted("sync") && matches_fd(fd) && fails() ? -1 : next(fd);
}
int fdatasync(int fd) {
  static int (*next)(int);
  if (next == NULL) next = real("fdatasync");
  return wanted("sync") && matches_fd(fd) && fails() ? -1 : next(fd);
}
int close(int fd) {
  static int (*next)(int);
  if (next == NULL) next = real("close");
  int failing = wanted("close") && matches_fd(fd) && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
  int done = next(fd);
  return failing && fails() ? -1 : done;
}
static int refused(const char* path, int flags) {
  return ((flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT)) && wanted("open") && matches(path) && fails();
}
int open64(const char* path, int flags, ...) {
  static int (*next)(const char*, int, ...);
  if (next == NULL) next = real("open64");
  va_list rest;
  va_start(rest, flags);
  mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return refused(path, flags) ? -1 : next(path, flags, mode);
}
int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open64(path, flags, mode);
}
int rename(const char* from, const char* to) {
  static int (*next)(const char*, const char*);
  if (next == NULL) next = real("rename");
  return wanted("name") && matches(to) && fails() ? -1 : next(from, to);
}
int unlink(const char* path) {
  static int (*next)(const char*);
  if (next == NULL) next = real("unlink");
  return wanted("name") && matches(path) && fails() ? -1 : next(path);
}
int mkdir(const char* path, mode_t mode) {
  static int (*next)(const char*, mode_t);
  if (next == NULL) next = real("mkdir");
  return wanted("name") && matches(path) && fails() ? -1 : next(path, mode);
}
int link(const char* from, const char* to) {
  static int (*next)(const char*, const char*);
  if (next == NULL) next = real("link");
  return wanted("name") && matches(to) && fails() ? -1 : next(from, to);
}
int flock(int fd, int operation) {
  static int (*next)(int, int);
  if (next == NULL) next = real("flock");
  if (wanted("flock")) return errno = ENOSYS, -1;
  return next(fd, operation);
}
int statfs64(const char* path, struct statfs64* out) {
  static int (*next)(const char*, struct statfs64*);
  if (next == NULL) next = real("statfs64");
  int done = next(path, out);
  if (done == 0 && wanted("statfs") && matches(path)) out->f_type = strtol(getenv("FAULT_FS_TYPE"), NULL, 0);
  return done;
}
int statfs(const char* path, struct statfs* out) { return statfs64(path, (struct statfs64*)out); }
"""


class Fault:
    """A faulty disk for one sidecar: `calls` fail with `errno` for paths that hold `path` ("…$": that end so), while it is on."""

    def __init__(self, preload, sidecar, calls, *, path, error=5, times=None, on=True, fs_type=0x65735546):
        self.switch = sidecar.home / "fault.on"
        words = {"FAULT_CALLS": calls, "FAULT_PATH": path, "FAULT_ERRNO": error, "FAULT_SWITCH": self.switch, "FAULT_FS_TYPE": hex(fs_type)}
        if times is not None:
            words["FAULT_TIMES"] = times
        tools.use_shim(sidecar, preload(FAULTY_DISK), **words)
        (self.begin if on else self.end)()

    def begin(self):
        self.switch.touch()

    def end(self):
        self.switch.unlink(missing_ok=True)


class LoopDisk:
    """A small ext4 file system on a file, mounted in a namespace: copying the file while it is mounted is a power cut."""

    def __init__(self, namespace, folder, mount, megabytes=8):
        tools.need("mkfs.ext4", "losetup")
        self.namespace, self.folder = namespace, pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.image, self.mount = self.folder / "disk.img", pathlib.Path(mount)
        self.mount.mkdir(parents=True, exist_ok=True)
        with open(self.image, "wb") as file:
            file.truncate(megabytes << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-J", "size=1", "-b", "1024", str(self.image)], check=True, capture_output=True)
        try:
            namespace.run("mount", "-o", "loop,commit=1", self.image, self.mount)
        except AssertionError as refused:
            pytest.skip(f"no loop mount here: {refused}")
        self.cuts = []

    def inside(self):
        """How a test outside sees the mounted folder."""
        return self.namespace.path(self.mount)

    def cut(self):
        """The state in which a power cut at this moment leaves the disk."""
        copy = self.folder / f"cut-{len(self.cuts)}.img"
        shutil.copyfile(self.image, copy)
        self.cuts.append(copy)
        return copy

    @contextlib.contextmanager
    def after(self, copy):
        """The folder, inside the namespace, as the next start of the machine finds it."""
        place = copy.with_suffix(".mnt")
        place.mkdir()
        self.namespace.run("mount", "-o", "loop", copy, place)
        try:
            yield place
        finally:
            self.namespace.run("umount", place)
            copy.unlink()

    def close(self):
        self.namespace.run("umount", self.mount)


def rows_of(database, sql):
    """Of a database that nobody has open. Its WAL is replayed."""
    connection = sqlite3.connect(database)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def kill_after(sidecar, seconds):
    """Lets a started sidecar run for so long, then SIGKILL; true if it was still there."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        sidecar.process.wait(seconds)
        return False
    sidecar.kill()
    return True


def sleep_until(condition, timeout=40):
    """For conditions that a kill may make impossible: gives whether it came."""
    start = time.monotonic()
    while time.monotonic() - start < timeout:
        if condition():
            return True
        time.sleep(0.01)
    return False


def evalcar(sidecar, *arguments):
    """A command of the same user, in the same surroundings but for faults."""
    environment = {name: value for name, value in sidecar.environment.items() if name != "LD_PRELOAD"}
    return subprocess.run([sidecar.evalcar, *map(str, arguments)], capture_output=True, text=True, timeout=60, env=environment, check=False)


def mode_of(path):
    return os.stat(path).st_mode & 0o777
