"""`./dev bench` runs the comparison; it asserts only that both sides give the same answers."""

import generate_bench
import pytest


@pytest.mark.full
def test_generation_beside_transformers(bin_dir, capfd):
    with capfd.disabled():
        assert generate_bench.main(["--bin-dir", str(bin_dir)]) == 0
