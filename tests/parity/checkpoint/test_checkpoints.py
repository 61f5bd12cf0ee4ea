"""Merging and hashing against the real things: shards by FSDP2, full_tensor(), safetensors and transformers."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess

import pytest
import torch
from fixtures import fsdp2_checkpoints
from safetensors.torch import load_file, save_file

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]


@pytest.fixture(scope="module")
def tool(bin_dir):
    return bin_dir / "evalcar"


def run(tool, *arguments, code=0, **options):
    done = subprocess.run([str(tool), *map(str, arguments)], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == code, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def inspect(tool, folder, *arguments):
    return json.loads(run(tool, "inspect", folder, "--json", *arguments).stdout)


def tensor_bytes(tensor):
    return tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def digest_of(tensors):
    """weights_sha256 as the design defines it."""
    lines = []
    for name, tensor in sorted(tensors.items(), key=lambda item: item[0].encode()):
        dtype = str(tensor.dtype).removeprefix("torch.")
        shape = ",".join(map(str, tensor.shape))
        lines.append(f"{name}\t{dtype}\t{shape}\t{hashlib.sha256(tensor_bytes(tensor)).hexdigest()}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def assert_same(merged, expected):
    assert sorted(merged) == sorted(expected)
    for name, tensor in expected.items():
        assert merged[name].dtype == tensor.dtype, name
        assert merged[name].shape == tensor.shape, name
        assert tensor_bytes(merged[name]) == tensor_bytes(tensor), name


def load_folder(folder):
    tensors = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        tensors.update(load_file(file))
    return tensors


def check_hashes(tool, folder, expected, layout, *arguments):
    """inspect --hash of a complete checkpoint of that layout gives the reference's tensors; returns its report."""
    report = inspect(tool, folder, "--hash", *arguments)
    assert report["complete"] and report["layout"] == layout, report
    assert {t["name"]: t["sha256"] for t in report["tensors"]} == {
        name: hashlib.sha256(tensor_bytes(tensor)).hexdigest() for name, tensor in expected.items()}
    assert report["weights_sha256"] == digest_of(expected)
    return report


def check_merge(tool, folder, expected_file, output, *arguments):
    """inspect --hash and merge of one checkpoint equal the reference's tensors, bit by bit."""
    expected = torch.load(expected_file)
    report = check_hashes(tool, folder, expected, "lmms_engine_fsdp2")
    run(tool, "merge", "--input_dir", folder, "--output_dir", output, *arguments)
    assert_same(load_folder(output), expected)
    assert inspect(tool, output, "--hash")["weights_sha256"] == report["weights_sha256"]


def one_dimensional_tensors():
    tensors = [{"name": f"rows_{n}", "shape": [n, 5], "dtype": "float32", "placements": ["S0"]} for n in (1, 2, 3, 5, 33)]
    tensors += [{"name": f"columns_{n}", "shape": [7, n], "dtype": "float32", "placements": ["S1"]} for n in (1, 3, 10)]
    tensors += [{"name": f"third_{n}", "shape": [2, 3, n], "dtype": "bfloat16", "placements": ["S2"]} for n in (4, 5)]
    # gloo, which full_tensor() needs, cannot gather the other two
    tensors += [{"name": f"dtype_{d}", "shape": [9], "dtype": d, "placements": ["S0"]} for d in DTYPES if d not in ("int16", "bool")]
    tensors += [{"name": f"plain_{d}", "shape": [2, 3], "dtype": d, "placements": None}
                for d in [*DTYPES, "complex64", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"]]
    tensors += [
        {"name": "equal_norm", "shape": [64], "dtype": "bfloat16", "placements": ["S0"], "fill": "equal"},
        {"name": "equal_matrix", "shape": [8, 8], "dtype": "float32", "placements": ["S1"], "fill": "equal"},
        {"name": "replicated", "shape": [4, 3], "dtype": "float32", "placements": ["R"]},
        {"name": "empty", "shape": [0, 4], "dtype": "float32", "placements": ["S0"]},
        {"name": "empty_plain", "shape": [0], "dtype": "int64", "placements": None},
        {"name": "scalar", "shape": [], "dtype": "int64", "placements": None},
        {"name": "scalar_replicated", "shape": [], "dtype": "float32", "placements": ["R"]},
        {"name": "transposed", "shape": [5, 3], "dtype": "float32", "placements": None, "view": "transposed"},
        {"name": "offset", "shape": [3, 2], "dtype": "float32", "placements": None, "view": "offset"},
        {"name": "parameter", "shape": [3, 2], "dtype": "float32", "placements": None, "view": "parameter"},
        {"name": "tied", "same_as": "rows_33"},
        {"name": "odd name ü \"quoted\"", "shape": [3], "dtype": "int8", "placements": ["S0"]},
    ]
    return tensors


@pytest.mark.parametrize("world_size", [2, 3, *(pytest.param(size, marks=pytest.mark.full) for size in (1, 4, 8))])
def test_shards_of_a_one_dimensional_mesh_merge_bit_equal(tool, tmp_path, world_size):
    folder = tmp_path / "checkpoint-5"
    expected = fsdp2_checkpoints.write_tensors(folder, world_size=world_size, mesh=[world_size], tensors=one_dimensional_tensors())

    check_merge(tool, folder, expected, tmp_path / "out")

    report = inspect(tool, folder)
    assert report["world_size"] == world_size and report["step"] == 5
    ties = {t["name"]: t["tied_to"] for t in report["tensors"] if "tied_to" in t}
    assert ties == {"tied": "rows_33"}


TWO_DIMENSIONAL = [["R", "S0"], ["S0", "R"], ["S0", "S0"], ["S1", "S0"], ["S0", "S1"], ["R", "R"], ["S1", "S1"]]


@pytest.mark.parametrize("mesh", [[2, 2], pytest.param([4, 2], marks=pytest.mark.full), pytest.param([2, 4], marks=pytest.mark.full),
                                  pytest.param([3, 2], marks=pytest.mark.full)])
def test_shards_of_a_two_dimensional_mesh_merge_bit_equal(tool, tmp_path, mesh):
    tensors = [{"name": f"{''.join(p)}_{rows}_{columns}", "shape": [rows, columns], "dtype": "float32", "placements": p}
               for p in TWO_DIMENSIONAL for rows, columns in ((33, 5), (5, 7), (3, 1), (8, 8))]
    tensors += [{"name": f"equal_{''.join(p)}", "shape": [8, 6], "dtype": "bfloat16", "placements": p, "fill": "equal"}
                for p in TWO_DIMENSIONAL]
    folder = tmp_path / "checkpoint-5"

    # With tensor parallelism under FSDP2 the placements are _StridedShard.
    expected = fsdp2_checkpoints.write_tensors(folder, world_size=mesh[0] * mesh[1], mesh=mesh, tensors=tensors, tensor_parallel=True)

    check_merge(tool, folder, expected, tmp_path / "out")


@pytest.mark.parametrize("kind", ["regular", "ema"])
def test_a_qwen_model_under_fsdp2_merges_bit_equal_and_transformers_loads_it(tool, small_model, tmp_path, kind):
    from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration

    folder = small_model / "run" / "checkpoint-10"
    expected = torch.load(small_model / "expected" / f"10-{kind}.pt")

    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out", "--weights", kind, "--max-shard-size", "200KB")

    assert_same(load_folder(tmp_path / "out"), expected)
    assert json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())["metadata"]["total_size"] == sum(
        t.numel() * t.element_size() for t in expected.values())
    model, info = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    assert_same({name: tensor for name, tensor in model.state_dict().items()}, expected)
    AutoProcessor.from_pretrained(tmp_path / "out")


def test_regular_and_ema_differ_and_a_run_folder_means_its_newest_checkpoint(tool, small_model, tmp_path):
    run_folder = tmp_path / "run"
    shutil.copytree(small_model / "run", run_folder)
    regular = inspect(tool, run_folder / "checkpoint-10", "--hash")
    ema = inspect(tool, run_folder / "checkpoint-10", "--hash", "--weights", "ema")
    assert regular["weights_sha256"] != ema["weights_sha256"]
    before = sorted(os.listdir(run_folder / "checkpoint-10"))

    run(tool, "merge", "--input_dir", run_folder)
    run(tool, "merge", "--input_dir", run_folder, "--step", "3", "--weights", "ema")
    run(tool, "merge", "--input_dir", run_folder)  # our own folder is replaced

    merged = run_folder / "_evalcar" / "merged"
    assert inspect(tool, merged / "10" / "regular", "--hash")["weights_sha256"] == regular["weights_sha256"]
    assert_same(load_folder(merged / "3" / "ema"), torch.load(small_model / "expected" / "3-ema.pt"))
    assert sorted(os.listdir(run_folder / "checkpoint-10")) == before
    assert sorted(os.listdir(merged / "10")) == ["regular"]


def test_a_tied_model_under_hsdp_in_bfloat16_loads_in_transformers(tool, tmp_path, cache_dir):
    from fixtures import small_models
    from transformers import Qwen2_5_VLForConditionalGeneration

    small_models.write_model(tmp_path / "hub", cache_dir=cache_dir, tied=True, dtype="bfloat16")
    [folder] = fsdp2_checkpoints.write_run(tmp_path / "run", tmp_path / "hub", [7], world_size=4, hsdp_shard_size=2,
                                           dtype="bfloat16", expected_dir=tmp_path / "expected")
    check_merge(tool, folder, tmp_path / "expected" / "7-regular.pt", tmp_path / "out")
    ties = [t for t in inspect(tool, folder)["tensors"] if "tied_to" in t]
    assert len(ties) == 1

    model, info = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path / "out", output_loading_info=True)

    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert model.lm_head.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()
    assert model.dtype == torch.bfloat16


def floats_that_round():
    """Values at and around every rounding decision: ties, subnormals, overflow, infinities, both zeros."""
    bits = torch.randint(-(2**31), 2**31, (20000,), generator=torch.Generator().manual_seed(1)).to(torch.int32)
    special = torch.tensor([0x7F7FFFFF, 0x7F7F8000, 0x7F7F7FFF, 0x00007FFF, 0x00008000, 0x00018000, 0x3F808000, 0x3F818000,
                            0x3F808001, 0x7F800000, 0x00000001, 0x00800000, 0x477FEFFF, 0x477FF000, 0x33000000, 0x33000001,
                            0x33800000, 0x387FC000, 0x387FE000, 0, 0x7F000000], dtype=torch.int64).to(torch.int32)
    values = torch.cat([bits, special, special | torch.tensor(-(2**31)).to(torch.int32)]).view(torch.float32)
    return values[~values.isnan()]


def test_every_16_bit_float_is_cast_as_torch_does(tool, tmp_path):
    every = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    source = {"f16": every.view(torch.float16).clone(), "bf16": every.view(torch.bfloat16).clone()}
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    save_file(source, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text("{}")

    for name in ("float32", "float16", "bfloat16"):
        run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / name, "--dtype", name)
        merged = load_folder(tmp_path / name)
        for key, values in source.items():
            wanted = values.to(getattr(torch, name))
            assert merged[key].isnan().equal(wanted.isnan()), (key, name)
            numbers = ~wanted.isnan()  # torch itself gives a NaN other bits, depending on its place in the tensor
            assert tensor_bytes(merged[key][numbers]) == tensor_bytes(wanted[numbers]), (key, name)


def test_casts_round_as_torch_does_and_leave_integers_alone(tool, tmp_path):
    values = floats_that_round()
    doubles = torch.cat([values.double(), values.double() * (1 + 2**-26), values.double() * 2.0**-200])
    source = {"f32": values, "f64": doubles, "f16": values.half(), "bf16": values.bfloat16(),
              "count": torch.arange(5), "mask": torch.tensor([True, False]), "nan": torch.full((3,), float("nan"))}
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    save_file(source, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text('{"dtype": "float32", "text_config": {"dtype": "float32", "torch_dtype": "float32"}}')

    for name in ("bfloat16", "float32", "float16"):
        run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / name, "--dtype", name)
        merged = load_folder(tmp_path / name)
        assert merged.pop("nan").isnan().all()
        wanted = {k: v.to(getattr(torch, name)) if v.is_floating_point() else v for k, v in source.items() if k != "nan"}
        assert_same(merged, wanted)
        config = json.loads((tmp_path / name / "config.json").read_text())
        assert config == {"dtype": name, "text_config": {"dtype": name, "torch_dtype": name}}


def test_averaging_is_the_mean_of_the_checkpoints(tool, small_model, tmp_path):
    run_folder = small_model / "run"
    both = [torch.load(small_model / "expected" / f"{step}-regular.pt") for step in (3, 10)]

    run(tool, "merge", "--input_dir", run_folder, "--merge", "--output_dir", tmp_path / "a")
    listed = f"{run_folder / 'checkpoint-3'},{run_folder / 'checkpoint-10'}"
    run(tool, "merge", "--input_dir", listed, "--merge", "--output_dir", tmp_path / "b")

    wanted = {name: ((both[0][name].double() + both[1][name].double()) / 2).float() for name in both[0]}
    assert_same(load_folder(tmp_path / "a"), wanted)
    assert_same(load_folder(tmp_path / "b"), wanted)

    run(tool, "merge", "--input_dir", run_folder, "--merge", "--merge-weights", "1,3", "--output_dir", tmp_path / "c")
    run(tool, "merge", "--input_dir", run_folder, "--merge", "--merge-weights", "1", "--output_dir", tmp_path / "d", code=2)
    run(tool, "merge", "--input_dir", run_folder, "--merge-weights", "1,3", "--output_dir", tmp_path / "d", code=2)
    wanted = {name: ((both[0][name].double() + 3 * both[1][name].double()) / 4).float() for name in both[0]}
    assert_same(load_folder(tmp_path / "c"), wanted)


def test_what_save_pretrained_writes_is_hashed_and_merged_as_it_is(tool, tmp_path, cache_dir):
    from fixtures import small_models

    folder = tmp_path / "checkpoint-9"
    small_models.write_model(folder, cache_dir=cache_dir, max_shard_size="150KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    tensors = load_folder(folder)

    report = inspect(tool, folder, "--hash")
    assert report["layout"] == "hugging_face" and report["step"] == 9
    assert report["weights_sha256"] == digest_of(tensors)
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "one")
    assert_same(load_folder(tmp_path / "one"), tensors)
    assert (tmp_path / "one" / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()

    # The same input gives the same bytes.
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "two")
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == (tmp_path / "two" / "model.safetensors").read_bytes()


def test_diff_names_the_tensors_that_differ_and_by_how_much(tool, small_model):
    first, second = small_model / "run" / "checkpoint-3", small_model / "run" / "checkpoint-10"
    same = json.loads(run(tool, "inspect", first, "--diff", first, "--json").stdout)
    other = json.loads(run(tool, "inspect", first, "--diff", second, "--json", code=1).stdout)["diff"]

    assert same["diff"]["equal"] and not same["diff"]["different"]
    here, there = (torch.load(small_model / "expected" / f"{step}-regular.pt") for step in (3, 10))
    assert [entry["name"] for entry in other["different"]] == sorted(n for n in here if not torch.equal(here[n], there[n]))
    for entry in other["different"]:
        a, b = here[entry["name"]].double(), there[entry["name"]].double()
        assert entry["what"] == "values" and entry["elements_changed"] == int((a != b).sum())
        assert entry["max_abs"] == (a - b).abs().max().item()
        assert entry["relative_l2"] == pytest.approx(((a - b).norm() / b.norm()).item(), rel=1e-9)


def test_diff_with_what_cannot_be_read_says_so_in_the_document(tool, tmp_path):
    (tmp_path / "checkpoint-1").mkdir()
    save_file({"w": torch.ones(3)}, tmp_path / "checkpoint-1" / "model.safetensors")
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-2" / "model.safetensors").write_bytes(b"no tensors at all")

    done = run(tool, "inspect", tmp_path / "checkpoint-1", "--diff", tmp_path / "checkpoint-2", "--json", code=1)

    document = json.loads(done.stdout)
    assert document["complete"] is True and document["diff"]["equal"] is None
    assert "checkpoint-2" in document["diff"]["other"] and "model.safetensors" in document["diff"]["error"]
    assert document["diff"]["error"] in done.stderr


def test_diff_tells_added_and_removed_tensors_and_other_forms(tool, tmp_path):
    base = {"same": torch.ones(3), "shape": torch.ones(4), "dtype": torch.full((2,), 1.5), "gone": torch.ones(1)}
    other = {"same": torch.ones(3), "shape": torch.ones(2, 2), "dtype": torch.full((2,), 1.5).half(), "new": torch.ones(1)}
    for name, tensors in (("checkpoint-1", base), ("checkpoint-2", other)):
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors")

    # Neither has a configuration: weights are compared all the same.
    done = run(tool, "inspect", tmp_path / "checkpoint-1", "--diff", tmp_path / "checkpoint-2", "--json", code=1)

    diff = json.loads(done.stdout)["diff"]
    assert diff["only_here"] == ["gone"] and diff["only_there"] == ["new"]
    found = {entry["name"]: entry for entry in diff["different"]}
    assert sorted(found) == ["dtype", "shape"]
    assert found["dtype"]["what"] == "dtype" and found["dtype"]["elements_changed"] == 0 and found["dtype"]["max_abs"] == 0
    assert found["shape"]["what"] == "shape" and found["shape"]["max_abs"] is None
    assert found["shape"]["here"]["shape"] == [4] and found["shape"]["there"]["shape"] == [2, 2]


def test_exit_codes_say_what_kind_of_no_it_is(tool, small_model, tmp_path):
    checkpoint = tmp_path / "checkpoint-10"
    shutil.copytree(small_model / "run" / "checkpoint-10", checkpoint)
    shard = checkpoint / "pytorch_model_fsdp_0" / "model_world_size_2_rank_1.pt"
    whole = shard.read_bytes()

    run(tool, "merge", "--input_dir", checkpoint, "--dry-run", "--output_dir", tmp_path / "dry")
    assert not (tmp_path / "dry").exists()
    for place in (checkpoint / "merged", tmp_path / "checkpoint-10-merged", tmp_path / "checkpoint-best" / "x", tmp_path):
        run(tool, "merge", "--input_dir", checkpoint, "--output_dir", place, code=2)
    run(tool, "merge", "--input_dir", tmp_path / "nowhere", code=2)
    run(tool, "inspect", tmp_path / "nowhere", code=2)
    run(tool, "merge", "--input_dir", checkpoint, "--type", "hf", code=2)
    run(tool, "merge", "--input_dir", checkpoint, "--type", "dcp", code=2)

    shard.write_bytes(whole[:-100])  # as while it is written
    run(tool, "inspect", checkpoint, code=3)
    run(tool, "merge", "--input_dir", tmp_path, code=3)
    shard.write_bytes(whole.replace(b"DTensorSpec", b"DTensorSpee"))  # not what torch wrote
    assert "CRC" in run(tool, "merge", "--input_dir", checkpoint, code=1).stderr
    shard.unlink()
    document = json.loads(run(tool, "inspect", checkpoint, "--json", code=3).stdout)
    assert not document["complete"] and "rank_1" in document["reason"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint-10"]
