"""How fast, in how much memory and with how much reading `evalcar merge` works, beside what people merge with today.

    build/venv/bin/python tests/bench/merge_bench.py [--tool build/release/bin/evalcar] [--mib 2600] [--repeats 3]

A Qwen2.5-VL in float32 lies there as lmms-engine's FSDP2 shards (8 ranks) and as the DCP of accelerate, and is merged
    FSDP2 to bfloat16:  evalcar merge --dtype bfloat16   lmms_engine.merger
    DCP, as it is:      evalcar merge --type dcp         torch's dcp_to_torch_save, accelerate merge-weights
each way in turn, in fresh processes, their start included, everybody's output on the disk (fsync) when the clock stops. Beside
them a plain copy (`cp --reflink=never`) of as many bytes, read and written together, as each of ours moved. All of it twice: with
the inputs in the page cache, and with them dropped from it (posix_fadvise, file by file). The outputs are compared, tensor by
tensor, before any number is printed. Bytes read are those of /proc/<pid>/io (rchar), the program's own loading included. Never a
timed test.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]), str(pathlib.Path(__file__).resolve().parents[1] / "fixtures")]
ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARDS = "pytorch_model_fsdp_0"


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


def write_model(folder, mib):
    """A Qwen2.5-VL of about `mib` MiB in float32, untied, with random weights."""
    from fixtures import small_models

    hidden, intermediate = 1024, 4096
    per_layer = 4 * (2 * hidden * hidden + 2 * hidden * hidden // 4 + 3 * hidden * intermediate)
    small_models.write_model(folder, cache_dir=ROOT / "build" / "fixtures", tied=False, names="native", hidden=hidden,
                             intermediate=intermediate, heads=8, kv_heads=2, mrope_section=(16, 24, 24), max_shard_size="100GB",
                             layers=max(1, (mib << 20) // per_layer))


def write_dcp(folder, hub):
    """The same weights as accelerate saves them: {"model": state_dict}, by one rank."""
    from safetensors.torch import load_file
    from torch.distributed import checkpoint as dcp

    dcp.save({"model": load_file(hub / "model.safetensors")}, checkpoint_id=folder / SHARDS, no_dist=True)


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


def ways(tool, fsdp2, dcp, copies):
    """way → (command that makes a folder or file `output`, its input)."""
    python = sys.executable
    lmms = f"{python} -m lmms_engine.merger --checkpoint_path {fsdp2} --output_path"
    convert = f"{python} -m torch.distributed.checkpoint.format_utils dcp_to_torch {dcp / SHARDS}"
    accelerate = f"{python} -m accelerate.commands.accelerate_cli merge-weights {dcp / SHARDS}"
    copy = "mkdir \"$1\" && cp --reflink=never {} \"$1\"/copy"
    return {
        "fsdp2": {
            "evalcar merge": (lambda out: [tool, "merge", "--input_dir", fsdp2, "--dtype", "bfloat16", "--max-shard-size", "100GB",
                                           "--output_dir", out], fsdp2),
            "cp": (lambda out: shell(copy.format(copies["fsdp2"]), out), copies["fsdp2"].parent),
            "lmms_engine.merger": (lambda out: shell(f'{lmms} "$1"', out), fsdp2),
        },
        "dcp": {
            "evalcar merge": (lambda out: [tool, "merge", "--input_dir", dcp, "--type", "dcp", "--max-shard-size", "100GB",
                                           "--output_dir", out], dcp),
            "cp": (lambda out: shell(copy.format(copies["dcp"]), out), copies["dcp"].parent),
            "dcp_to_torch_save": (lambda out: shell(f'mkdir "$1" && {convert} "$1"/model.bin', out), dcp),
            "accelerate merge-weights": (lambda out: shell(f'{accelerate} "$1"', out), dcp),
        },
    }


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


def assert_equal(first, second):
    import torch

    loaded = [load_merged(first), load_merged(second)]
    assert sorted(loaded[0]) == sorted(loaded[1]), "the two merges name other tensors"
    for name, tensor in loaded[0].items():
        assert tensor.dtype == loaded[1][name].dtype and torch.equal(tensor, loaded[1][name]), name


def settle(inputs, warm):
    """Everything that was written is on the disk, and the inputs are in the page cache, or not."""
    os.sync()
    for file in (p for p in inputs.rglob("*") if p.is_file()):
        descriptor = os.open(file, os.O_RDONLY)
        if warm:
            while os.read(descriptor, 1 << 24):
                pass
        else:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def write_copy(path, size):
    """A file as large as the copy beside a merge has to be."""
    path.parent.mkdir()
    block = os.urandom(1 << 20)
    with open(path, "wb") as file:
        for _ in range(size >> 20):
            file.write(block)
    return path


def measure(tool, mib, world_size, repeats, scratch, python_tools=True):
    """{(form, warm): {way: Measured}}; all outputs of one form are equal."""
    from fixtures import large_fsdp2

    hub, fsdp2, dcp = scratch / "hub", scratch / "fsdp2" / "checkpoint-1", scratch / "dcp" / "checkpoint-1"
    write_model(hub, mib)
    large_fsdp2.write(fsdp2, hub, world_size=world_size)
    write_dcp(dcp, hub)
    (hub / "model.safetensors").unlink()
    moved = {"fsdp2": bytes_of(fsdp2) * 3 // 2, "dcp": bytes_of(dcp) * 2}
    copies = {form: write_copy(scratch / f"copy-{form}" / "file", size // 2) for form, size in moved.items()}
    found = {}
    for form, each in ways(tool, fsdp2, dcp, copies).items():
        for way in list(each):
            if not python_tools and way not in ("evalcar merge", "cp"):
                each.pop(way)
        for warm in (True, False):
            rows = found[form, warm] = {way: Measured(bytes_moved=moved[form]) for way in each}
            for turn in range(repeats):
                for way, (command, inputs) in each.items():
                    output = scratch / way.replace(" ", "-")
                    shutil.rmtree(output, ignore_errors=True)
                    settle(inputs, warm)
                    run(command(output), rows[way])
                    if turn == 0 and warm and way not in ("evalcar merge", "cp"):
                        assert_equal(scratch / "evalcar-merge", output)
            for way in each:
                shutil.rmtree(scratch / way.replace(" ", "-"))
    return found, fsdp2


def sha_instructions():
    for line in open("/proc/cpuinfo"):
        if line.startswith("flags"):
            return "sha_ni" in line.split()
    return False


def print_rows(title, rows, weight_bytes):
    ours, copy = rows["evalcar merge"], rows["cp"]
    print(f"\n{title}; seconds (least to most), processor seconds, peak memory, GB read and written a second, times ours:")
    for way, each in rows.items():
        line = (f"  {way:25} {each.median:7.2f} s ({min(each.seconds):.2f} to {max(each.seconds):.2f})  {statistics.median(each.cpu):7.2f} s"
                f"  {each.peak_mib:6.0f} MiB  {each.rate / 1e9:5.2f} GB/s")
        print(line if each is ours else line + f"  {each.median / ours.median:6.1f} x")
    print(f"  evalcar merge moves {100 * ours.rate / copy.rate:.0f} % of the copy's bytes a second (aim: 80 %), read "
          f"{ours.bytes_read / weight_bytes:.4f} x the weights (aim: 1.02), in {ours.peak_mib:.0f} MiB (aim: 256 and the largest tensor)")


def report(tool, mib=2600, world_size=8, repeats=3, python_tools=True):
    """Measures, prints, and gives what was measured."""
    with tempfile.TemporaryDirectory(prefix="merge-bench-", dir=ROOT / "build") as folder:
        found, fsdp2 = measure(tool, mib, world_size, repeats, pathlib.Path(folder), python_tools)
        weights = bytes_of(fsdp2)
        hashed = Measured(bytes_moved=weights)
        settle(fsdp2, True)
        for _ in range(repeats):
            run([tool, "inspect", fsdp2, "--hash", "--json"], hashed)
    for (form, warm), rows in found.items():
        title = {"fsdp2": f"{world_size} ranks' FSDP2 shards in float32 to bfloat16", "dcp": "a DCP in float32, as it is"}[form]
        print_rows(f"{title}, {weights / 1e9:.1f} GB, {'in the page cache' if warm else 'dropped from the page cache'}, medians of {repeats}",
                   rows, weights)
    print(f"\nSHA-256 of every tensor (inspect --hash): {hashed.median:.2f} s, {hashed.rate / 1e9:.2f} GB/s, {statistics.median(hashed.cpu):.2f} "
          f"processor seconds; this CPU has {'' if sha_instructions() else 'no '}SHA instructions")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=pathlib.Path, default=ROOT / "build" / "dev" / "bin" / "evalcar")
    parser.add_argument("--mib", type=int, default=2600)
    parser.add_argument("--world-size", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--without-python", action="store_true", help="only evalcar and cp")
    options = parser.parse_args()
    report(options.tool, options.mib, options.world_size, options.repeats, not options.without_python)


if __name__ == "__main__":
    main()
