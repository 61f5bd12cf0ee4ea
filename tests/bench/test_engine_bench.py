"""`./dev bench` runs the whole comparison; a small one runs daily. They assert that both sides give the same answers, never a time."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import engine_bench  # noqa: E402
import engine_sides  # noqa: E402
import results_file  # noqa: E402


@pytest.mark.parametrize("works", [["G1", "L1"], pytest.param(["G2", "G4"], marks=pytest.mark.full)])
def test_small_models_answer_as_transformers_does_and_figures_are_printed(bin_dir, tmp_path, capsys, works):
    record = tmp_path / "RESULTS.md"
    arguments = ["--bin-dir", str(bin_dir), "--small", "--repeat", "1", "--work", ",".join(works), "--record", str(record)]

    assert engine_bench.main(arguments) == 0

    text = record.read_text()
    assert all(line in text for line in capsys.readouterr().out.splitlines())
    for work in works:
        cells = [line.split(" | ") for line in text.splitlines() if line.startswith(f"| {work}")]
        assert cells and all(equal == f"{equal.split()[0]} of {equal.split()[0]}" for _, equal, *_ in cells), text
        verdicts = [line for line in text.splitlines() if line.startswith(f"- {work}") and (" holds: " in line or " FALLS SHORT: " in line)]
        assert verdicts, text
    assert "NOT EQUAL" not in text


@pytest.mark.full
def test_the_engine_beside_transformers_and_lmms_eval(bin_dir, figures_printed_by):
    assert figures_printed_by(engine_bench.main, ["--bin-dir", str(bin_dir)]) == 0


def test_another_token_another_best_choice_and_another_likelihood_are_not_the_same():
    assert engine_sides.same([5, 6], [5, 6]) and engine_sides.same([], [])
    assert not engine_sides.same([5, 6], [5, 7])
    assert not engine_sides.same([5, 6], [5])
    scores = [[-7.0, 2, False], [-3.0, 2, True]]
    assert engine_sides.same(scores, [[-7.00005, 2, False], [-3.0, 2, True]])
    assert not engine_sides.same(scores, [[-7.001, 2, False], [-3.0, 2, True]])
    assert not engine_sides.same(scores, [[-7.0, 2, True], [-3.0, 2, True]])
    assert not engine_sides.same([[-3.00001, 1, False], [-3.0, 1, False]], [[-3.0, 1, False], [-3.00001, 1, False]])


def test_a_cell_tells_what_falls_short_and_that_unequal_answers_have_no_time():
    cell = engine_bench.Cell("X", "work", "all", "peer", aim=2, ours=[1.0, 4.0, 2.0], theirs=[3.0, 5.0, 4.0], equal=3, of=3)
    assert cell.row() == "| X | 3 of 3 | 2.000 (1.000 to 4.000) | 4.000 (3.000 to 5.000) | peer | 2.00 |"
    assert cell.verdict() == "- X holds: 2.00 times as fast as peer (aim: 2)"
    cell.aim = 2.5
    assert cell.verdict() == "- X FALLS SHORT: 2.00 times as fast as peer (aim: 2.5)"
    cell.equal = 2
    assert cell.verdict().startswith("- X: NOT EQUAL, 1 of 3 answers differ")


def test_a_section_of_the_record_is_replaced_and_the_others_stay(tmp_path):
    path = tmp_path / "RESULTS.md"
    merging = "# Results of merge_bench.py\n\nfigures\n\n## a table\n"
    path.write_text(merging)
    for text in ("first", "second"):
        results_file.put(path, engine_bench.TITLE, ["", text, "## G1"])
    assert path.read_text() == merging + f"\n{engine_bench.TITLE}\n\nsecond\n## G1\n"
    results_file.put(path, "# Results of merge_bench.py", ["", "new"])
    assert path.read_text() == f"# Results of merge_bench.py\n\nnew\n\n{engine_bench.TITLE}\n\nsecond\n## G1\n"
