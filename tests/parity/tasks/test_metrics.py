"""The scorers give what lmms-eval's own functions and CPython give, on thousands of odd strings."""

import ast
import math
import random
import statistics
import sys
import unicodedata

import numpy as np
import pytest

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from probes import ask  # noqa: E402
from strings import ATOMS, answers  # noqa: E402

COUNT = 2000


@pytest.fixture
def probe(build_dir):
    return lambda requests: ask(build_dir, "metrics_probe", requests)


def same(a, b):
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def known_points():
    """Code points that Unicode 14, of which the tables are, knows: a newer Python knows more letters."""
    return [c for c in range(sys.maxunicode + 1) if not 0xD800 <= c <= 0xDFFF]


def test_case_mapping_of_every_code_point_is_pythons(probe):
    if unicodedata.unidata_version != "14.0.0":
        pytest.skip(f"the tables are of Unicode 14.0.0, this Python has {unicodedata.unidata_version}")
    points = known_points()
    blocks = ["".join(map(chr, points[i : i + 4096])) for i in range(0, len(points), 4096)]
    separated = ["\u0001".join(block) for block in blocks]  # each character by itself
    for op in ("lower", "upper"):
        got = probe([{"op": op, "text": t} for t in separated])
        assert got == [getattr(t, op)() for t in separated]
    firsts = [chr(c) + "Σ" + chr(c) for c in points if chr(c) != chr(c).lower() or chr(c) != chr(c).upper() or c < 0x3000]
    assert probe([{"op": "capitalize", "text": t} for t in firsts]) == [t.capitalize() for t in firsts]
    stripped = [chr(c) + "x" + chr(c) for c in points if c < 0x3100 or c > 0xFE00]
    assert probe([{"op": "strip", "text": t} for t in stripped]) == [t.strip() for t in stripped]
    shown = [chr(c) for c in points if c < 0x3100 or 0xD000 < c < 0x11000 or 0xE0000 <= c < 0xE0200]
    assert probe([{"op": "repr", "text": t} for t in shown]) == [repr(t) for t in shown]


def test_text_functions_are_pythons(probe):
    texts = answers(COUNT, 1) + ATOMS
    for op, reference in [
        ("lower", str.lower), ("upper", str.upper), ("capitalize", str.capitalize), ("strip", str.strip), ("repr", repr),
        ("split", lambda t: " ".join(t.split())),
    ]:  # fmt: skip
        assert probe([{"op": op, "text": t} for t in texts]) == [reference(t) for t in texts], op


def test_numbers_are_read_rounded_and_written_as_python_does(probe):
    rng = random.Random(3)
    texts = answers(COUNT, 2) + ATOMS + ["1__0", "_1", "1_", "1e1_0", "0x10", "1.", ".", "+.5", "- 5", "١٢٫٥", "+inf", "infinit"]

    def reference(text):
        try:
            return repr(float(text))
        except ValueError:
            return None

    assert probe([{"op": "float", "text": t} for t in texts]) == [reference(t) for t in texts]
    values = [rng.uniform(-1, 1) * 10 ** rng.randint(-20, 20) for _ in range(COUNT)]
    values += [0.0, -0.0, 1e16, 1e15, 9999999999999998.0, 1e-4, 1e-5, 123456.5, 5e-324, 1.7976931348623157e308, 0.1, 100.0, 1e22]
    assert probe([{"op": "float_repr", "value": v} for v in values]) == [repr(v) for v in values]
    for digits in (2, 5):
        values = [rng.randint(0, 10000) / rng.randint(1, 3000) for _ in range(COUNT)] + [0.125, 0.375, 2.675, 1.005, 0.5, 1e300]
        assert probe([{"op": "round", "value": v, "digits": digits} for v in values]) == [round(v, digits) for v in values]


def test_random_choice_is_pythons(probe):
    for seed in (0, 1, 2, 1234, 2**31, 2**32, 2**40 + 5, -7):
        sizes = [random.Random(seed + 1).randint(1, 9) for _ in range(1500)] + [1000, 2**31, 2**32, 2**33 + 1, 2**40]
        random.seed(seed)
        wanted = [random.choice(range(size)) for size in sizes]
        assert probe([{"op": "choices", "seed": seed, "sizes": sizes}])[0] == wanted
    random.seed(5)
    assert probe([{"op": "randoms", "seed": 5, "count": 1000}])[0] == [random.random() for _ in range(1000)]


def test_random_sample_is_pythons(probe):
    """Both of its ways: a pool for what is short beside the number drawn, a set for the rest."""
    rng = random.Random(9)
    draws = [(size, rng.randint(0, min(size, 60))) for size in [*range(1, 30), *(rng.randint(1, 3000) for _ in range(400))]]
    draws += [(21, 5), (22, 5), (85, 21), (86, 21), (277, 22), (278, 22), (277, 85), (278, 86), (2**33, 3)]
    for seed in (0, 1234, 2**40):
        generator = random.Random(seed)
        wanted = [generator.sample(range(size), count) for size, count in draws]
        assert probe([{"op": "samples", "seed": seed, "draws": draws}])[0] == wanted


def test_reasoning_tags_are_stripped_as_lmms_eval_does(probe):
    from lmms_eval.api.reasoning import strip_reasoning_tags

    pairs = [["<think>", "</think>"], ["<analysis>", "</analysis>"]]
    rng = random.Random(4)
    parts = ["<think>", "</think>", "<analysis>", "</analysis>", "x", " ", "\n", "answer", "<THINK>", "\u3000"]
    texts = ["".join(rng.choice(parts) for _ in range(rng.randint(0, 9))) for _ in range(COUNT)]
    assert probe([{"op": "reasoning", "text": t} for t in texts]) == [strip_reasoning_tags(t, pairs) for t in texts]


def test_anls_equals_lmms_evals(probe):
    from lmms_eval.api.metrics import anls

    rng = random.Random(5)
    texts = answers(COUNT, 6)
    cases = []
    for text in texts:
        references = rng.sample(texts, rng.randint(1, 3))
        if rng.random() < 0.5:  # near misses
            changed = list(text)
            for _ in range(rng.randint(0, 3)):
                changed.insert(rng.randint(0, len(changed)), rng.choice("aß İxΣ"))
            references.append("".join(changed))
        cases.append((references, text.strip()))
    cases += [(["Hello World"], "hello  world"), (["12/05/1999"], "12/05/99"), (["a", "abcd"], "abcx"), (["ab"], "abcd"),
              (["ITC Limited", "itc"], "ITC Ltd"), (["straße"], "strasse"), (["yes"], "no"), ([""], "")]  # fmt: skip
    got = probe([{"op": "anls", "references": r, "prediction": p} for r, p in cases])
    wanted = [anls(r, [p])["anls"] for r, p in cases]
    assert len({round(w, 3) for w in wanted}) > 20, "the cases must spread over the scale"
    assert got == wanted
    assert [round(g, 6) for g in got[-8:]] == [1, 0.8, 0.75, 0.5, 0.636364, 0.714286, 0, 1]


def test_vqa_normalisation_and_accuracy_equal_lmms_evals(probe):
    from lmms_eval.tasks._task_utils.vqa_eval_metric import EvalAIAnswerProcessor
    from lmms_eval.tasks.textvqa.utils import textvqa_process_results

    process = EvalAIAnswerProcessor()
    rng = random.Random(7)
    texts = answers(COUNT, 8) + ATOMS + list(EvalAIAnswerProcessor.CONTRACTIONS) + list(EvalAIAnswerProcessor.NUMBER_MAP) + ["." * 40]
    assert probe([{"op": "vqa_normalise", "text": t} for t in texts]) == [process(t) for t in texts]
    vectors = {"3.5": "3.5", "1,000": "1000", "a.b": "ab", "U.S.A.": "usa", "the cat's hat": "cat 's hat", "dont": "don't",
               "Two": "2", "$5.00": "$5.00", "5.": "5", "-5": "5", "10-20": "10 20", "a/b": "b", "it's": "it 's", "Im": "im",
               "A": "", "7,up 3,4": "7up 34"}  # fmt: skip
    assert probe([{"op": "vqa_normalise", "text": t} for t in vectors]) == list(vectors.values())
    cases = []
    for text in texts[:COUNT]:
        pool = [text, text.upper(), text + "?", rng.choice(texts), rng.choice(texts)]
        cases.append((text.strip(), [rng.choice(pool) for _ in range(rng.choice([10, 10, 10, 1, 3, 7]))]))
    got = probe([{"op": "vqa", "answers": a, "prediction": p} for p, a in cases])
    wanted = [textvqa_process_results({"answers": list(a), "question_id": 1}, [p])["exact_match"] for p, a in cases]
    assert len(set(wanted)) > 10
    assert got == wanted


@pytest.mark.parametrize("case", [False, True])
@pytest.mark.parametrize("punctuation", [False, True])
def test_exact_match_equals_lmms_evals(probe, case, punctuation):
    from lmms_eval.api.metrics import exact_match_hf_evaluate

    texts = answers(COUNT, 9)
    rng = random.Random(10)
    options = {"ignore_case": case, "ignore_punctuation": punctuation}
    cases = [(t.strip(), rng.choice([t, t.upper(), t.lower(), t + ".", rng.choice(texts)])) for t in texts]
    got = probe([{"op": "exact_match", "references": [r], "prediction": p, **options} for p, r in cases])
    wanted = [float(exact_match_hf_evaluate(predictions=[p], references=[r], **options)["exact_match"]) for p, r in cases]
    assert 0.05 < sum(wanted) / len(wanted) < 0.95
    assert got == wanted


def test_option_lists_are_read_as_python_reads_them(probe):
    rng = random.Random(11)
    texts = answers(COUNT, 12)
    literals = [repr([rng.choice(texts) for _ in range(rng.randint(0, 5))]) for _ in range(COUNT)]
    literals += ["['a' 'b', r'\\n', \"it's\"]", "[\n'x',\n]", "('a', 'b')", "['''t\nu''']", "['\\x41\\u00e9\\101\\q']"]
    assert probe([{"op": "list", "text": t} for t in literals]) == [list(ast.literal_eval(t)) for t in literals]
    for bad in ("", "[", "['a'", "['a", "'a'", "['a'] x", "[a]", "['\\x4']", "['\\N{DASH}']", "[['a']]"):
        assert "error" in probe([{"op": "list", "text": bad}])[0], bad


def test_mmmu_letters_equal_lmms_evals(probe):
    from lmms_eval.tasks._task_utils import mmmu_mcq_utils

    rng = random.Random(13)
    texts = answers(2 * COUNT, 14)
    cases = []
    for text in texts:
        options = rng.choice([["$6", "$7", "red cat", "blue dog"], ["Red Cat", "straße", "3"], rng.sample(ATOMS, 4), ["<image 1>", "<image 2>"]])
        cases.append((text.strip(), options))
    for vector in ("(A) or (B)", "A. $6", "I think it is the red cat in the picture here", "A is not B", "So C, not (D)", "B\nbecause"):
        cases.append((vector, ["$6", "$7", "red cat", "blue dog"]))
    got = probe([{"op": "multiple_choice", "response": r, "options": o} for r, o in cases])
    drawn = []
    original = mmmu_mcq_utils.random.choice
    mmmu_mcq_utils.random.choice = lambda letters: drawn.append(1) or None
    try:
        wanted = []
        for response, options in cases:
            index2ans, letters = mmmu_mcq_utils.get_multi_choice_info(options)
            letter = mmmu_mcq_utils.parse_mmmu_multi_choice_response(response, letters, index2ans)
            wanted.append(None if letter is None else letters.index(letter))
    finally:
        mmmu_mcq_utils.random.choice = original
    assert 0.1 < len(drawn) / len(cases) < 0.9
    assert got == wanted
    assert got[-6:] == [1, 0, 2, 1, 3, None]


def test_mmmu_open_answers_equal_lmms_evals(probe):
    from lmms_eval.tasks.mmmu.utils import eval_open, parse_open_response

    rng = random.Random(15)
    texts = answers(2 * COUNT, 16)
    cases = [(t.strip(), rng.choice(ATOMS + ["5", "3.14", "1000", "x"])) for t in texts]
    cases += [(t, "42") for t in ("42", "The answer is 3,000.", "x = 3.14159", "about 5 to 6", "-2e3", "B", "1,234.5")]
    got = probe([{"op": "open", "response": r, "gold": [g]} for r, g in cases])
    correct = 0
    for (response, gold), ours in zip(cases, got):
        theirs = parse_open_response(response)
        decoded = [float(c["float"]) if isinstance(c, dict) else c for c in ours["candidates"]]
        assert len(decoded) == len(theirs) and all(any(same(a, b) and type(a) is type(b) for b in theirs) for a in decoded), (response, decoded, theirs)
        assert ours["correct"] == eval_open(gold, theirs), (response, gold)
        correct += ours["correct"]
    assert correct > 100
    assert got[-1]["candidates"][0:1] == [{"float": "1234.5"}]


def test_subjects_of_ids_equal_lmms_evals(probe):
    from lmms_eval.tasks.mmmu.utils import extract_subset_name

    ids = ["validation_Art_1", "validation_Art_Theory_12", "test_Math_0", "dev_A_B_C_3", "validation_Art_1_2", "validation_é_9", "v__1", "x",
           "validation_Art_", "validation_Art", "validation_Art_1\n", "validation_1", "validation_٣_٤", "_Art_1"]  # fmt: skip

    def reference(text):
        try:
            return extract_subset_name(text)
        except ValueError:
            return None

    assert probe([{"op": "subject", "id": i} for i in ids]) == [reference(i) for i in ids]


def test_means_and_standard_errors_equal_lmms_evals(probe):
    from lmms_eval.api.metrics import clustered_stderr, mean, mean_stderr

    rng = random.Random(17)
    for n in (1, 2, 3, 7, 8, 9, 100, 128, 129, 900, 1000, 1025, 5349):
        kind = rng.choice(["binary", "vqa", "uniform"])
        values = [{"binary": rng.randint(0, 1) * 1.0, "vqa": min(1.0, rng.randint(0, 5) / 3), "uniform": rng.random()}[kind] for _ in range(n)]
        clusters = [f"c{rng.randint(0, n // 3)}" for _ in range(n)]
        got = probe([{"op": "statistics", "values": values, "clusters": clusters}])[0]
        assert abs(got["mean"] - mean(values)) < 1e-12
        if n <= 1024:
            assert got["exact_mean"] == statistics.mean(values)
        if n == 1:
            assert got["stderr"] is None and got["clt"] is None
            continue
        assert abs(got["stderr"] - mean_stderr(values)) < 1e-12
        assert abs(got["clt"] - np.std(values, ddof=1) / np.sqrt(n)) < 1e-15
        if len(set(clusters)) > 1:
            assert abs(got["clustered"] - clustered_stderr(values, clusters)) < 1e-12


def test_the_bootstrap_agrees_with_theory_and_repeats(probe):
    rng = random.Random(18)
    values = [float(rng.random() < 0.4) for _ in range(300)]
    request = {"op": "bootstrap", "values": values, "draws": 100000, "seed": 0}
    got, again, other = probe([request, request, {**request, "seed": 1}])
    theory = float(np.std(values) / math.sqrt(len(values)))  # of the resampled mean, exactly
    assert got == again and got != other
    # The standard error of a standard deviation from 100,000 draws is sd / sqrt(200,000): five of those.
    assert abs(got - theory) < 5 * theory / math.sqrt(200000)
    assert abs(other - theory) < 5 * theory / math.sqrt(200000)
