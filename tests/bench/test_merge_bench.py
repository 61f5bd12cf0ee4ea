"""Prints the ratio of merge_bench.py; fails only if the two merges differ."""

import merge_bench
import pytest


@pytest.mark.full
def test_merge_bench(bin_dir, capsys):
    tool = next(bin_dir / name for name in ("checkpoint_probe", "evalcar") if (bin_dir / name).exists())
    with capsys.disabled():
        merge_bench.report(tool)
