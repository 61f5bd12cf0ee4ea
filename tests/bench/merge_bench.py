"""How fast shards become a Hugging Face folder: `evalcar merge` against torch.load + cat + save_pretrained, one run.

    build/venv/bin/python tests/bench/merge_bench.py [--tool build/release/…/checkpoint_probe] [--mib 600] [--world-size 4]

Writes shards of a model by real FSDP2 once, then merges them both ways in turn, the caches warm, and prints the least time of each
and the ratio. The two outputs are compared, byte by byte, before any number is printed. Never a timed test.

The reference is what a careful user does: load every rank (torch.load, which copies), concatenate along the sharded
dimension, build the model on meta, assign and save_pretrained. Reading is from the page cache on both sides. Ours
also syncs the files to the disk, which `save_pretrained` does not; what that costs the reference is printed beside.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]
ROOT = pathlib.Path(__file__).resolve().parents[2]


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


def merge_with_torch(folder, output):
    """Run in a fresh process: every rank into memory, concatenated, assigned to a model, saved."""
    import torch
    from torch.distributed.tensor import DTensor, Shard
    from transformers import AutoConfig, AutoModelForCausalLM

    def sync_seconds():
        started = time.perf_counter()
        for file in pathlib.Path(output).iterdir():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        return time.perf_counter() - started

    started = time.perf_counter()
    files = sorted(pathlib.Path(folder, "pytorch_model_fsdp_0").glob("*.pt"), key=lambda p: int(p.stem.rsplit("_", 1)[1]))
    ranks = [torch.load(file, weights_only=False, map_location="cpu") for file in files]
    state = {}
    for name, value in ranks[0].items():
        if not isinstance(value, DTensor):
            state[name] = value
            continue
        [placement] = value.placements
        parts = [rank[name].to_local() for rank in ranks]
        state[name] = torch.cat(parts, dim=placement.dim) if isinstance(placement, Shard) else parts[0]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    model.load_state_dict(state, strict=True, assign=True)
    model.save_pretrained(output)
    print(time.perf_counter() - started, sync_seconds())


def timed_reference(folder, output):
    done = subprocess.run([sys.executable, __file__, "--reference", str(folder), str(output)], check=True, text=True, capture_output=True)
    return [float(word) for word in done.stdout.split()[-2:]]


def timed_ours(tool, folder, output):
    started = time.perf_counter()
    subprocess.run([str(tool), "merge", "--input_dir", str(folder), "--output_dir", str(output), "--max-shard-size", "50GB"],
                   check=True, capture_output=True)
    return time.perf_counter() - started


def assert_equal(first, second):
    import torch
    from safetensors.torch import load_file

    loaded = [{k: v for file in sorted(folder.glob("*.safetensors")) for k, v in load_file(file).items()} for folder in (first, second)]
    assert sorted(loaded[0]) == sorted(loaded[1]), "the two merges name other tensors"
    for name, tensor in loaded[0].items():
        assert tensor.dtype == loaded[1][name].dtype and torch.equal(tensor, loaded[1][name]), name


def measure(tool, mib, world_size, repeats, scratch):
    """(seconds of the reference, of a sync of its output, of ours), the least of each; the outputs are equal."""
    from fixtures import fsdp2_checkpoints

    write_model(scratch / "hub", mib)
    [folder] = fsdp2_checkpoints.write_run(scratch / "run", scratch / "hub", [1], world_size=world_size, noise=0.01)
    shutil.rmtree(scratch / "hub")
    reference, sync, ours = [], [], []
    for turn in range(repeats):
        for output in ("theirs", "ours"):
            shutil.rmtree(scratch / output, ignore_errors=True)
        os.sync()
        seconds, sync_seconds = timed_reference(folder, scratch / "theirs")
        reference.append(seconds)
        sync.append(sync_seconds)
        ours.append(timed_ours(tool, folder, scratch / "ours"))
        if turn == 0:
            assert_equal(scratch / "theirs", scratch / "ours")
    return min(reference), min(sync), min(ours)


def report(tool, mib=600, world_size=4, repeats=3):
    with tempfile.TemporaryDirectory(prefix="merge-bench-", dir=ROOT / "build") as folder:
        scratch = pathlib.Path(folder)
        reference, sync, ours = measure(tool, mib, world_size, repeats, scratch)
    print(f"\nmerge of {mib} MiB from {world_size} ranks (outputs equal):")
    print(f"  torch.load + cat + save_pretrained  {reference:6.2f} s  (and {sync:.2f} s to bring its output to the disk)")
    print(f"  evalcar merge, synced to the disk   {ours:6.2f} s")
    print(f"  ratio {reference / ours:.1f} x; both synced {(reference + sync) / ours:.1f} x")
    return reference / ours


def main():
    if sys.argv[1:2] == ["--reference"]:
        merge_with_torch(sys.argv[2], sys.argv[3])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=pathlib.Path, default=ROOT / "build" / "dev" / "bin" / "checkpoint_probe")
    parser.add_argument("--mib", type=int, default=600)
    parser.add_argument("--world-size", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    report(options.tool, options.mib, options.world_size, options.repeats)


if __name__ == "__main__":
    main()
