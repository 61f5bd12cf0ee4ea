"""`./dev bench` runs the comparison; it asserts that the fingerprints are the same, and no time."""

import preparation_bench
import pytest


@pytest.mark.full
def test_prompts_are_prepared(bin_dir, figures_printed_by):
    figures_printed_by(preparation_bench.main, ["--bin-dir", str(bin_dir)])
