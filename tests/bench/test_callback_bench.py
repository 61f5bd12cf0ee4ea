import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import callback_bench  # noqa: E402


@pytest.mark.full
def test_the_callback_costs_a_step_next_to_nothing(tmp_path, figures_printed_by):
    assert figures_printed_by(callback_bench.measure, tmp_path) < 5  # no time that means something: it waited for nothing
