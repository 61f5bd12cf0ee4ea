"""What engine_gpu_bench.py asks both sides on a GPU, with tiny models on the CPU: they answer alike there, too."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import engine_gpu_bench  # noqa: E402


@pytest.mark.full
def test_both_sides_of_every_work_answer_alike(bin_dir, tmp_path):
    record = tmp_path / "RESULTS.md"
    assert engine_gpu_bench.main(["--bin-dir", str(bin_dir), "--small", "--repeat", "1", "--record", str(record)]) == 0
    text = record.read_text()
    for work in ("G1", "G2", "G3", "G4", "L1", "L2"):
        assert f"## {work}" in text and any(f"- {work} {word}" in text for word in ("holds", "FALLS SHORT")), text
    assert text.count("answers are equal\n") == 6 and "NOT EQUAL" not in text


@pytest.mark.full
def test_the_engine_beside_transformers_on_a_gpu(bin_dir, figures_printed_by):
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    assert figures_printed_by(engine_gpu_bench.main, ["--bin-dir", str(bin_dir)]) == 0


def test_tokens_count_up_to_the_first_that_differs():
    assert engine_gpu_bench.equal_tokens([[1, 2, 3], [4]], [[1, 2, 9], [4]]) == 0.75
    assert engine_gpu_bench.equal_tokens([[1]], [[2, 3]]) == 0


def test_likelihoods_are_the_same_but_for_float32s_rounding():
    assert engine_gpu_bench.same([[-99.6684, 1, False], [-120.0, 1, False]], [[-99.6687, 1, False], [-120.001, 1, False]])
    assert not engine_gpu_bench.same([[-99.66, 1, False]], [[-99.6687, 1, False]])
    assert not engine_gpu_bench.same([[-1.0, 1, False], [-1.00001, 1, False]], [[-1.00001, 1, False], [-1.0, 1, False]])
    assert not engine_gpu_bench.same([5, 6], [5, 7])


def test_a_page_s_operations_are_those_that_torch_counts(tmp_path, cache_dir):
    import engine_cases as cases
    import small_models
    import torch
    from torch.utils import flop_counter

    model, ids = small_models.write_model(tmp_path, small_models.SmallModel(**engine_gpu_bench.SMALL_PICTURES, window=112, full_attention=(1,)),
                                          cache_dir=cache_dir)  # fmt: skip
    size = (16 * cases.GRID, 12 * cases.GRID)  # whole windows
    prompt = cases.prompt(ids, model.config.text_config.vocab_size, 3, [size], before=20)
    inputs = cases.batch_inputs(ids, [prompt], [[cases.picture(3, *size)]], model.device)
    model.set_attn_implementation("eager")
    with torch.inference_mode(), flop_counter.FlopCounterMode(display=False) as counter:
        model.model(**inputs)
    scene = {"pictures": [{"height": size[1], "width": size[0]}], "requests": [{"tokens": prompt}]}
    assert engine_gpu_bench.operations_of(model, scene, of_causal=1) == pytest.approx(counter.get_total_flops(), rel=0.01)
