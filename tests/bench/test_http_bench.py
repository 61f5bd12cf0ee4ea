import pathlib
import sys

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1] / "e2e")]

import http_bench  # noqa: E402
from harness import Bench  # noqa: E402
from test_http_clients import RealServer  # noqa: E402


@pytest.fixture
def bench(bin_dir, tmp_path):
    with Bench(bin_dir, tmp_path) as made:
        yield made


@pytest.mark.full
def test_two_thousand_requests_from_fifty_clients_while_an_evaluation_runs(bench, tmp_path, figures_printed_by):
    real = RealServer(tmp_path)
    try:
        real.wait()
        errors, growth = figures_printed_by(http_bench.measure, bench, real)
    finally:
        real.end()
    assert errors == []
    assert growth <= 10


@pytest.mark.full
def test_the_results_of_one_of_ten_thousand_stored_evaluations(bench, figures_printed_by):
    assert figures_printed_by(http_bench.measure_results, bench) == []
