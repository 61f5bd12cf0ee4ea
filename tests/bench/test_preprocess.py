"""`./dev bench` runs the comparison; it prints and asserts nothing."""

import pytest

import preprocess_bench


@pytest.mark.full
def test_pictures_become_model_input(bin_dir):
    preprocess_bench.main(["--bin-dir", str(bin_dir)])
