"""`./dev bench` measures what drafts save; a small scene runs daily. They assert that drafts change no token, never a time."""

import draft_bench
import pytest


def test_small_models_answer_alike_with_and_without_drafts(bin_dir, capsys):
    arguments = ["--bin-dir", str(bin_dir), "--size", "tiny", "--sequences", "2", "--repeat", "1", "--threads", "1"]

    assert draft_bench.main(arguments) == 0

    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| 2 |")]
    assert [float(row[1]) for row in rows] == list(draft_bench.DRIFTS)
    taken, tried = map(int, rows[0][2].split(" of "))
    assert tried >= taken > 0


@pytest.mark.full
def test_what_drafts_save(bin_dir, figures_printed_by):
    assert figures_printed_by(draft_bench.main, ["--bin-dir", str(bin_dir)]) == 0
