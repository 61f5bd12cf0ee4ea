"""`./dev bench` runs the comparison; it asserts only that both sides give the same answers."""

import generate_bench
import pytest


@pytest.mark.full
@pytest.mark.parametrize("size", generate_bench.SIZES)
def test_generation_beside_transformers(bin_dir, figures_printed_by, size):
    assert figures_printed_by(generate_bench.main, ["--bin-dir", str(bin_dir), "--size", size]) == 0
