"""What the rows on watching and completeness share: mounts of bindfs, calls that fail, shards and DCP folders in pieces."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import warnings

import checkpoints
import fake_evaluator
import pytest
import tools
from harness import hash_of

POLL = ("--set", "watch.poll_interval=500ms")
QUICK = (*POLL, "--set", "watch.settle_time=1s")


class Bindfs:
    """A FUSE mount of `source` at `mount` that only a namespace sees: the stand-in for NFS. What is written to `source` gives no
    notice at `mount`. freeze() is a server that is gone."""

    def __init__(self, namespace, source, mount, **options):
        tools.need("bindfs", "mountpoint")
        if not os.path.exists("/dev/fuse"):
            pytest.skip("no /dev/fuse here")
        pathlib.Path(mount).mkdir(exist_ok=True)
        words = [f"{name}={value}" for name, value in options.items()]
        self.namespace = namespace
        self.mount = pathlib.Path(mount)
        self.process = subprocess.Popen([*namespace.words, "bindfs", "-f", *(["-o", ",".join(words)] if words else []), str(source),
                                                         str(mount)], stderr=subprocess.PIPE, text=True)  # fmt: skip
        mounted = [*namespace.words, "mountpoint", "-q", str(mount)]
        start = time.monotonic()
        while subprocess.run(mounted, check=False).returncode != 0:
            if self.process.poll() is not None:
                pytest.skip("bindfs cannot mount here: " + self.process.stderr.read().strip())
            assert time.monotonic() - start < 60, "bindfs did not mount"
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.thaw()
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)


def behind(bench, namespace, mount, *arguments):
    """A sidecar that watches `mount`, of which bench.run is the source."""
    sidecar = bench.sidecar(*arguments)
    sidecar.command[2] = str(mount)
    namespace.enter(sidecar)
    return sidecar


FAILING_CALLS = tools.SHIM_HEAD + r"""
#include <dirent.h>
/* $FAILING_CALLS names a file of one line, "who what errno count part": from the time it is there, calls `what` (open, stat,
   list, read, short, slow) of `evalcar who` on paths that hold `part` fail so often; count -1: always. short: reads give one byte
   at a time, every third is interrupted; slow: reads take a second. */
static char who[64];
__attribute__((constructor)) static void start(int argc, char** argv) {
  if (argc > 1) snprintf(who, sizeof who, "%s", argv[1]);
}
static int failing(const char* call, const char* path) {
  static ino_t known;
  static int hits;
  static __thread int inside;
  const char* plan = getenv("FAILING_CALLS");
  if (inside || plan == NULL || path == NULL || strcmp(program_invocation_short_name, "evalcar") != 0) return 0;
  inside = 1;
  int result = 0;
  char mine[64], what[64], part[512];
  int error = 0, count = 0;
  FILE* file = fopen(plan, "r");
  if (file != NULL) {
    struct stat info;
    if (fstat(fileno(file), &info) == 0 && info.st_ino != known) known = info.st_ino, hits = 0;
    if (fscanf(file, "%63s %63s %d %d %511s", mine, what, &error, &count, part) == 5 && strcmp(mine, who) == 0 &&
        strcmp(what, call) == 0 && strstr(path, part) != NULL && (count < 0 || hits < count)) {
      ++hits;
      result = error;
    }
    fclose(file);
  }
  inside = 0;
  return result;
}
int open(const char* path, int flags, ...) {
  static int (*next)(const char*, int, ...);
  va_list list;
  va_start(list, flags);
  mode_t mode = va_arg(list, mode_t);
  va_end(list);
  if (next == NULL) next = real("open");
  if ((errno = failing("open", path)) != 0) return -1;
  return next(path, flags, mode);
}
int stat(const char* path, struct stat* info) {
  static int (*next)(const char*, struct stat*);
  if (next == NULL) next = real("stat");
  if ((errno = failing("stat", path)) != 0) return -1;
  return next(path, info);
}
int lstat(const char* path, struct stat* info) {
  static int (*next)(const char*, struct stat*);
  if (next == NULL) next = real("lstat");
  if ((errno = failing("stat", path)) != 0) return -1;
  return next(path, info);
}
DIR* opendir(const char* path) {
  static DIR* (*next)(const char*);
  if (next == NULL) next = real("opendir");
  if ((errno = failing("list", path)) != 0) return NULL;
  return next(path);
}
ssize_t pread(int fd, void* out, size_t size, off_t offset) {
  static ssize_t (*next)(int, void*, size_t, off_t);
  static int turn;
  char link[64], path[4096];
  if (next == NULL) next = real("pread");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  path[n < 0 ? 0 : n] = '\0';
  if (failing("slow", path)) usleep(1000000);
  if ((errno = failing("read", path)) != 0) return -1;
  if (failing("short", path)) {
    if (++turn % 3 == 0) return errno = EINTR, -1;
    size = size > 1 ? 1 + (size_t)turn % 7 % size : size;
  }
  return next(fd, out, size, offset);
}
"""


class FailingCalls:
    """Calls of evalcar on paths that hold a word fail (FAILING_CALLS): of `run`, the agent, or of another of its commands."""

    def __init__(self, sidecar, preload):
        self.plan = sidecar.home / "failing_calls"
        tools.use_shim(sidecar, preload(FAILING_CALLS), FAILING_CALLS=self.plan)

    def begin(self, who, call, error, part, count=-1):
        new = self.plan.with_suffix(".new")
        new.write_text(f"{who} {call} {error} {count} {part}\n")
        new.rename(self.plan)

    def end(self):
        self.plan.unlink()


def shard(folder, rank, world_size=2, ema=False):
    """The path of one shard of lmms-engine's layout."""
    name = "pytorch_ema_model_fsdp_0" if ema else "pytorch_model_fsdp_0"
    return pathlib.Path(folder) / name / f"model_world_size_{world_size}_rank_{rank}.pt"


def begin_fsdp2(run, step, template, ranks, world_size=2):
    """What rank 0 has written, and those shards of the others."""
    folder = pathlib.Path(run) / f"checkpoint-{step}"
    shard(folder, 0).parent.mkdir(parents=True)
    for rank in ranks:
        put_shard(folder, step, template, rank, world_size)
    for name, content in checkpoints.TOKENIZER.items():
        (folder / name).write_text(content)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl", "architectures": ["X"]}))
    return folder


def put_shard(folder, step, template, rank, world_size=2, ema=False, size=None):
    """Writes one shard (of `size` bytes of it), as torch.save does: under its final name."""
    content = (template / f"{step}-{'ema' if ema else 'regular'}-{rank % 2}.pt").read_bytes()
    shard(folder, rank, world_size, ema).parent.mkdir(parents=True, exist_ok=True)
    shard(folder, rank, world_size, ema).write_bytes(content[:size])


def make_dcp(folder, seed):
    """What torch.distributed.checkpoint writes, in a folder of its own."""
    import torch
    import torch.distributed.checkpoint as dcp

    generator = torch.Generator().manual_seed(seed)
    state = {"model.w": torch.randn(8, 8, generator=generator), "model.b": torch.randn(8, generator=generator)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is one process
        dcp.save(state, checkpoint_id=folder, no_dist=True)


def state_of(sidecar, step, kind="regular"):
    return sidecar.states().get((step, kind), ("", ""))


def wait_published(sidecar, step, kind="regular", timeout=30):
    sidecar.wait_for(lambda s: (step, kind) in s.published(), timeout=timeout, what=f"the result of {step} {kind}")


def wait_reason(sidecar, step, *words, kind="regular", state=None, timeout=30):
    """Waits until the row says all these words; gives its reason."""

    def says(s):
        now, reason = state_of(s, step, kind)
        return all(word in reason for word in words) and (state is None or now == state)

    sidecar.wait_for(says, timeout=timeout, what=f"{words} of {step} {kind}")
    return state_of(sidecar, step, kind)[1]


def status(sidecar):
    done = subprocess.run([sidecar.evalcar, "status", "--db", str(sidecar.database), "--json"], capture_output=True, text=True,
                          timeout=30, check=False, env=sidecar.environment)  # fmt: skip
    return json.loads(done.stdout or "{}")  # nothing while the database is being made


def watching(sidecar):
    """How the running agent says that it watches; {} before it said so."""
    return ((status(sidecar).get("agent") or {}).get("watching")) or {}


def check_values(sidecar, bench, folders):
    """Asserts that each (folder, kind) has one line, which nothing supersedes, of its own weights."""
    lines = sidecar.metrics_lines()
    replaced = {line.get("supersedes") for line in lines}
    for folder, kind in folders:
        step = int(folder.name.split("-")[1])
        of_it = [line for line in lines if (line["global_step"], line["checkpoint_type"]) == (step, kind) and line["seq"] not in replaced]
        assert len(of_it) == 1, of_it
        sha256 = hash_of(bench.evalcar, folder, kind)
        assert of_it[0]["weights_sha256"] == sha256
        key = f"{'eval_ema' if kind == 'ema' else 'eval'}/docvqa_val/anls"
        assert of_it[0]["metrics"][key] == pytest.approx(fake_evaluator.expected_value(sha256, "docvqa_val", 6))


def rmtree_within(namespace, path):
    """The trainer's strict recursive delete, by a process that sees the mount. Fails as the trainer would."""
    namespace.run(sys.executable, "-c", "import shutil, sys; shutil.rmtree(sys.argv[1])", path)

