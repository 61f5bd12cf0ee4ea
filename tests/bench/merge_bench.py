"""How fast, and in how much memory, shards become a Hugging Face folder: `evalcar merge` against what people do in Python.

    build/venv/bin/python tests/bench/merge_bench.py [--tool build/release/bin/evalcar] [--mib 1100] [--dtype bfloat16]

Writes shards of a model by real FSDP2 once, then merges them each way in turn, in fresh processes with the page cache warm,
and prints the median time and the peak memory of each, and the ratios. The Python ways:
    save_pretrained   torch.load of every rank, concatenated, assigned to a model on meta, model.save_pretrained
    … mmap            the same with torch.load(mmap=True): pages are read when they are copied
    save_file, mmap   the leanest: no transformers, no model, safetensors.torch.save_file
Times are of whole processes, their start included, and everybody's output is on the disk (fsync) when the clock stops. A copy
of as many bytes is timed beside them, as what the disk allows. All outputs are compared, byte by byte, before any number is
printed. Never a timed test.
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

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]
ROOT = pathlib.Path(__file__).resolve().parents[2]
WAYS = {"save_pretrained": [], "save_pretrained, mmap": ["--mmap"], "save_file, mmap": ["--mmap", "--lean"]}


@dataclasses.dataclass
class Measured:
    seconds: list = dataclasses.field(default_factory=list)
    cpu: list = dataclasses.field(default_factory=list)
    peak_mib: float = 0.0

    @property
    def median(self):
        return statistics.median(self.seconds)


def write_model(folder, mib):
    """A Qwen2.5 text model of about `mib` MiB in float32, untied, with random weights."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    hidden, layers = 1024, 8
    per_layer = 4 * (2 * hidden * hidden + 2 * hidden * hidden // 4 + 3 * hidden * 4 * hidden)
    vocabulary = max(1024, (mib * 2**20 - layers * per_layer) // (2 * 4 * hidden))
    config = Qwen2Config(hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers, num_attention_heads=8,
                         num_key_value_heads=2, vocab_size=vocabulary, tie_word_embeddings=False)
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder)


def merge_with_torch(folder, output, mmap, lean, dtype):
    """Run in a fresh process: every rank into memory, concatenated, saved, synced."""
    import torch
    from torch.distributed.tensor import DTensor, Shard

    files = sorted(pathlib.Path(folder, "pytorch_model_fsdp_0").glob("*.pt"), key=lambda p: int(p.stem.rsplit("_", 1)[1]))
    ranks = [torch.load(file, weights_only=False, map_location="cpu", mmap=mmap) for file in files]
    state = {}
    for name in list(ranks[0]):
        parts = [rank.pop(name) for rank in ranks]
        if isinstance(parts[0], DTensor):
            [placement] = parts[0].placements
            parts = [part.to_local() for part in parts]
            state[name] = torch.cat(parts, dim=placement.dim) if isinstance(placement, Shard) else parts[0]
        else:
            state[name] = parts[0]
        if dtype and state[name].is_floating_point():
            state[name] = state[name].to(getattr(torch, dtype))
    if lean:
        from safetensors.torch import save_file

        pathlib.Path(output).mkdir()
        save_file(state, pathlib.Path(output, "model.safetensors"), metadata={"format": "pt"})
    else:
        from transformers import AutoConfig, AutoModelForCausalLM

        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
        model.load_state_dict(state, strict=True, assign=True)
        model.save_pretrained(output)
    sync(output)


def sync(folder):
    for file in pathlib.Path(folder).iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


# A small process of its own: the peak memory of a child counts what its parent held when it forked.
LAUNCHER = """
import json, os, sys, time
started = time.perf_counter()
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
_, status, usage = os.wait4(process, 0)
print(json.dumps([time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run(command, measured):
    """Runs it; adds its wall time, its processor time and its peak memory to `measured`."""
    done = subprocess.run([sys.executable, "-S", "-c", LAUNCHER, *map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    wall, cpu, peak_mib = json.loads(done.stdout)
    measured.seconds.append(wall)
    measured.cpu.append(cpu)
    measured.peak_mib = max(measured.peak_mib, peak_mib)


def assert_equal(first, second):
    import torch
    from safetensors.torch import load_file

    loaded = [{k: v for file in sorted(folder.glob("*.safetensors")) for k, v in load_file(file).items()} for folder in (first, second)]
    assert sorted(loaded[0]) == sorted(loaded[1]), "the two merges name other tensors"
    for name, tensor in loaded[0].items():
        assert tensor.dtype == loaded[1][name].dtype and torch.equal(tensor, loaded[1][name]), name


def measure(tool, mib, world_size, repeats, dtype, scratch):
    """{way: Measured}, "evalcar merge" and "copy" among them; the outputs are equal."""
    from fixtures import fsdp2_checkpoints

    write_model(scratch / "hub", mib)
    [folder] = fsdp2_checkpoints.write_run(scratch / "run", scratch / "hub", [1], world_size=world_size, noise=0.01)
    shutil.rmtree(scratch / "hub")
    shutil.rmtree(folder / "optimizer")
    cast = ["--dtype", dtype] if dtype else []
    found = {way: Measured() for way in ("evalcar merge", *WAYS, "copy")}

    def fresh(name):
        shutil.rmtree(scratch / name, ignore_errors=True)
        os.sync()
        return scratch / name

    for turn in range(repeats):
        ours = fresh("ours")
        run([tool, "merge", "--input_dir", str(folder), "--output_dir", str(ours), "--max-shard-size", "50GB", *cast],
            found["evalcar merge"])
        for way, arguments in WAYS.items():
            theirs = fresh("theirs")
            run([sys.executable, __file__, "--reference", str(folder), str(theirs), *arguments, *cast], found[way])
            if turn == 0:
                assert_equal(theirs, ours)
        shutil.rmtree(scratch / "theirs")
        (copy := fresh("copy")).mkdir()
        [file] = ours.glob("*.safetensors")
        script = 'cp --reflink=never "$0" "$1" && sync "$1"'
        run(["/bin/bash", "-c", script, str(file), str(copy / file.name)], found["copy"])
    return found


def report(tool, mib=1100, world_size=4, repeats=5, dtype=None):
    with tempfile.TemporaryDirectory(prefix="merge-bench-", dir=ROOT / "build") as folder:
        found = measure(tool, mib, world_size, repeats, dtype, pathlib.Path(folder))
    ours = found.pop("evalcar merge")
    print(f"\nmerge of {mib} MiB in float32 from {world_size} ranks to {dtype or 'float32'}, synced; medians of {repeats}, in ( ) least "
          "to most,\nprocessor seconds, peak memory; then how many times ours:")
    for way, each in {"evalcar merge": ours, **found}.items():
        cpu = statistics.median(each.cpu)
        line = f"  {way:22} {each.median:6.2f} s ({min(each.seconds):.2f} to {max(each.seconds):.2f})  {cpu:6.2f} s  {each.peak_mib:6.0f} MiB"
        if each is not ours:
            line += f"   {each.median / ours.median:5.1f} x  {cpu / statistics.median(ours.cpu):5.1f} x  {each.peak_mib / ours.peak_mib:5.1f} x"
        print(line)
    return ours, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=pathlib.Path, default=ROOT / "build" / "dev" / "bin" / "evalcar")
    parser.add_argument("--mib", type=int, default=1100)
    parser.add_argument("--world-size", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dtype", choices=["bfloat16", "float16"])
    parser.add_argument("--reference", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--mmap", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--lean", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reference:
        merge_with_torch(*options.reference, options.mmap, options.lean, options.dtype)
        return
    report(options.tool, options.mib, options.world_size, options.repeats, options.dtype)


if __name__ == "__main__":
    main()
