"""`./dev bench` runs the comparison; it prints and asserts nothing."""

import preprocess_bench
import pytest


@pytest.mark.full
def test_pictures_become_model_input(bin_dir, figures_printed_by):
    figures_printed_by(preprocess_bench.main, ["--bin-dir", str(bin_dir)])
