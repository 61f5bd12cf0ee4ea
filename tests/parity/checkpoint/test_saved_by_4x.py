"""The folders that small_models.py writes for transformers 4.x are what transformers 4.49 and 4.57 write (saved_by_4x/)."""

import json
import pathlib

import make_saved_by_4x
import pytest
import small_models
from safetensors import safe_open

SAVED = make_saved_by_4x.OUTPUT


@pytest.mark.parametrize("name", sorted(path.name for path in SAVED.iterdir()))
def test_our_small_model_has_the_files_of_that_version(name, tmp_path, cache_dir):
    generation, _, head = name.rpartition("-")
    small_models.write_model(tmp_path, generation=generation, tied=head == "tied", cache_dir=cache_dir, **make_saved_by_4x.CHANGES)

    for path in sorted((SAVED / name).glob("*.json")):
        if path.name != "weights.json":
            ours = json.loads((tmp_path / path.name).read_text())
            ours.pop("_from_model_config", None)
            theirs = json.loads(path.read_text())
            theirs.pop("_from_model_config", None)
            assert ours == theirs, path.name
    weights = {}
    for file in tmp_path.glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            for key in opened.keys():
                weights[key] = [opened.get_slice(key).get_dtype(), opened.get_slice(key).get_shape()]
    assert weights == json.loads((SAVED / name / "weights.json").read_text())


def test_both_versions_and_both_heads_are_there():
    names = {path.name for path in pathlib.Path(SAVED).iterdir()}
    assert names == {f"{g}-{head}" for g in small_models.GENERATIONS if g.startswith("4.") for head in ("tied", "untied")}
