"""POST /merge merges: a sharded checkpoint becomes a Hugging Face folder, at the place that the answer names."""

import subprocess

import checkpoints
from harness import hash_of
from http_server import serving


def merged_by_command(bench, folder, kind):
    """The digest of what `evalcar merge` makes of it, in bfloat16 as lmms-engine's own merger; tests/parity proves that."""
    output = bench.home / f"by-command-{kind}"
    subprocess.run([bench.evalcar, "merge", "--input_dir", str(folder), "--output_dir", str(output), "--weights", kind, "--dtype", "bfloat16"],
                   check=True, capture_output=True, timeout=60)  # fmt: skip
    return hash_of(bench.evalcar, output, "regular")


def test_without_a_place_the_merged_folder_is_ours_and_holds_the_same_weights(bench, shards):
    folder = checkpoints.write_fsdp2(bench.run, 5, shards)
    before = sorted(str(path) for path in folder.rglob("*"))
    sidecar, api = serving(bench, "--set", "evaluate.eval_strategy=no", "--set", "publish.link_in_checkpoint=never")

    merged = {}
    for kind in ("regular", "ema"):
        status, answer = api.ask("POST", "/merge", {"checkpoint_path": str(folder), "output_path": None, "checkpoint_type": kind})
        assert (status, answer["success"]) == (200, True), answer
        assert answer["merged_path"] == str(bench.run / "_evalcar" / "merged" / "5" / kind)
        merged[kind] = hash_of(bench.evalcar, answer["merged_path"], "regular")

    assert merged == {kind: merged_by_command(bench, folder, kind) for kind in ("regular", "ema")}
    assert merged["regular"] != merged["ema"]
    assert sorted(str(path) for path in folder.rglob("*")) == before
    assert sorted(path.name for path in bench.run.iterdir()) == ["_evalcar", "checkpoint-5"]
    assert sidecar.stop() == 0


def test_a_place_below_the_roots_is_honoured(bench, shards):
    folder = checkpoints.write_fsdp2(bench.run, 5, shards, ema=False)
    _, api = serving(bench, "--set", "evaluate.eval_strategy=no", "--set", f"server.allowed_roots=['{bench.home}']")

    status, answer = api.ask("POST", "/merge", {"checkpoint_path": str(folder), "output_path": str(bench.home / "merged")})

    assert (status, answer.get("merged_path")) == (200, str(bench.home / "merged")), answer
    assert hash_of(bench.evalcar, bench.home / "merged", "regular") == merged_by_command(bench, folder, "regular")
