"""Prints the tables of merge_bench.py; fails only if the merges differ."""

import merge_bench
import pytest


@pytest.mark.full
def test_merge_bench(bin_dir, figures_printed_by):
    figures_printed_by(merge_bench.report, bin_dir / "evalcar", 2600, 8, 3)
