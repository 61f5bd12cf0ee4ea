"""Pictures prepared ahead of the device, beside pictures prepared in line with it; asserts only that they are the same."""

import subprocess

import pytest
from fixtures import pictures


@pytest.mark.full
def test_pictures_ahead_of_the_device(bin_dir, tmp_path, figures):
    page = tmp_path / "page.jpg"
    page.write_bytes(pictures.save(pictures.picture("RGB", (1700, 2200)), "JPEG", quality=90))
    done = subprocess.run([bin_dir / "picture_queue_bench", page], capture_output=True, text=True, timeout=600, check=False)
    figures(done.stdout)
    assert done.returncode == 0, done.stderr
