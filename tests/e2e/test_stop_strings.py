"""compat = "strict": a task's stop strings end answers, and the tokens behind them are not generated. lmms-eval's chat wrappers ignore them."""

import evaluator as evaluator_module
import pytest
from fixtures import data_sets, small_models

NEW_TOKENS = 48


pytestmark = pytest.mark.usefixtures("needs_the_evaluator")


@pytest.fixture(scope="module")
def scene(tmp_path_factory, cache_dir):
    root = tmp_path_factory.mktemp("scene")
    small_models.write_model(root / "model", small_models.SmallModel(seed=3, layers=2), cache_dir=cache_dir)
    data_sets.write_docvqa(root / "data", count=4)
    return root


def answers(scene, bin_dir, *settings):
    """Of each of these settings, in one process: {document: (text, tokens, whether it was cut off)}."""
    heard = []
    with evaluator_module.Evaluator(bin_dir) as evaluator:
        for number, given in enumerate(settings):
            job = str(number)
            evaluator.load(scene / "model", job=job)
            evaluator.evaluate(scene / "data", ["docvqa_val"], job=job, **{"max_new_tokens": NEW_TOKENS, **given})
            evaluator.wait_for("result")
            samples = [m for m in evaluator.heard if m["type"] == "sample" and m["id"] == job]
            heard.append({m["doc_id"]: (m["text"], m["output_tokens"], m.get("cut_off", False)) for m in samples})
    return heard


def test_an_answer_ends_with_its_stop_string_where_that_counts(scene, bin_dir):
    (whole,) = answers(scene, bin_dir, {})
    letters = next(text[i : i + 2] for text, *_ in whole.values() for i in range(6, len(text) - 1) if text[i : i + 2].isalnum() and text[i : i + 2].isascii())
    loose, strict = answers(scene, bin_dir, *[{"gen_kwargs": f"until={letters}", "compat": compat} for compat in ("lmms-eval", "strict")])

    assert loose == whole
    assert {document: text for document, (text, *_) in strict.items()} == {document: text.split(letters)[0] for document, (text, *_) in whole.items()}
    shorter = [document for document in whole if strict[document][1] < whole[document][1]]
    assert shorter
    assert shorter == [document for document in whole if letters in whole[document][0]]

    # Completed by the very last token that it may have.
    document = shorter[0]
    most = strict[document][1]
    (last,) = answers(scene, bin_dir, {"gen_kwargs": f"until={letters}", "compat": "strict", "max_new_tokens": most})
    assert last[document] == strict[document]
    assert not last[document][2] and any(cut_off for _, _, cut_off in whole.values())
