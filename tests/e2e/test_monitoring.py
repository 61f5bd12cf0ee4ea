"""What Prometheus and Grafana are given: text that Prometheus' own parser takes, and names that are really there."""

import json
import pathlib
import re
import subprocess
import urllib.request

import checkpoints
import pytest
import yaml
from http_server import serving

MONITORING = pathlib.Path(__file__).resolve().parents[2] / "systemd" / "monitoring"


@pytest.fixture
def text(bench):
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar()
    assert sidecar.once() == 0, sidecar.log()
    done = subprocess.run([bench.evalcar, "status", "--prometheus", "--db", str(sidecar.database)], capture_output=True, text=True,
                          timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_prometheus_own_parser_takes_every_family(text, bench):
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")

    families = {family.name: family for family in parser.text_string_to_metric_families(text)}

    for name, family in families.items():
        assert family.documentation, name
        assert family.type in ("gauge", "counter", "summary"), name
        assert re.fullmatch(r"evalcar_[a-z_]+", name)
    assert families["evalcar_attempts"].type == "counter"  # its sample is evalcar_attempts_total
    published = [s.value for s in families["evalcar_evaluations"].samples if s.labels["state"] == "published"]
    assert published == [2]
    (step,) = families["evalcar_score_step"].samples
    assert step.value == 10 and step.labels["task"] == "docvqa_val"
    (score,) = families["evalcar_score"].samples
    lines = map(json.loads, (bench.run / "_evalcar" / "metrics.jsonl").read_text().splitlines())
    (value,) = [line["metrics"]["eval/docvqa_val/anls"] for line in lines if line["final"] and line["global_step"] == 10]
    assert score.value == value


def test_metrics_are_served_while_the_agent_runs(bench):
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")
    sidecar, api = serving(bench)

    def families():
        with urllib.request.urlopen(api.url + "/metrics", timeout=60) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            return {family.name: family for family in parser.text_string_to_metric_families(answer.read().decode())}

    def counts():
        found = families().get("evalcar_evaluations")
        return {s.labels["state"]: s.value for s in found.samples} if found else {}

    assert api.ask("POST", "/metrics", {})[0] == 405
    sidecar.wait_for(lambda _: "evalcar_agent_uptime_seconds" in families(), what="the agent's first word")
    assert counts() == {}
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar.wait_for(lambda _: counts().get("published") == 1, what="the first result")
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar.wait_for(lambda _: counts().get("published") == 2, what="the second result")
    last = families()
    assert [s.value for s in last["evalcar_agent_running"].samples] == [1]
    assert [s.value for s in last["evalcar_score_step"].samples] == [10]


def test_a_run_whose_database_cannot_be_read_fails_alone(bench):
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")
    sidecar, api = serving(bench, start=False)
    runs = [bench.home / "good", bench.home / "torn"]
    listed = ", ".join(f'"{run}"' for run in runs)
    sidecar.command = [sidecar.evalcar, "run", *sidecar.command[3:], "--set", f"watch.output_dir=[{listed}]", "--set", 'store.path=""']
    sidecar.start()
    api.wait_until_up(sidecar)
    for run in runs:
        checkpoints.write_hugging_face(run, 5)
    sidecar.wait_for(lambda _: all((run / "_evalcar" / "metrics.jsonl").exists() for run in runs), what="the results")
    (torn,) = [path for path in (bench.home / "state").rglob("torn-*.db")]
    aside = torn.parent / "aside"
    aside.mkdir()
    for path in torn.parent.glob("torn-*.db*"):  # with its log, which the agent has mapped
        if path.suffix in (".db", ".db-wal", ".db-shm"):
            path.rename(aside / path.name)
    torn.write_bytes(b"no database at all " * 1000)

    def families(text):
        return {family.name: family for family in parser.text_string_to_metric_families(text)}

    def served():
        with urllib.request.urlopen(api.url + "/metrics", timeout=60) as answer:
            return families(answer.read().decode())

    def up(found):
        told = found["evalcar_up"].samples if "evalcar_up" in found else []
        return {sample.labels["run"].split("-")[0]: sample.value for sample in told}

    sidecar.wait_for(lambda _: up(served()) == {"good": 1, "torn": 0}, what="both runs")
    found = served()
    assert {s.labels["run"].split("-")[0] for s in found["evalcar_evaluations"].samples} == {"good"}
    done = subprocess.run([bench.evalcar, "status", "--prometheus", "--db", str(torn)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and str(torn) in done.stderr
    assert up(families(done.stdout)) == {"torn": 0}
    for path in torn.parent.glob("torn-*.db-*"):
        path.unlink()
    for path in aside.iterdir():
        path.rename(torn.parent / path.name)
    assert up(served()) == {"good": 1, "torn": 1}  # asked anew once it can be read


# Only while an agent runs, or something waits.
SOMETIMES = {"evalcar_current_progress_ratio", "evalcar_agent_warning", "evalcar_build_info"}


def names_in(expression):
    return set(re.findall(r"\bevalcar_[a-z_]+", expression))


def test_dashboard_and_alerts_ask_for_what_is_there(text):
    told = set(re.findall(r"^(evalcar_[a-z_]+)", text, re.MULTILINE)) | SOMETIMES
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    alerts = yaml.safe_load((MONITORING / "alerts.yml").read_text())

    asked = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            asked |= names_in(target["expr"])
    for variable in dashboard["templating"]["list"]:
        asked |= names_in(json.dumps(variable.get("query", "")))
    for group in alerts["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"]
            asked |= names_in(rule["expr"])

    assert len(asked) > 8
    assert asked <= told, asked - told
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
