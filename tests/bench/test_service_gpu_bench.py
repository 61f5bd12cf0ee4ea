"""What service_gpu_bench.py does on a GPU, with tiny models on the CPU: every checkpoint is scored, the last one out of what was read ahead or
not, and both sides of C2 answer alike."""

import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import service_gpu_bench  # noqa: E402


@pytest.mark.full
def test_the_service_scores_every_checkpoint_and_both_sides_answer_alike(bin_dir, tmp_path):
    record = tmp_path / "RESULTS.md"
    assert not service_gpu_bench.main(["prepare", str(tmp_path / "prepared"), "--small"])
    assert service_gpu_bench.main(["measure", str(tmp_path / "prepared"), "--bin-dir", str(bin_dir), "--small", "--repeat", "1",
                                   "--record", str(record)]) == 0  # fmt: skip
    text = record.read_text()
    assert len(re.findall(r"^\| (?:not yet started|resident.*?) \| [\d.]+ \| [\d.]+ \| [\d.]+", text, re.MULTILINE)) == 4, text
    assert re.search(r"in float32 (\d+) of \1 answers are equal\n", text) and re.search(r"- C2 (holds|FALLS SHORT)", text), text
    assert "FAILED" not in text


@pytest.mark.full
def test_the_service_beside_transformers_on_a_gpu(bin_dir, tmp_path, figures_printed_by):
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    assert not service_gpu_bench.main(["prepare", str(tmp_path / "prepared")])
    assert figures_printed_by(service_gpu_bench.main, ["measure", str(tmp_path / "prepared"), "--bin-dir", str(bin_dir)]) == 0


def test_checkpoints_of_mixed_shards_are_all_different_and_a_pair_shares_no_file(tmp_path):
    for which in ("a", "b"):
        (tmp_path / which).mkdir()
        for shard in range(4):
            (tmp_path / which / f"model-{shard}.safetensors").write_text(which)
        (tmp_path / which / "config.json").write_text("{}")
    stock = [tmp_path / "a", tmp_path / "b"]
    made = {(number, other): service_gpu_bench.mixed(stock, tmp_path / f"{number}-{other}", number, other)
            for number in range(1, 4) for other in range(2)}  # fmt: skip
    weights = {key: "".join(path.read_text() for path in sorted(folder.glob("*.safetensors"))) for key, folder in made.items()}
    assert len(set(weights.values())) == len(made)
    for number in range(1, 4):
        assert all(a != b for a, b in zip(weights[number, 0], weights[number, 1]))
        inodes = [{path.stat().st_ino for path in made[number, other].iterdir()} for other in range(2)]
        assert not inodes[0] & inodes[1]
