"""The command line as scripts see it: exit codes, JSON, and a clear sentence for every bad input."""

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import time

import checkpoints
import fake_evaluator
import pytest

OWN_TASK = """
task = "receipts"
version = "1"

[data]
set = "me/receipts"
split = "validation"

[columns]
images = ["image"]
target = "answers"

[prompt]
text = "{question}"

[generation]
max_new_tokens = 32

[scorer]
name = "anls"

[[metrics]]
name = "anls"
aggregation = "mean"
higher_is_better = true

[aliases]
likeness = "anls"
"""


@pytest.fixture
def evalcar(bench):
    """evalcar(*arguments) → completed process, with the scripted evaluator and a state directory of its own."""
    environment = dict(os.environ, EVALCAR=str(bench.bin_dir / "evalcar"), FAKE_EVALUATOR=str(bench.script),
                       EVALCAR_EVALUATOR=os.path.join(os.path.dirname(__file__), "fake_evaluator.py"),
                       XDG_STATE_HOME=str(bench.home / "state"))

    def run(*arguments, **changes):
        return subprocess.run([str(bench.bin_dir / "evalcar"), *[a if isinstance(a, bytes) else str(a) for a in arguments]], capture_output=True,
                              text=True, errors="replace", env={**environment, **changes}, timeout=60, cwd=bench.home)

    return run


def test_version_is_told_and_its_time_printed(evalcar):
    times = []
    for _ in range(10):
        start = time.perf_counter()
        assert evalcar("--version").stdout.startswith("evalcar ")
        times.append(time.perf_counter() - start)
    print(f"--version: {1000 * min(times):.1f} ms")


def test_a_run_over_a_directory_that_is_not_there_finds_nothing_and_ends(evalcar, bench):
    done = evalcar("run", "nowhere", "--tasks", "docvqa_val", "--data", ".", "--once")
    assert done.returncode == 3, done.stderr
    assert "nowhere" in done.stderr and "does not exist" in done.stderr
    assert not (bench.home / "nowhere").exists()


@pytest.mark.parametrize("arguments, words", [
    ([], ["subcommand"]),
    (["fly"], ["fly"]),
    (["run"], ["no output directory"]),
    (["run", "out"], ["no tasks"]),
    (["run", "out", "--tasks", "docvqa_vall"], ["docvqa_vall", 'did you mean "docvqa_val"']),
    (["run", "out", "--once", "--tasks", "docvqa_val", "--data", "nowhere"], ["nowhere", "no such folder"]),
    (["run", "out", "--tasks", "docvqa_val", "--device", "gpu"], ["--device", '"cuda:N"', "gpu"]),
    (["run", "out", "--tasks", "docvqa_val", "--set", "watch.settle=1s"], ["watch.settle", "watch.settle_time"]),
    (["run", "out", "--tasks", "docvqa_val", "--set", "watch.settle_time=fast"], ["fast", "duration"]),
    (["run", "out", "--config", "missing.toml"], ["missing.toml"]),
    (["run", "out", "--config", "bad.toml"], ["bad.toml:2"]),
    (["run", "out", "--tasks", "docvqa_val", "--set", "evaluate.num_gpus=2"], ["num_gpus", "cannot do that yet"]),
    (["eval", "nowhere", "--tasks", "docvqa_val"], ["nowhere", "no such folder"]),
    (["eval", "good", "--tasks", "docvqa_val", "--weights", "ema"], ["ema"]),
    (["eval", "good", "--tasks", "docvqa_val", "--weights", "other"], ["--weights"]),
    (["eval", "good"], ["no tasks"]),
    (["inspect", "nowhere"], ["evalcar inspect: nowhere: no such folder; expected a checkpoint"]),
    (["merge", "--input_dir", "nowhere"], ["evalcar merge: --input_dir: nowhere: no such folder; expected a checkpoint", "run folder"]),
    (["results", "--config", "two.toml"], ["several output directories", "--output-dir one\n", "--output-dir other"]),
    (["status", "--config", "two.toml"], ["several output directories", "--output-dir one\n", "--output-dir other"]),
    (["retry", "5", "--config", "two.toml"], ["several output directories", "--output-dir one\n", "--output-dir other"]),
    (["init", "bad.toml"], ["exists already"]),
    (["tasks", "--check", "bad.toml"], ["bad.toml"]),
])
def test_wrong_usage_ends_with_2_and_says_what_is_wrong(bench, evalcar, arguments, words):
    (bench.home / "bad.toml").write_text("[watch]\noutput_dir = \n")
    (bench.home / "two.toml").write_text('[watch]\noutput_dir = ["one", "other"]\n')
    checkpoints.write_hugging_face(bench.home, 5).rename(bench.home / "good")

    done = evalcar(*arguments)

    assert done.returncode == 2, done
    for word in words:
        assert word in done.stderr + done.stdout


def test_eval_prints_the_table_and_saves_it_with_the_results(bench, evalcar):
    folder = checkpoints.write_hugging_face(bench.run, 5)

    done = evalcar("eval", folder, "--tasks", "docvqa_val,textvqa_val", "--output", bench.home / "results")

    assert done.returncode == 0, done.stderr
    assert "docvqa_val" in done.stdout and "anls" in done.stdout and "Stderr" in done.stdout
    saved = sorted(p.name.split("_", 2)[2] for p in (bench.home / "results" / "out__checkpoint-5").iterdir())
    assert saved == ["results.json", "samples_docvqa_val.jsonl", "samples_textvqa_val.jsonl", "table.md"]
    assert sorted(p.name for p in bench.run.iterdir()) == ["checkpoint-5"]  # nothing beside the checkpoint


def test_nothing_is_written_where_a_trainer_would_stumble_over_it(bench, evalcar):
    """The Trainer deletes by the folders' times, and takes whatever begins with "checkpoint" for one of its own."""
    folder = checkpoints.write_hugging_face(bench.run, 5)
    before = folder.stat().st_mtime_ns
    inside = os.path.relpath(folder, bench.home) + "/evalcar_results"
    run = ["run", bench.run, "--once", "--tasks", "docvqa_val", "--set"]
    plot = ["results", "--plot"]
    named = checkpoints.write_hugging_face(bench.home / "checkpoints", 5)  # results of it begin with "checkpoints__"

    for arguments, option in [(["eval", folder, "--tasks", "docvqa_val", "--output", inside], "--output"),
                              (["eval", folder, "--tasks", "docvqa_val", "--output", f"{folder}-eval"], "--output"),
                              (["eval", named, "--tasks", "docvqa_val", "--output", named.parent], "--output"),
                              ([*run, f"publish.dir={folder}/published"], "publish.dir"),
                              ([*run, f"store.path={folder}/evalcar.db"], "store.path"),
                              ([*plot, folder / "plot.svg"], "checkpoint-5"),
                              ([*plot, f"{folder}.svg"], "checkpoint-5.svg")]:
        done = evalcar(*arguments)
        assert done.returncode == 2, done
        assert option in done.stderr and "choose" in done.stderr

    assert folder.stat().st_mtime_ns == before
    assert [p.name for p in [*bench.run.iterdir(), *named.parent.iterdir()]] == ["checkpoint-5"] * 2


def test_a_page_or_plot_never_takes_the_place_of_a_link_or_a_pipe(bench, evalcar):
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar()
    assert sidecar.once() == 0, sidecar.log()
    target, link, loose, pipe = (bench.home / name for name in ("page.html", "link.html", "loose.html", "pipe"))
    target.write_text("before")
    link.symlink_to(target.name)
    loose.symlink_to("later.html")
    os.mkfifo(pipe)

    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
    for place in (link, loose, pipe):
        done = evalcar("results", "--db", sidecar.database, "--html", place)
        assert done.returncode == 0, done
    piped = reader.communicate(timeout=60)[0]

    assert link.is_symlink() and loose.is_symlink() and pipe.is_fifo()
    for page in (piped, target.read_text(), (bench.home / "later.html").read_text()):
        assert page.lower().startswith("<!doctype html") and page.endswith("</html>\n")


def test_what_is_no_database_and_no_directory_is_refused_and_not_waited_for(bench, evalcar):
    pipe = bench.home / "pipe.db"
    os.mkfifo(pipe)
    for command in (["status"], ["results"], ["prune", "--keep", "1"], ["retry", "5"]):
        done = evalcar(*command, "--db", pipe)
        assert done.returncode == 2 and "not a regular file" in done.stderr, done
    done = evalcar("prune", "--db", bench.home / "none.db", "--keep", "99999999999999999999")
    assert done.returncode == 2 and "--keep" in done.stderr, done
    done = evalcar("run", os.fsencode(bench.home) + b"/caf\xe9", "--tasks", "docvqa_val")
    assert done.returncode == 2 and "not UTF-8" in done.stderr, done


def test_a_relative_directory_means_nothing_where_the_folder_of_the_start_is_gone(bench):
    folder = bench.home / "gone"
    folder.mkdir()
    command = 'cd "$1" && rmdir "$1" && exec "$2" run OUT --tasks docvqa_val --once'
    done = subprocess.run(["sh", "-c", command, "sh", folder, bench.evalcar], capture_output=True, text=True, timeout=60, check=False,
                          env=dict(os.environ, XDG_STATE_HOME=str(bench.home / "state")))  # fmt: skip
    assert done.returncode == 2 and "is gone" in done.stderr, done


def test_the_same_directory_named_twice_is_an_error_that_names_both(bench, evalcar):
    (bench.home / "link").symlink_to(bench.run)
    (bench.home / "twice.toml").write_text(f'[watch]\noutput_dir = ["{bench.run}", "{bench.home}/link/"]\n')

    done = evalcar("run", "--config", "twice.toml", "--tasks", "docvqa_val", "--once")

    assert done.returncode == 2, done
    assert str(bench.run) in done.stderr and f"{bench.home}/link" in done.stderr


def test_eval_json_has_the_documented_fields(bench, evalcar):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sha256 = json.loads(evalcar("inspect", folder, "--hash", "--json").stdout)["weights_sha256"]

    done = evalcar("eval", folder, "--tasks", "docvqa_val", "--output", "results", "--json", "--limit", "0.5")

    assert done.returncode == 0, done
    document = json.loads(done.stdout)
    assert document["weights_sha256"] == sha256
    assert document["samples"] == {"docvqa_val": 6}
    assert document["results"]["docvqa_val"]["anls"] == pytest.approx(fake_evaluator.expected_value(sha256, "docvqa_val", 6))
    assert document["results"]["docvqa_val"]["anls_stderr"] == 0.01
    assert document["output"] == "results" and document["seconds"] > 0


def test_eval_of_a_torn_checkpoint_is_not_ready(bench, evalcar):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    done = evalcar("eval", folder, "--tasks", "docvqa_val")
    assert done.returncode == 3 and "model.safetensors" in done.stderr


def test_eval_fails_with_the_evaluators_reason_and_leaves_no_files(bench, evalcar):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(error={"message": "model.norm.weight: NaN at element 3", "kind": "corruption"})
    done = evalcar("eval", folder, "--tasks", "docvqa_val", "--output", "results")
    assert done.returncode == 1 and "NaN at element 3" in done.stderr
    assert list((bench.home / "results").iterdir()) == []


def test_eval_on_a_device_that_does_not_exist_is_a_usage_error(bench, evalcar):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(refuse="device cuda:7: no such GPU")
    done = evalcar("eval", folder, "--tasks", "docvqa_val", "--device", "cuda:7")
    assert done.returncode == 2 and "no such GPU" in done.stderr


def test_a_missing_evaluator_is_told_with_the_places_that_were_tried(bench, evalcar):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    for command in (["run", "out"], ["eval", folder], ["score", "--samples", "samples.jsonl"]):
        task = "--task" if command[0] == "score" else "--tasks"
        done = evalcar(*command, task, "docvqa_val", EVALCAR_EVALUATOR="/no/such/evaluator")
        assert done.returncode == 2 and "/no/such/evaluator" in done.stderr, done


def said_on_a_terminal(command, environment):
    """(exit code, what came) of a command whose standard error is a terminal."""
    ours, theirs = os.openpty()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=theirs, stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # nobody has the other end any more
            while piece := os.read(ours, 65536):
                said += piece
    os.close(ours)
    return process.returncode, said.decode()


@pytest.mark.parametrize("command", ["eval", "run"])
def test_a_terminal_gets_a_bar_in_one_line_and_a_file_gets_plain_lines(bench, evalcar, command):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(delay=0.4)
    sidecar = bench.sidecar()

    def again(line, step):
        checkpoints.write_hugging_face(bench.run, step)
        return [word.replace("checkpoint-5", f"checkpoint-{step}").replace("results", f"results-{step}") for word in line]

    line = [*sidecar.command, "--once"]
    if command == "eval":
        line = [sidecar.evalcar, "eval", str(folder), "--tasks", "docvqa_val", "--output", str(bench.home / "results")]

    returncode, said = said_on_a_terminal(line, {**sidecar.environment, "TERM": "xterm"})

    assert returncode == 0, said
    bars = re.findall(r"\r\x1b\[K[^\r]*evaluating docvqa_val \[#*-*\] +(\d+) % (\d)/6", said)
    counts = [int(count) for _, count in bars]
    assert len(counts) >= 2 and counts == sorted(counts), said
    lines = [line.rsplit("\r\x1b[K", 1)[-1] for line in said.split("\n") if "[32minfo" in line]
    assert len(lines) >= (5 if command == "run" else 0) and all(re.match(r"\d{4}-\d\d-\d\dT", line) for line in lines), said  # never behind a bar
    assert "left" in said and said.rsplit("left", 1)[1].lstrip("0123456789 ").startswith("\r\x1b[K"), said  # it does not stay

    bench.tell()
    returncode, said = said_on_a_terminal(again(line, 10), {**sidecar.environment, "TERM": "dumb"})
    assert returncode == 0 and "\x1b" not in said, said

    plain = subprocess.run(again(line, 15), env=sidecar.environment, capture_output=True, text=True, timeout=120)
    assert plain.returncode == 0, plain.stderr
    assert "\x1b" not in plain.stderr and "\r" not in plain.stderr
    assert any(re.search(r" info (evaluating docvqa_val \d/6|.*: loading$)", each) for each in plain.stderr.splitlines()), plain.stderr


@pytest.mark.parametrize("ignored", [False, True])
def test_eval_stops_when_its_terminal_closes_but_not_under_nohup(bench, evalcar, ignored):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(delay=0.3)
    environment = dict(os.environ, EVALCAR=str(bench.bin_dir / "evalcar"), FAKE_EVALUATOR=str(bench.script),
                       EVALCAR_EVALUATOR=os.path.join(os.path.dirname(__file__), "fake_evaluator.py"))
    command = [str(bench.bin_dir / "evalcar"), "eval", str(folder), "--tasks", "docvqa_val", "--output", str(bench.home / "results")]
    with subprocess.Popen((["nohup"] if ignored else []) + command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, text=True) as process:  # fmt: skip
        deadline = time.monotonic() + 60
        while not bench.heard("generate") and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGHUP)
        _, error = process.communicate(timeout=60)

    assert process.returncode == (0 if ignored else 1), error
    assert ("stopped" in error) != ignored
    assert any((bench.home / "results").rglob("*_results.json")) == ignored


def test_print_config_shows_values_and_sources(bench, evalcar):
    (bench.home / "c.toml").write_text('[evaluate]\ntasks = ["docvqa_val"]\n')
    done = evalcar("run", "out", "--config", "c.toml", "--limit", "5", "--print-config")
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("tasks")][0].endswith("# c.toml:2")
    assert [line for line in done.stdout.splitlines() if line.startswith("limit")][0].split() == ["limit", "=", "5", "#", "--limit"]


def test_init_writes_a_file_that_run_reads(bench, evalcar):
    assert evalcar("init", "evalcar.toml", "--output-dir", bench.run, "--tasks", "docvqa_val").returncode == 0
    done = evalcar("run", "--config", "evalcar.toml", "--once", "--set", "store.path=" + str(bench.home / "x.db"))
    assert done.returncode == 3, done.stderr  # nothing found, but nothing wrong


def test_the_command_of_the_install_page_writes_a_configuration_that_parses(bench, evalcar, source_dir):
    page = (source_dir / "systemd" / "INSTALL.md").read_text()
    command, = [line for line in page.splitlines() if line.startswith("evalcar init")]
    written = bench.home / "etc.toml"
    script = command.replace("sudo ", "").replace("/etc/evalcar/my-run.toml", str(written))
    subprocess.run(["bash", "-ec", script], cwd=bench.home, check=True, capture_output=True,
                   env=dict(os.environ, PATH=f"{bench.bin_dir}:{os.environ['PATH']}"))

    assert "/etc/evalcar/my-run.toml" in command and "[evaluate]" in written.read_text()
    done = evalcar("run", bench.run, "--config", written, "--tasks", "docvqa_val", "--print-config")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in bench.home.iterdir() if path.suffix == ".toml") == ["etc.toml"]


def settings_named_in(page):
    """The settings that a page gives with their values, each as `--set` takes it; not those that stand for one ("PID", "…")."""
    found = re.findall(r"\b((?:watch|evaluate|store|publish|server|limits)\.\w+) ?= ?(?:\"([^\"]*)\"|([^\s`\"]+))", page.replace("\n", " "))
    return [f"{key}={quoted or plain}" for key, quoted, plain in found if not re.fullmatch(r"[A-Z]+|.*….*", quoted or plain)]


def test_every_setting_that_the_pages_give_as_an_example_is_taken(evalcar, source_dir):
    pages = "\n".join((source_dir / name).read_text() for name in ("README.md", "systemd/INSTALL.md"))
    settings = settings_named_in(pages)

    refused = {}
    for setting in dict.fromkeys(settings):
        done = evalcar("run", "out", "--tasks", "docvqa_val,textvqa_val,mmmu_val", "--set", setting, "--print-config")
        if done.returncode != 0:
            refused[setting] = done.stderr

    assert len(settings) >= 20 and refused == {}


def layouts_of_the_readme(source_dir):
    section = (source_dir / "README.md").read_text().split("## Checkpoints that are read")[1].split("\n## ")[0]
    return sorted(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


def test_tasks_models_and_doctor_print_json(evalcar, source_dir):
    tasks = json.loads(evalcar("tasks", "--json").stdout)
    assert {"docvqa_val", "textvqa_val", "mmmu_val", "mme"} <= {task["name"] for task in tasks}
    assert all(task["fetch"].startswith("hf download") for task in tasks)
    models = json.loads(evalcar("models", "--json").stdout)
    assert models["models"][0]["model_type"] == "qwen2_5_vl"
    assert sorted(models["layouts"]) == layouts_of_the_readme(source_dir)
    doctor = evalcar("doctor", "--json", "--tasks", "docvqa_val")
    assert doctor.returncode == 0 and json.loads(doctor.stdout)["ok"]
    bad = evalcar("doctor", "--tasks", "nothing")
    assert bad.returncode == 1 and "PROBLEM" in bad.stdout


EVALUATION = ["--tasks", "--data", "--tasks-dir", "--device", "--dtype", "--batch-size", "--limit", "--offset", "--set"]
DATABASE = ["--db", "--output-dir", "--config"]
FLAGS = {
    "run": ["OUTPUT_DIR", "--config", "--once", "--print-config", *EVALUATION],
    "serve": ["--config", "--host", "--port", "--root", *EVALUATION],
    "eval": ["CHECKPOINT", "--config", "--output", "--weights", "--json", *EVALUATION],
    "merge": ["--input_dir", "--output_dir", "--type", "--step", "--state_dict_dirname", "--weights", "--dtype", "--max-shard-size", "--merge",
              "--model_name_or_class", "--dry-run"],
    "inspect": ["CHECKPOINT", "--weights", "--hash", "--diff", "--json"],
    "results": ["--run", "--task", "--metric", "--weights", "--format", "--json", "--best", "--compare", "--plot", "--html", *DATABASE],
    "status": ["--json", "--prometheus", *DATABASE],
    "retry": ["STEP", *DATABASE],
    "backfill": DATABASE,
    "cancel": ["ID", *DATABASE],
    "pin": ["STEP", "--off", *DATABASE],
    "prune": ["--keep", "--older-than", "--dry-run", *DATABASE],
    "tasks": ["--tasks-dir", "--check", "--json"],
    "models": ["--json"],
    "score": ["--task", "--samples", "--data", "--tasks-dir", "--json"],
    "push": ["--since", "--tensorboard", "--wandb", "--dry-run", *DATABASE],
    "doctor": ["CHECKPOINT", "--config", "--server", "--json", *EVALUATION],
    "init": ["FILE", "--output-dir", "--systemd", "--config", *EVALUATION],
}  # fmt: skip


def described(help_text):
    """{option or positional: what is said of it}, of a --help."""
    found = {}
    for line in help_text.splitlines():
        names = re.match(r"  (\S+(?:,\S+)*)", line)
        if names:
            words = " ".join(line.split()[1:])
            found.update((name, words) for name in names[1].split(","))
            last = names[1].split(",")
        elif line.startswith("   ") and found:
            found.update((name, (found[name] + " " + line.strip()).strip()) for name in last)
    return found


def test_the_help_of_the_program_names_each_command(evalcar):
    done = evalcar("--help")
    assert done.returncode == 0 and done.stderr == ""
    commands = described(done.stdout.split("Subcommands:")[1])
    assert sorted(commands) == sorted(FLAGS)
    assert all(commands.values())


@pytest.mark.parametrize("command", FLAGS)
def test_the_help_of_a_command_ends_with_0_and_says_what_each_of_its_flags_does(evalcar, command):
    done = evalcar(command, "--help")
    assert done.returncode == 0 and done.stderr == ""
    told = described(done.stdout)
    assert [flag for flag in FLAGS[command] if flag not in told] == []
    silent = [flag for flag, words in told.items() if not re.sub(r"^(TEXT|INT|FLOAT|UINT|\W|:|\.\.\.|REQUIRED|Excludes|\s)*", "", words)]
    assert silent == []


def test_retry_gives_a_quarantined_step_another_chance(bench, evalcar):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(error={"message": "made up"})
    sidecar = bench.sidecar()
    assert sidecar.once() == 4
    assert sidecar.once() == 4 and len(bench.heard("load")) == 1  # not by itself
    assert evalcar("retry", 6, "--db", sidecar.database).returncode == 3
    bench.tell()

    assert evalcar("retry", 5, "--db", sidecar.database).returncode == 0
    assert sidecar.once() == 0

    assert sidecar.published() == {(5, "regular")}
    results = json.loads(evalcar("results", "--db", sidecar.database, "--format", "json").stdout)
    assert [(row["step"], row["task"], row["metric"]) for row in results] == [(5, "docvqa_val", "anls")]
    status = json.loads(evalcar("status", "--db", sidecar.database, "--json").stdout)
    assert [e["state"] for e in status["evaluations"]] == ["published"]


def test_the_queries_of_the_readme_run_and_name_the_best_step_of_each_series(bench, source_dir):
    for step in (5, 10, 15):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar()
    assert sidecar.once() == 0
    queries = re.findall(r'^sqlite3 -readonly FILE "(.*?)"$', (source_dir / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = sidecar.metrics_lines()
    best = max(lines, key=lambda line: line["metrics"]["eval/docvqa_val/anls"])

    with contextlib.closing(sqlite3.connect(f"file:{sidecar.database}?mode=ro", uri=True)) as database:
        answers = {query: database.execute(query).fetchall() for query in queries}

    assert len(queries) >= 3
    (series,) = [rows for query, rows in answers.items() if "max(value)" in query]
    assert series == [(best["run"], "docvqa_val", "anls", "regular", best["global_step"], best["metrics"]["eval/docvqa_val/anls"])]


def test_results_know_the_aliases_of_the_users_own_tasks(bench, evalcar):
    """By --tasks-dir, or by the configuration's evaluate.tasks_dir."""
    checkpoints.write_hugging_face(bench.run, 5)
    own = bench.home / "own"
    own.mkdir()
    (own / "receipts.toml").write_text(OWN_TASK)
    sidecar = bench.sidecar("--tasks-dir", own, tasks="receipts")
    sidecar.command = [str(word) for word in sidecar.command]
    assert sidecar.once() == 0, sidecar.log()
    (bench.home / "c.toml").write_text(f'[evaluate]\ntasks_dir = "{own}"\n')
    question = ["results", "--db", sidecar.database, "--metric", "likeness", "--format", "json"]

    for more in (["--tasks-dir", own], ["--config", "c.toml"]):
        done = evalcar(*question, *more)
        assert done.returncode == 0, done
        assert [(row["task"], row["metric"]) for row in json.loads(done.stdout)] == [("receipts", "anls")]
    assert evalcar(*question).returncode == 3  # nobody knows it


def test_commands_without_any_database_say_so(evalcar):
    for command in (["results"], ["status"], ["retry", "5"]):
        done = evalcar(*command)
        assert done.returncode == 3 and done.stderr and not done.stdout, done


def test_json_is_one_document_also_where_there_is_nothing_yet(evalcar, bench):
    done = evalcar("results", "--format", "json")
    assert done.returncode == 3 and json.loads(done.stdout) == [], done
    done = evalcar("status", "--json")
    status = json.loads(done.stdout)
    assert done.returncode == 3 and status["agent"] is None and status["evaluations"] == [], done
    sidecar = bench.sidecar()
    assert sidecar.once() == 3  # makes the database; there is no checkpoint
    done = evalcar("results", "--format", "json", "--db", sidecar.database)
    assert done.returncode == 3 and json.loads(done.stdout) == [], done


@pytest.mark.parametrize("times", [2, pytest.param(5, marks=pytest.mark.full)])
def test_the_doctor_finds_nothing_wrong_with_the_evaluator_that_was_built(bench, evalcar, times):
    for _ in range(times):  # it ends a while after its last word
        done = evalcar("doctor", "--json", EVALCAR_EVALUATOR=str(bench.bin_dir / "evalcar-evaluator"))
        assert done.returncode == 0, done.stdout
    (evaluator,) = [line["text"] for line in json.loads(done.stdout)["checks"] if line["check"] == "evaluator"]
    assert evaluator.startswith("evalcar-evaluator ")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], capture_output=True).returncode:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_full_disk_delays_publication_and_leaves_no_partial_file(bench, small_disk):
    checkpoints.write_hugging_face(bench.run, 5)
    filler = small_disk / "filler"
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    sidecar = bench.sidecar("--set", f"publish.dir={small_disk}").start()
    sidecar.wait_for(lambda s: "No space left" in s.log(), what="the complaint")
    sidecar.wait_for(lambda s: s.states().get((5, "regular"), ("", ""))[0] == "scored", what="the score")
    assert not (small_disk / "metrics.jsonl").exists() or not (small_disk / "metrics.jsonl").read_text().strip()

    filler.unlink()

    sidecar.wait_for(lambda s: (5, "regular") in s.published(), what="the publication")
    assert sidecar.stop() == 0
    lines = (small_disk / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 1 and json.loads(lines[0])["global_step"] == 5


def test_an_output_directory_that_cannot_be_written_is_still_evaluated(bench, tmp_path):
    checkpoints.write_hugging_face(bench.run, 5)
    mounted = subprocess.run(["mount", "--bind", str(bench.run), str(bench.run)], capture_output=True).returncode == 0
    if not mounted:
        pytest.skip("mounting needs root")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(bench.run)], check=True)
        sidecar = bench.sidecar("--set", f"publish.dir={tmp_path / 'results'}")
        assert sidecar.once() == 0
        assert "reading in place" in sidecar.log()
    finally:
        subprocess.run(["umount", "-l", str(bench.run)], check=False)
    assert len((tmp_path / "results" / "metrics.jsonl").read_text().splitlines()) == 1
    assert sorted(os.listdir(bench.run)) == ["checkpoint-5"]
