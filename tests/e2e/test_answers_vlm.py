"""lmms-eval 0.7.3 itself and `evalcar eval` on Qwen2-VL, Qwen3-VL and LLaVA-OneVision: same text for every sample, same metrics
(test_answers.py has Qwen2.5-VL). Qwen3-VL has a chat wrapper of its own there, LLaVA-OneVision goes through `llava_hf`, Qwen2-VL through
`huggingface`."""

import pytest
from fixtures import data_sets, lmms_eval_run, small_llava, small_vlms
from test_answers import TASKS as USUAL_TASKS
from test_answers import numbers, run_eval, without_set_order

TASKS = [*USUAL_TASKS, "mme"]

CASES = [
    pytest.param("qwen3_vl", small_vlms.SmallVlm("qwen3_vl", seed=41), 2, id="qwen3_vl"),
    pytest.param("huggingface", small_vlms.SmallVlm("qwen2_vl", seed=42, generation="hub", names="hub", repetition_penalty=1.05), 2, id="qwen2_vl",
                 marks=pytest.mark.full),
    pytest.param("qwen3_vl", small_vlms.SmallVlm("qwen3_vl", seed=43, generation="4.57", tied=False, repetition_penalty=1.1), 12,
                 id="qwen3_vl-4.57", marks=pytest.mark.full),
    pytest.param("llava_hf", small_llava.SmallLlava(seed=44, repetition_penalty=1.05), 2, id="llava_onevision"),
    pytest.param("llava_hf", small_llava.SmallLlava(seed=45, generation="4", names="hub", tied=True, most=3, repetition_penalty=1.1), 12,
                 id="llava_onevision-4", marks=pytest.mark.full),
]  # fmt: skip
SIZES = ((60, 33), (500, 420))  # a range of sides: each picture is resized by the family's rule
LENGTH = "max_new_tokens=24"  # textvqa_val says nothing, and huggingface's default is 4,096


@pytest.mark.parametrize(("wrapper", "spec", "documents"), CASES)
def test_every_answer_and_every_metric_is_that_of_lmms_eval(bin_dir, cache_dir, tmp_path, wrapper, spec, documents):
    checkpoint = tmp_path / "run" / "checkpoint-7"
    if isinstance(spec, small_llava.SmallLlava):
        small_llava.write_model(checkpoint, spec, cache_dir=cache_dir)
    else:
        small_vlms.write_model(checkpoint, spec, cache_dir=cache_dir, max_pixels=100352)
    data = data_sets.write_all(tmp_path / "data", documents, documents, documents, sizes=SIZES, mme=documents)

    _, samples, results = run_eval(bin_dir, checkpoint, data, tmp_path / "ours", "--set", f"evaluate.gen_kwargs={LENGTH}", tasks=TASKS)
    theirs = lmms_eval_run.run_lmms_eval(checkpoint, data, TASKS, tmp_path / "theirs", model=wrapper, gen_kwargs=LENGTH)

    for task in TASKS:
        assert len(samples[task]) == len(theirs.samples[task]) == documents
        for ours, reference in zip(samples[task], theirs.samples[task]):
            assert without_set_order(ours) == without_set_order(reference), f"{task}: document {ours['doc_id']}"
        expected = numbers(theirs.results["results"][task])
        for key, value in expected.items():
            assert results["results"][task][key] == pytest.approx(value, abs=1e-9), f"{task}: {key}"
    texts = {s["filtered_resps"] for task in TASKS for s in samples[task]}
    assert len(texts) > 3, "the model says the same thing again and again: this run proves nothing"

