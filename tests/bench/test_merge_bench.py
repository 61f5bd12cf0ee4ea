"""Prints the table of merge_bench.py; fails only if the merges differ."""

import merge_bench
import pytest


@pytest.mark.full
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_merge_bench(bin_dir, figures_printed_by, dtype):
    figures_printed_by(merge_bench.report, bin_dir / "evalcar", 1100, 4, 3, dtype)
