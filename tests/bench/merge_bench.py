"""How fast, in how much memory and with how much reading `evalcar merge` works, beside what people merge with today.

    build/venv/bin/python tests/bench/merge_bench.py [--tool build/bin/evalcar] [--mib 2600] [--repeats 5] [--record FILE.md]

A Qwen2.5-VL in float32 lies there as lmms-engine's FSDP2 shards (8 ranks), as accelerate's DCP (8 ranks, too) and as one
safetensors file:
    fsdp2  to bfloat16:  evalcar merge --dtype bfloat16   lmms_engine.merger
    dcp    to bfloat16:  evalcar merge --dtype bfloat16   torch's dcp_to_torch_save, accelerate merge-weights: neither can
                                                          round, so theirs is float32, which somebody has yet to convert
    dcp    as it is:     evalcar merge                    the same two
    hf     as it is:     evalcar merge
    hash   of fsdp2:     evalcar inspect --hash           a plain read of the same files (cat)
each way in turn, in fresh processes, their start included, everybody's output on the disk (fsync) when the clock stops. Beside
the merges a plain copy (`cp --reflink=never`) of as many bytes, read and written together, as each of ours moved. All of it twice:
with the inputs in the page cache, and with them dropped from it, file by file (posix_fadvise), which leaves everybody's programs
and libraries in it; --drop-caches empties all of it instead (root), so that Python's libraries come from the disk too. There "the
disk alone" (disk_alone.py) is what the disk needs for the bytes that ours moves and the page cache does not give. The merges a third
time with everything in memory (a tmpfs), where no disk bounds anybody. The outputs
are compared, tensor by tensor, before any number is printed. Bytes read are those of /proc/<pid>/io (rchar), the program's own
loading included. Never a timed test.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1]), str(HERE.parents[1] / "fixtures")]
import results_file  # noqa: E402

ROOT = HERE.parents[2]
SHARDS = "pytorch_model_fsdp_0"
MEMORY = pathlib.Path("/dev/shm")


@dataclasses.dataclass
class Measured:
    """Of one way, a value for each run."""

    seconds: list = dataclasses.field(default_factory=list)
    cpu: list = dataclasses.field(default_factory=list)
    peak_mib: float = 0.0
    bytes_read: int = 0
    bytes_moved: int = 0  # of weights: input and output

    @property
    def median(self):
        return statistics.median(self.seconds)

    @property
    def rate(self):
        return self.bytes_moved / self.median

    @property
    def spread(self):
        return f"{min(self.seconds):.2f} to {max(self.seconds):.2f}"


@dataclasses.dataclass
class Form:
    """One checkpoint, and the ways to treat it."""

    title: str
    weight_bytes: int
    bytes_moved: int  # by ours and the copy, of weights
    ways: dict  # name → (command that makes a folder or file `output`, the folder of its input)
    same_as: pathlib.Path = None  # a folder with the tensors that a merge has to give
    written_bytes: int = 0  # of weights, by ours
    rounded: bool = False  # ours alone rounds to bfloat16


def write_model(folder, mib):
    """A Qwen2.5-VL of about `mib` MiB in float32, untied, with random weights."""
    from fixtures import small_models

    hidden, intermediate = 1024, 4096
    per_layer = 4 * (2 * hidden * hidden + 2 * hidden * hidden // 4 + 3 * hidden * intermediate)
    small_models.write_model(folder, cache_dir=ROOT / "build" / "fixtures", tied=False, names="native", hidden=hidden,
                             intermediate=intermediate, heads=8, kv_heads=2, mrope_section=(16, 24, 24), max_shard_size="100GB",
                             layers=max(1, (mib << 20) // per_layer))


def weight_files(folder):
    return [p for p in pathlib.Path(folder).rglob("*") if p.suffix in (".pt", ".distcp", ".safetensors", ".bin")]


def bytes_of(folder):
    return sum(p.stat().st_size for p in weight_files(folder))


# A small process of its own: the peak memory of a child counts what its parent held when it forked, and what a child read is
# added to its parent's count when it is waited for.
LAUNCHER = """
import json, os, sys, time
def rchar():
    return int(open("/proc/self/io").read().split()[1])
before, started = rchar(), time.perf_counter()
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
_, status, usage = os.wait4(process, 0)
seconds = time.perf_counter() - started
print(json.dumps([seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, rchar() - before]))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run(command, measured):
    """Runs it; adds its wall time, its processor time, its peak memory and what it read to `measured`."""
    environment = dict(os.environ, HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    done = subprocess.run([sys.executable, "-S", "-c", LAUNCHER, *map(str, command)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    wall, cpu, peak_mib, read = json.loads(done.stdout)
    measured.seconds.append(wall)
    measured.cpu.append(cpu)
    measured.peak_mib = max(measured.peak_mib, peak_mib)
    measured.bytes_read = read


def shell(script, *arguments):
    """A bash script whose output, "$1", is on the disk when it ends; a folder's files all are."""
    return ["/bin/bash", "-c", script + ' && find "$1" -type f -exec sync {} +', "bench", *arguments]


def forms_of(tool, scratch, world_size, python_tools, only=None):
    """name → Form, for the checkpoints in `scratch`, or for the one that is named; writes the files that are copied."""
    hub, fsdp2, dcp = scratch / "hub", scratch / "fsdp2" / "checkpoint-1", scratch / "dcp" / "checkpoint-1"
    python = sys.executable
    size = {folder: bytes_of(folder) for folder in (hub, fsdp2, dcp)}

    def merge(folder, *flags):
        return lambda out: [tool, "merge", "--input_dir", folder, *flags, "--max-shard-size", "100GB", "--output_dir", out], folder

    def copy(size):
        file = scratch / f"copy-{size}" / "file"
        return lambda out: shell(f'mkdir "$1" && cp --reflink=never {file} "$1"/copy', out), file.parent

    def peer(script, folder):
        return lambda out: shell(script, out), folder

    lmms = f'{python} -m lmms_engine.merger --checkpoint_path {fsdp2} --output_path "$1"'
    convert = f'mkdir "$1" && {python} -m torch.distributed.checkpoint.format_utils dcp_to_torch {dcp / SHARDS} "$1"/model.bin'
    accelerate = f'{python} -m accelerate.commands.accelerate_cli merge-weights {dcp / SHARDS} "$1"'
    dcp_tools = {"dcp_to_torch_save": peer(convert, dcp), "accelerate merge-weights": peer(accelerate, dcp)}
    read = " ".join(map(str, sorted(weight_files(fsdp2))))
    moved = size[fsdp2] * 3 // 2
    forms = {
        "fsdp2": Form(f"{world_size} ranks' FSDP2 shards in float32 to bfloat16", size[fsdp2], moved, {
            "evalcar merge": merge(fsdp2, "--dtype", "bfloat16"), "cp": copy(moved // 2), "lmms_engine.merger": peer(lmms, fsdp2)},
                      written_bytes=size[fsdp2] // 2),
        "dcp to bfloat16": Form(f"{world_size} ranks' DCP in float32 to bfloat16 (the other tools: as it is)", size[dcp], size[dcp] * 3 // 2, {
            "evalcar merge": merge(dcp, "--type", "dcp", "--dtype", "bfloat16"), "cp": copy(size[dcp] * 3 // 4), **dcp_tools}, rounded=True,
                                written_bytes=size[dcp] // 2),
        "dcp": Form(f"{world_size} ranks' DCP in float32, as it is", size[dcp], 2 * size[dcp], {
            "evalcar merge": merge(dcp, "--type", "dcp"), "cp": copy(size[dcp]), **dcp_tools}, written_bytes=size[dcp]),
        "hf": Form("one safetensors file in float32, as it is", size[hub], 2 * size[hub], {
            "evalcar merge": merge(hub), "cp": copy(size[hub])}, hub, written_bytes=size[hub]),
        "hash": Form("SHA-256 of every tensor of the FSDP2 shards", size[fsdp2], size[fsdp2], {
            "evalcar inspect --hash": (lambda out: [tool, "inspect", fsdp2, "--hash", "--json"], fsdp2),
            "cat": (lambda out: ["/bin/bash", "-c", f"cat {read} > /dev/null"], fsdp2)}),
    }
    forms = {name: form for name, form in forms.items() if only in (None, name)}
    for form in forms.values():
        if not python_tools:
            form.ways = {way: each for way, each in form.ways.items() if way.split()[0] in ("evalcar", "cp", "cat")}
        if "cp" in form.ways:
            write_copy(form.ways["cp"][1] / "file", form.bytes_moved // 2)
    return forms


def load_merged(folder):
    import small_models
    import torch
    from safetensors.torch import load_file

    if (folder / "model.bin").exists():
        return torch.load(folder / "model.bin", mmap=True, weights_only=False)["model"]
    tensors = {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}
    if any(name.startswith("visual.") for name in tensors):  # save_pretrained writes the hub's names
        return {small_models.native_name(name): tensor for name, tensor in tensors.items()}
    return tensors


def assert_equal(first, second, rounded=False):
    """`rounded`: the second's tensors are those of the first before they were rounded to bfloat16."""
    import torch

    loaded = [load_merged(first), load_merged(second)]
    assert sorted(loaded[0]) == sorted(loaded[1]), "the two merges name other tensors"
    for name, tensor in loaded[0].items():
        other = loaded[1][name].to(torch.bfloat16) if rounded else loaded[1][name]
        assert tensor.dtype == other.dtype and torch.equal(tensor, other), name


def settle(inputs, warm, drop_caches=False):
    """Everything that was written is on the disk, and the inputs are in the page cache, or not."""
    os.sync()
    if drop_caches and not warm:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    for file in (p for p in inputs.rglob("*") if p.is_file()):
        descriptor = os.open(file, os.O_RDONLY)
        if warm:
            while os.read(descriptor, 1 << 24):
                pass
        else:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def write_copy(path, size):
    """A file as large as the copy beside a merge has to be, unless it is there."""
    if path.exists():
        return path
    path.parent.mkdir()
    block = os.urandom(1 << 20)
    with open(path, "wb") as file:
        for _ in range(size >> 20):
            file.write(block)
    return path


def write_checkpoints(scratch, mib, world_size):
    """The same weights in each layout, unless they are there; gives the bytes of the largest tensor."""
    from fixtures import large_dcp, large_fsdp2
    from safetensors import safe_open

    if not (scratch / "dcp" / "checkpoint-1" / SHARDS / ".metadata").exists():
        write_model(scratch / "hub", mib)
        large_fsdp2.write(scratch / "fsdp2" / "checkpoint-1", scratch / "hub", world_size=world_size)
        large_dcp.write(scratch / "dcp" / "checkpoint-1" / SHARDS, scratch / "hub", world_size=world_size)
    with safe_open(scratch / "hub" / "model.safetensors", "pt") as file:
        return max(file.get_tensor(name).nbytes for name in file.keys())


DISK = "the disk alone"
ON_DISK = ("in the page cache", "dropped from the page cache")
IN_MEMORY = "all in memory (tmpfs)"


def disk_alone(form, warm):
    """As a way: what is not in the page cache is read, and what ours writes is written."""
    inputs = form.ways["evalcar merge"][1]
    read = [] if warm else sorted(weight_files(inputs))
    return lambda out: [sys.executable, "-S", ROOT / "tests" / "bench" / "disk_alone.py", out, form.written_bytes, *read], inputs


def measure(form, scratch, warm, repeats, drop_caches=False, memory=False):
    """{way: Measured} of one form; all its outputs are equal. `memory`: no disk is there, and an output goes when it was measured."""
    ways = dict(form.ways)
    if form.written_bytes and not memory:
        ways[DISK] = disk_alone(form, warm)
    rows = {way: Measured(bytes_moved=2 * form.weight_bytes if form.rounded and way not in ("evalcar merge", "cp", DISK) else form.bytes_moved)
            for way in ways}
    if DISK in rows and warm:
        rows[DISK].bytes_moved = form.written_bytes
    for turn in range(repeats):
        for way, (command, inputs) in ways.items():
            output = scratch / way.replace(" ", "-")
            shutil.rmtree(output, ignore_errors=True)
            settle(inputs, warm, drop_caches)
            run(command(output), rows[way])
            if memory:
                shutil.rmtree(output, ignore_errors=True)
                continue
            if turn == 0 and warm and "evalcar merge" in ways and way not in ("evalcar merge", "cp", DISK):
                assert_equal(scratch / "evalcar-merge", output, form.rounded)
            if turn == 0 and form.same_as and way == "evalcar merge":
                assert_equal(form.same_as, output)
    for way in ways:
        shutil.rmtree(scratch / way.replace(" ", "-"), ignore_errors=True)
    return rows


def sha_instructions():
    for line in open("/proc/cpuinfo"):
        if line.startswith("flags"):
            return "sha_ni" in line.split()
    return False


def machine():
    """What the figures hold for, in a line."""
    import importlib.metadata

    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(ROOT)], capture_output=True, text=True).stdout.strip()
    copy = subprocess.run(["cp", "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "accelerate", "transformers", "safetensors"))
    return (f"{os.cpu_count()} cores of {cpu} (SHA instructions: {'yes' if sha_instructions() else 'no'}), {memory:.0f} GiB, Linux "
            f"{platform.release()}, {kind}; {copy}; Python {platform.python_version()}, {packages}")


def table(rows):
    ours = next(iter(rows.values()))
    lines = ["| way | seconds (least to most) | processor seconds | peak MiB | GB/s moved | times ours |", "|---|---|---|---|---|---|"]
    for way, each in rows.items():
        times = "" if each is ours else f"{each.median / ours.median:.1f}"
        lines.append(f"| {way} | {each.median:.2f} ({each.spread}) | {statistics.median(each.cpu):.2f} | {each.peak_mib:.0f} "
                     f"| {each.rate / 1e9:.2f} | {times} |")
    return lines


def verdict(aim, value, holds, unit=""):
    return f"- {'holds' if holds else 'FALLS SHORT'}: {value}{unit} (aim: {aim})"


def verdicts(name, rows, form, largest_bytes):
    """The aims of one table, each with whether it holds."""
    if name == "hash":
        ours, read = rows.values()
        added = 100 * (ours.median / read.median - 1)
        return [verdict("hashing adds at most 10 % where the CPU has SHA instructions; it has " + ("them" if sha_instructions() else "none"),
                        f"hashing takes {added:+.0f} % beside reading alone", added <= 10)]
    ours, copy = rows["evalcar merge"], rows["cp"]
    percent = 100 * ours.rate / copy.rate
    found = [verdict("at least 80 %", f"{percent:.0f} % of the copy's bytes a second", percent >= 80)]
    disk = rows.get(DISK)
    for way, each in rows.items():
        if each is not ours and each is not copy and each is not disk:
            most = f"; whoever needs the disk's own time is {each.median / disk.median:.1f} times as fast" if disk else ""
            found.append(verdict("at least 8 times", f"{each.median / ours.median:.1f} times as fast as {way}{most}", each.median >= 8 * ours.median))
    limit_mib = 256 + largest_bytes / 2**20
    read = ours.bytes_read / form.weight_bytes
    return [*found, verdict(f"at most 256 MiB and the largest tensor, {limit_mib:.0f} MiB", f"{ours.peak_mib:.0f} MiB", ours.peak_mib <= limit_mib),
            verdict("at most 1.02", f"{read:.4f} x the weights read", read <= 1.02)]


def room_in_memory(checkpoint):
    """Whether a checkpoint, its copy's source, a merge of it and a tool that holds all of it fit."""
    available = next(int(line.split()[1]) << 10 for line in open("/proc/meminfo") if line.startswith("MemAvailable"))
    return MEMORY.is_dir() and min(available, shutil.disk_usage(MEMORY).free) > 6 * bytes_of(checkpoint)


def section(name, form, place, rows, largest_bytes):
    return ["", f"## {form.title}, {form.weight_bytes / 1e9:.2f} GB, {place}", "", *table(rows), "", *verdicts(name, rows, form, largest_bytes)]


def report(tool, mib=2600, world_size=8, repeats=3, python_tools=True, drop_caches=False, data=None):
    """Measures, prints, and gives what was printed. `data` is a folder that keeps the checkpoints for the next run."""
    text = []

    def tell(*lines):
        text.extend(lines)
        print("\n".join(lines), flush=True)

    with contextlib.nullcontext(data) if data else tempfile.TemporaryDirectory(prefix="merge-bench-", dir=ROOT / "build") as folder:
        scratch = pathlib.Path(folder)
        largest_bytes = write_checkpoints(scratch, mib, world_size)
        tell(machine(), f"medians of {repeats} rounds, the ways in turn")
        for name, form in forms_of(tool, scratch, world_size, python_tools).items():
            for place in ON_DISK:
                rows = measure(form, scratch, place == ON_DISK[0], repeats, drop_caches)
                tell(*section(name, form, place, rows, largest_bytes))
        for name in ("fsdp2", "dcp to bfloat16", "dcp"):
            with tempfile.TemporaryDirectory(prefix="merge-bench-", dir=MEMORY) as memory:
                checkpoint = pathlib.Path(memory) / name.split()[0]
                if not room_in_memory(scratch / checkpoint.name):
                    tell("", f"{name}, {IN_MEMORY}: skipped, there is too little free memory")
                    continue
                shutil.copytree(scratch / checkpoint.name, checkpoint)
                form = forms_of(tool, pathlib.Path(memory), world_size, python_tools, only=name)[name]
                rows = measure(form, pathlib.Path(memory), True, repeats, memory=True)
                tell(*section(name, form, IN_MEMORY, rows, largest_bytes))
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=pathlib.Path, default=ROOT / "build" / "dev" / "bin" / "evalcar")
    parser.add_argument("--mib", type=int, default=2600)
    parser.add_argument("--world-size", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--without-python", action="store_true", help="only evalcar, cp and cat")
    parser.add_argument("--drop-caches", action="store_true", help="empty the whole page cache, of the programs too (root)")
    parser.add_argument("--data", type=pathlib.Path, help="keep the checkpoints in this folder, and take them from it")
    parser.add_argument("--record", type=pathlib.Path, help="a Markdown file for what is printed; its other sections stay")
    options = parser.parse_args()
    text = report(options.tool, options.mib, options.world_size, options.repeats, not options.without_python, options.drop_caches,
                  options.data and options.data.resolve())
    if options.record:
        command = " ".join(["python tests/bench/merge_bench.py", *sys.argv[1:]])
        results_file.put(options.record, "# Results of merge_bench.py", ["", f"`{command}`", "", *text])


if __name__ == "__main__":
    main()
