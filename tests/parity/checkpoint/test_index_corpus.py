"""Rows of the corpus of broken and malicious files that need a file of their size, or a program that might run what lies beside it."""

import json
import struct
import subprocess

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_checkpoints import run, tool  # noqa: F401  (tool: a fixture)
from test_memory import peak_bytes

INDEX, SHARD = "model.safetensors.index.json", "model-00001-of-00001.safetensors"


@pytest.fixture
def folder(tmp_path):
    """A whole checkpoint of one indexed shard."""
    checkpoint = tmp_path / "checkpoint-5"
    checkpoint.mkdir()
    save_file({"w": torch.arange(4.0)}, checkpoint / SHARD)
    (checkpoint / INDEX).write_text(json.dumps({"weight_map": {"w": SHARD}}))
    (checkpoint / "config.json").write_text(json.dumps({"architectures": ["BaseForTest"]}))
    return checkpoint


@pytest.mark.parametrize("name", [INDEX, "config.json"])
def test_i_index_huge(tool, bin_dir, folder, name):  # noqa: F811
    """200 MB of JSON are refused without being read."""
    text = (folder / name).read_text()
    with open(folder / name, "r+") as file:
        file.truncate(200_000_000)  # NULs on the way that take no place on the disk
        file.seek(200_000_000 - len(text))
        file.write(text)

    peak, message = peak_bytes(bin_dir, folder, 1)
    assert name in message
    assert peak < 64 << 20


@pytest.mark.parametrize("name", [INDEX, "config.json"])
@pytest.mark.parametrize("opening, closing", [("[", "]"), ('{"a":', "}")])
def test_i_index_deep(tool, bin_dir, folder, name, opening, closing):  # noqa: F811
    """JSON 100,000 deep neither exhausts the stack nor is taken for something."""
    known = (folder / name).read_text()[:-1]
    (folder / name).write_text(known + ',"deep":' + opening * 100_000 + "1" + closing * 100_000 + "}")

    peak, message = peak_bytes(bin_dir, folder, 1)
    assert name in message
    assert peak < 64 << 20


@pytest.mark.parametrize("opening, closing", [("[", "]"), ('{"a":', "}")])
def test_a_deep_configuration_of_the_model_that_is_given_is_refused(tool, tmp_path, opening, closing):  # noqa: F811
    """Of --model_name_or_class, or evaluate.base_model: merge writes it again with the dtype."""
    base, folder = tmp_path / "base", tmp_path / "checkpoint-5" / "pytorch_model_fsdp_0"
    base.mkdir()
    (base / "config.json").write_text('{"deep":' + opening * 100_000 + "1" + closing * 100_000 + "}")
    folder.mkdir(parents=True)
    torch.save({"w": torch.ones(3)}, folder / "model_world_size_1_rank_0.pt")

    said = run(tool, "merge", "--input_dir", folder.parent, "--output_dir", tmp_path / "out", "--model_name_or_class", base,
               "--dtype", "bfloat16", code=1).stderr  # fmt: skip

    assert f"{base}/config.json: " in said and "nested deeper than" in said
    assert not (tmp_path / "out").exists()


def test_i_config_automap(tool, folder):  # noqa: F811
    """Code that a configuration names is never run, neither by inspect nor by merge."""
    canary = folder.parent / "canary"
    (folder / "modeling_evil.py").write_text(f"open({str(canary)!r}, 'w').write('ran')\n")
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["EvilForCausalLM"], "model_type": "evil", "trust_remote_code": True,
        "auto_map": {"AutoConfig": "modeling_evil.EvilConfig", "AutoModelForCausalLM": "modeling_evil.EvilForCausalLM"},
    }))  # fmt: skip

    run(tool, "inspect", folder, "--hash", "--json")
    run(tool, "merge", "--input_dir", folder, "--output_dir", folder.parent / "out")

    assert torch.equal(load_file(folder.parent / "out" / "model.safetensors")["w"], torch.arange(4.0))
    assert not canary.exists()


@pytest.mark.parametrize("size, code", [(99_999_999, 0), (100_000_001, 1)])
def test_the_largest_header_that_safetensors_reads(tool, folder, size, code):  # noqa: F811
    """100 MB less one byte are read, as safetensors itself does; more are refused."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    with open(folder / SHARD, "wb") as file:
        file.write(struct.pack("<Q", size) + header + b" " * (size - len(header)))
        file.write(torch.arange(4.0).numpy().tobytes())
    if code == 0:
        assert torch.equal(load_file(folder / SHARD)["w"], torch.arange(4.0))
    else:
        with pytest.raises(Exception, match="(?i)header"):
            load_file(folder / SHARD)

    done = subprocess.run([str(tool), "inspect", str(folder), "--hash", "--json"], capture_output=True, text=True, timeout=60)

    assert done.returncode == code, done.stdout + done.stderr
    if code == 0:
        assert [t["name"] for t in json.loads(done.stdout)["tensors"]] == ["w"]
    else:
        assert SHARD in done.stdout + done.stderr
