import pathlib
import sys

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1] / "e2e")]

import page_bench  # noqa: E402
from harness import Bench  # noqa: E402


@pytest.fixture
def bench(bin_dir, tmp_path):
    with Bench(bin_dir, tmp_path) as made:
        yield made


@pytest.mark.full
def test_the_page_of_a_run_with_ten_thousand_evaluations(bench, figures_printed_by):
    told = figures_printed_by(page_bench.measure, bench)
    assert len(told) == page_bench.BEATS
    assert len({version for version, _ in told}) == 1 and told[0][1] >= page_bench.STORED
