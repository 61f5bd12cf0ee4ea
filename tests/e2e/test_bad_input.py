"""Bad input to `evalcar eval`: a sentence that names the file and what was expected, the right exit code, nothing left behind."""

import json
import os
import resource
import shutil
import subprocess
import tomllib

import pytest
from fixtures import data_sets, pictures, small_models

FAILED, USAGE, NOT_READY, PARTLY = 1, 2, 3, 4


@pytest.fixture(scope="module")
def good(tmp_path_factory, cache_dir):
    """A good checkpoint and good data; each test copies what it breaks."""
    root = tmp_path_factory.mktemp("good")
    small_models.write_model(root / "checkpoint-5", small_models.SmallModel(seed=3), cache_dir=cache_dir)
    data_sets.write_docvqa(root / "data", count=2)
    return root


@pytest.fixture
def place(good, tmp_path):
    shutil.copytree(good / "checkpoint-5", tmp_path / "checkpoint-5")
    shutil.copytree(good / "data", tmp_path / "data")
    return tmp_path


def evaluate(bin_dir, place, *arguments, tasks="docvqa_val", device="cpu"):
    command = [bin_dir / "evalcar", "eval", place / "checkpoint-5", "--tasks", tasks, "--data", place / "data",
               "--device", device, "--output", place / "out", "--set", "evaluate.max_new_tokens=2", *arguments]  # fmt: skip
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, check=False)


def expect(done, place, code, *words):
    assert done.returncode == code, done.stdout + done.stderr
    for word in words:
        assert word in done.stderr, f"{word!r} is not in: {done.stderr}"
    left = [str(path) for path in (place / "out").rglob("*") if path.is_file()] if (place / "out").exists() else []
    assert not left, f"files left behind: {left}"


def edit_tensors(folder, change):
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def edit_config(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def test_the_untouched_checkpoint_is_evaluated(bin_dir, place):
    done = evaluate(bin_dir, place)
    assert done.returncode == 0, done.stderr
    assert "anls" in done.stdout


def test_a_torn_weights_file_is_not_ready_and_named(bin_dir, place):
    path = place / "checkpoint-5" / "model.safetensors"
    os.truncate(path, path.stat().st_size - 100)
    expect(evaluate(bin_dir, place), place, NOT_READY, "model.safetensors", "expected")


def test_a_folder_that_is_no_checkpoint_is_refused(bin_dir, place):
    shutil.rmtree(place / "checkpoint-5")
    (place / "checkpoint-5").mkdir()
    (place / "checkpoint-5" / "notes.txt").write_text("hello")
    expect(evaluate(bin_dir, place), place, FAILED, "checkpoint-5")


def test_a_folder_that_does_not_exist_is_a_usage_error(bin_dir, place):
    shutil.rmtree(place / "checkpoint-5")
    done = evaluate(bin_dir, place)
    assert done.returncode in (FAILED, USAGE)
    assert "checkpoint-5" in done.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("model.norm.weight"), ["model.norm.weight", "missing"]),
        (lambda t: t.update(extra=t["model.norm.weight"].clone()), ["extra"]),
        (lambda t: t.update({"model.norm.weight": t["model.norm.weight"][:-1].clone()}), ["model.norm.weight", "shape"]),
        (lambda t: t.update({"model.norm.weight": t["model.norm.weight"].long()}), ["model.norm.weight", "int64"]),
        (lambda t: t["model.norm.weight"].fill_(float("nan")), ["model.norm.weight", "finite"]),
        (lambda t: t["visual.merger.ln_q.weight"].fill_(float("inf")), ["visual.merger.ln_q.weight", "finite"]),
    ],
    ids=["missing", "extra", "shape", "dtype", "nan", "inf"],
)
def test_wrong_weights_give_no_score(bin_dir, place, change, words):
    edit_tensors(place / "checkpoint-5", change)
    expect(evaluate(bin_dir, place), place, FAILED, *words)


def test_an_unknown_architecture_lists_the_known_ones_as_models_does(bin_dir, place):
    """The command's table is a copy: the sidecar does not link the models."""
    def change(config):
        config.update(model_type="gpt_neo", architectures=["GPTNeoForCausalLM"])

    edit_config(place / "checkpoint-5", change)
    listed = json.loads(subprocess.check_output([str(bin_dir / "evalcar"), "models", "--json"]))["models"]
    known = ", ".join(f"{model['model_type']} ({model['architecture']})" for model in listed)
    done = evaluate(bin_dir, place)
    expect(done, place, FAILED, "gpt_neo", f"known are: {known} (unsupported")


@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden_size", 2**31), ("num_hidden_layers", -1), ("num_hidden_layers", 10**9), ("num_attention_heads", 10**9), ("num_attention_heads", 0),
     ("num_key_value_heads", -4), ("intermediate_size", 2**62), ("vocab_size", 2**63), ("hidden_size", 1e300), ("hidden_size", "64")],
)  # fmt: skip
def test_an_absurd_configuration_is_refused_before_memory_is_taken(bin_dir, place, key, value):
    """In the time and memory that the untouched one takes to be read."""
    edit_config(place / "checkpoint-5", lambda config: config["text_config"].update({key: value}))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    expect(evaluate(bin_dir, place), place, FAILED, key)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(before, 1 << 20)  # KiB: libtorch alone is half of it


@pytest.mark.parametrize("name", ["tokenizer.json", "processor_config.json"])
def test_a_missing_file_is_named(bin_dir, place, name):
    (place / "checkpoint-5" / name).unlink()
    done = evaluate(bin_dir, place)
    assert done.returncode in (FAILED, NOT_READY)
    assert name in done.stderr


def test_an_unreadable_picture_fails_its_task_with_its_document(bin_dir, place):
    import pyarrow
    import pyarrow.parquet as parquet

    (path,) = (place / "data").rglob("*.parquet")
    table = parquet.read_table(path)
    rows = table.to_pylist()
    rows[1]["image"]["bytes"] = b"\x89PNG\r\n\x1a\n" + b"broken"
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=table.schema), path)
    expect(evaluate(bin_dir, place), place, FAILED, "docvqa_val", "document 1")


def change_picture(place, row, change):
    import pyarrow
    import pyarrow.parquet as parquet

    (path,) = (place / "data" / "lmms-lab" / "DocVQA").rglob("*.parquet")
    table = parquet.read_table(path)
    rows = table.to_pylist()
    rows[row]["image"]["bytes"] = change(rows[row]["image"]["bytes"])
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=table.schema), path)


def test_a_picture_that_cannot_be_decoded_fails_its_task_and_the_others_stand(bin_dir, place):
    data_sets.write_textvqa(place / "data", count=2)
    alone = evaluate(bin_dir, place, tasks="textvqa_val")
    (alone_score,) = [line for line in alone.stdout.splitlines() if "exact_match" in line]
    shutil.rmtree(place / "out")
    # The header tells the size, so that only the engine finds out.
    change_picture(place, 1, lambda _: pictures.undecodable())

    done = evaluate(bin_dir, place, tasks="docvqa_val,textvqa_val")

    assert done.returncode == PARTLY, done.stdout + done.stderr
    assert "docvqa_val: document 1" in done.stderr, done.stderr
    assert alone_score in done.stdout.splitlines(), done.stdout


def test_a_picture_that_breaks_off_is_read_as_lmms_eval_reads_it_and_told(bin_dir, place):
    """lmms-eval tells Pillow to load truncated pictures; one among thousands must not cost the task its result."""
    change_picture(place, 1, lambda whole: whole[:-200])

    done = evaluate(bin_dir, place)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning: docvqa_val: document 1, picture 1: its file is cut off or broken" in done.stderr
    (path,) = (place / "out").rglob("*_results.json")
    notes = json.loads(path.read_text())["evalcar"]["notes"]["docvqa_val"]
    assert notes["truncated_pictures"] == 1 and notes["asked_as"] == "qwen2_5_vl"


def test_a_wrong_column_lists_those_that_are_there(bin_dir, place):
    import pyarrow.parquet as parquet

    (path,) = (place / "data").rglob("*.parquet")
    table = parquet.read_table(path)
    parquet.write_table(table.rename_columns(["query" if n == "question" else n for n in table.column_names]), path)
    expect(evaluate(bin_dir, place), place, FAILED, "question", "query")


def test_an_empty_data_set_is_an_error(bin_dir, place):
    import pyarrow.parquet as parquet

    (path,) = (place / "data").rglob("*.parquet")
    parquet.write_table(parquet.read_table(path).slice(0, 0), path)
    expect(evaluate(bin_dir, place), place, FAILED, "docvqa_val")


def test_missing_data_prints_the_command_that_fetches_them(bin_dir, place):
    shutil.rmtree(place / "data" / "lmms-lab")
    expect(evaluate(bin_dir, place), place, FAILED, "hf download", "DocVQA")


def test_data_are_looked_for_before_any_weights_are_read(bin_dir, place):
    edit_tensors(place / "checkpoint-5", lambda t: t["model.norm.weight"].fill_(float("nan")))
    shutil.rmtree(place / "data" / "lmms-lab")
    done = evaluate(bin_dir, place)
    expect(done, place, FAILED, "hf download", "DocVQA", "at preparing")
    assert "finite" not in done.stderr, done.stderr


def test_a_wrong_column_is_told_before_any_weights_are_read(bin_dir, place):
    import pyarrow.parquet as parquet

    edit_tensors(place / "checkpoint-5", lambda t: t["model.norm.weight"].fill_(float("nan")))
    (path,) = (place / "data").rglob("*.parquet")
    table = parquet.read_table(path)
    parquet.write_table(table.rename_columns(["query" if n == "question" else n for n in table.column_names]), path)
    done = evaluate(bin_dir, place)
    expect(done, place, FAILED, "question", "query", path.name)
    assert "finite" not in done.stderr, done.stderr


def test_a_fraction_of_documents_that_cannot_be_counted_measures_nothing(bin_dir, place):
    """lmms-eval takes the fraction of the first task (by name, backwards), and that count for all: of other documents there would be a number
    that no later checkpoint has."""
    done = evaluate(bin_dir, place, "--limit", "0.5", tasks="docvqa_val,textvqa_val")
    expect(done, place, FAILED, "fraction of the documents of textvqa_val", "docvqa_val: evaluate.limit")
    strict = evaluate(bin_dir, place, "--limit", "0.5", "--set", "evaluate.compat=strict", tasks="docvqa_val,textvqa_val")
    assert strict.returncode == PARTLY and "textvqa_val will have no result" in strict.stderr, strict.stderr


def test_a_data_folder_that_is_not_there_or_no_folder_is_a_usage_error(bin_dir, place):
    shutil.rmtree(place / "data")
    expect(evaluate(bin_dir, place), place, USAGE, "evaluate.data_dir", "no such folder")
    (place / "data").write_text("a file")
    expect(evaluate(bin_dir, place), place, USAGE, "evaluate.data_dir", "is no folder")


def test_the_evaluator_tells_which_data_are_missing_without_a_model(bin_dir, place):
    command = [str(bin_dir / "evalcar-evaluator"), "check", "--tasks", "docvqa_val,textvqa_val", "--data", str(place / "data")]

    def check():
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, {task["task"]: task for task in json.loads(done.stdout)["tasks"]}

    code, found = check()
    assert code == 1 and found["docvqa_val"]["error"] == "" and "hf download" in found["textvqa_val"]["error"]
    assert found["textvqa_val"]["error_kind"] == "data" and found["textvqa_val"]["circumstances"] == ""
    data_sets.write_textvqa(place / "data", count=2)
    code, whole = check()
    assert code == 0 and whole["docvqa_val"] == found["docvqa_val"] and whole["textvqa_val"]["circumstances"]
    data_sets.write_docvqa(place / "data", count=3)
    assert check()[1]["docvqa_val"]["circumstances"] != found["docvqa_val"]["circumstances"]


def test_an_unknown_task_names_the_nearest(bin_dir, place):
    expect(evaluate(bin_dir, place, tasks="docvqa_vla"), place, USAGE, "docvqa_vla", "docvqa_val")


def test_a_device_that_does_not_exist_is_an_error_and_never_the_cpu(bin_dir, place):
    expect(evaluate(bin_dir, place, device="cuda:7"), place, USAGE, "cuda:7")


def test_how_many_gpus_there_are_can_be_told_for_tests(bin_dir, place, monkeypatch):
    """TEST_GPU_COUNT stands for the machine's own number."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setenv("TEST_GPU_COUNT", "2")
    expect(evaluate(bin_dir, place, device="cuda:7"), place, USAGE, 'device "cuda:7" does not exist: 2 GPUs are visible, numbered from 0',
           'CUDA_VISIBLE_DEVICES is "3,5"')  # fmt: skip
    monkeypatch.setenv("TEST_GPU_COUNT", "0")
    done = evaluate(bin_dir, place, device="cuda:0")
    expect(done, place, USAGE, 'device "cuda:0" does not exist: ')
    assert "are visible" not in done.stderr
    done = evaluate(bin_dir, place, device="auto")
    assert done.returncode == 0 and "evaluating on the CPU, which is slow" in done.stderr


def test_an_unknown_attention_lists_the_known_ones(bin_dir, place):
    done = evaluate(bin_dir, place, "--set", "evaluate.attn_implementation=flash_attention_9")
    expect(done, place, USAGE, "attn_implementation must be one of [None, 'flash_attention_2', 'sdpa', 'eager']", "flash_attention_9")


@pytest.mark.parametrize(("asked", "ran"), [(None, "sdpa"), ("flash_attention_2", "sdpa"), ("sdpa", "sdpa"), ("eager", "eager")])
def test_the_attention_that_really_ran_is_in_the_result_and_another_than_asked_is_told_once(bin_dir, place, asked, ran):
    done = evaluate(bin_dir, place, *(["--set", f"evaluate.attn_implementation={asked}"] if asked else []))
    assert done.returncode == 0, done.stderr
    (file,) = (place / "out").rglob("*_results.json")
    results = json.loads(file.read_text())
    assert results["config"]["resolved_cli_args"]["attn_implementation_used"] == ran
    assert done.stderr.count("sdpa runs in its place") == (1 if asked == "flash_attention_2" else 0), done.stderr


@pytest.mark.parametrize(("stored", "dtype", "loses"), [("float16", "bfloat16", 1), ("float16", "float32", 0), ("bfloat16", "bfloat16", 0)])
def test_bits_that_are_lost_of_float16_weights_are_told(bin_dir, place, stored, dtype, loses):
    import torch
    from safetensors.torch import load_file, save_file

    for file in (place / "checkpoint-5").glob("*.safetensors"):
        save_file({name: tensor.to(getattr(torch, stored)) for name, tensor in load_file(file).items()}, file, metadata={"format": "pt"})
    done = evaluate(bin_dir, place, "--dtype", dtype)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("weights that are stored in float16 are computed in bfloat16") == loses, done.stderr


def test_bad_toml_names_file_and_line(bin_dir, place):
    config = place / "evalcar.toml"
    config.write_text('[evaluate]\ntasks = ["docvqa_val"\n')
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(config.read_text())
    done = subprocess.run(
        [str(bin_dir / "evalcar"), "run", str(place), "--config", str(config), "--once"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == USAGE
    assert "evalcar.toml" in done.stderr


def test_an_output_that_cannot_be_written_is_told(bin_dir, place):
    (place / "out").write_text("a file, not a folder")
    done = evaluate(bin_dir, place)
    assert done.returncode in (FAILED, USAGE)
    assert "out" in done.stderr
