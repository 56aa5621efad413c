"""The dashboard and the alert rules name metrics that exist, and a real Prometheus evaluates them."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import psycopg
import pytest
import yaml

from sereno import Sereno
from sereno.cli.main import main
from sereno.server import asgi
from tests.deploy.prometheus import MISSING, PROMETHEUS, PROMTOOL, Prometheus, promtool, running
from tests.facts import until
from tests.jobs.job_steps import add
from tests.serving import Serving

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "deploy" / "grafana"
ALERTS = GRAFANA / "alerts.yaml"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboard.json").read_text())
RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
# Columns of a dashboard.
WIDTH = 24
TOKEN = "m" * 40
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason=MISSING)


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Yield every PromQL expression with its place; variables of the dashboard have a value."""
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            plain = target["expr"].replace("$__rate_interval", "5m").replace("$queue", ".*")
            assert "$" not in plain, plain
            yield panel["title"], plain


def metrics() -> dict[str, tuple[str, set[str]]]:
    """Return kind and labels of each metric of the reference."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", page, re.MULTILINE)
    return {name: (kind, set(filter(None, labels.strip().split(", ")))) for name, kind, labels in rows}


def test_every_metric_exists_with_its_labels(subtests: pytest.Subtests) -> None:
    known = metrics()
    series = {name: labels for name, (kind, labels) in known.items() if kind != "histogram"}
    for name, (kind, labels) in known.items():
        if kind == "histogram":
            series |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
    used = set()
    for place, text in expressions():
        with subtests.test(place):
            names = re.findall(r"\b(sereno_\w+)(?:\{([^}]*)\})?", text)
            assert names, text
            for name, selectors in names:
                assert name in series, f"{name} is in no line of docs/reference/metrics.md"
                wanted = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", selectors))
                assert wanted <= series[name], f"{name} has no label {wanted - series[name]}"
                used.add(name)
    assert len(used) > 30


def test_the_dashboard_can_be_imported() -> None:
    assert DASHBOARD["schemaVersion"] >= 36
    assert "id" not in DASHBOARD, "Grafana chooses it"
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "queue"}
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < WIDTH, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert references == sorted(set(references)), panel["title"]


def test_every_alert_has_a_command_that_exists(subtests: pytest.Subtests) -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names))
    for rule in RULES:
        with subtests.test(rule["alert"]):
            assert rule["labels"]["severity"] in ("info", "warning", "critical")
            words = shlex.split(re.sub(r"\{\{.*?\}\}", "x", rule["annotations"]["command"]))
            command: click.Command = main
            for word in words[1:]:
                if not isinstance(command, click.Group):
                    break
                command = command.get_command(click.Context(command), word) or command
            assert words[0] == "sereno"
            assert not isinstance(command, click.Group) or command.name == "worker"
            options = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= options


@needs_promtool
@pytest.mark.slow
def test_prometheus_accepts_the_files(tmp_path: Path) -> None:
    """Every expression of the dashboard is checked as a recording rule."""
    promtool("check", "rules", ALERTS)
    rules = [{"record": f"panel:{number}", "expr": text} for number, (_, text) in enumerate(expressions())]
    (tmp_path / "panels.yaml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "panels.yaml")
    for file in ("prometheus.yaml", "alerts.yaml"):
        text = (GRAFANA / file).read_text().replace("/etc/prometheus/sereno-metrics-token", str(tmp_path / "token"))
        (tmp_path / file).write_text(text)
    (tmp_path / "token").write_text(TOKEN)
    promtool("check", "config", tmp_path / "prometheus.yaml")


MISSES = "SerenoGaugesMissing"
# What makes each alert fire: series with their values minute by minute, and after how many minutes.
FIRING = {
    "SerenoQueueUnserved": ({'sereno_jobs{queue="mails", tenant="", state="ready"}': "3x60"}, 6),
    "SerenoQueueLate": (
        {
            'sereno_oldest_ready_seconds{queue="mails", tenant="ann"}': "400x60",
            'sereno_queue_workers{queue="mails"}': "1x60",
        },
        6,
    ),
    "SerenoDeadLetters": ({'sereno_jobs_finished_total{queue="q", task="t", outcome="dead"}': "0+2x60"}, 20),
    "SerenoCrashes": ({'sereno_jobs_finished_total{queue="q", task="t", outcome="crash"}': "0+1x60"}, 20),
    "SerenoResultsRefused": ({"sereno_settlements_fenced_total": "0+2x60"}, 20),
    "SerenoNoScheduler": ({"sereno_scheduler_alive": "0x60", 'sereno_schedules{state="enabled"}': "1x60"}, 3),
    "SerenoSchedulesLate": ({"sereno_schedule_overdue_seconds": "90x60"}, 3),
    "SerenoSchedulesParked": ({'sereno_schedules{state="parked"}': "1x60"}, 1),
    "SerenoDeliveriesFail": (
        {
            'sereno_deliveries_total{channel="sms", state="dead"}': "0+3x60",
            'sereno_deliveries_total{channel="sms", state="sent"}': "0+5x60",
        },
        30,
    ),
    "SerenoChannelPaused": ({'sereno_channel_pauses{channel="sms"}': "1x60"}, 11),
    "SerenoLimitFull": (
        {'sereno_limit_saturation{limit="l"}': "1x60", 'sereno_limit_waiting_keys{limit="l"}': "2x60"},
        31,
    ),
    "SerenoArchiveLate": ({"sereno_archive_lag_seconds": "200000x90"}, 61),
    "SerenoArchiveFails": ({"sereno_archive_failures": "1x90"}, 61),
    "SerenoStandbyLags": ({'sereno_replica_lag_seconds{replica="b"}': "100x60"}, 6),
    "SerenoCarrierAway": ({'sereno_carrier_up{queue="clicks"}': "0x60"}, 3),
    "SerenoCarrierLate": ({'sereno_carrier_lag_seconds{queue="clicks"}': "400x60"}, 6),
    MISSES: ({"other": "1x60"}, 11),
}
# Two processes show the same gauges, everything is well, and a paused queue may be late.
QUIET = {
    f'{name}, instance="{instance}"}}': values
    for instance in ("a", "b")
    for name, values in {
        'sereno_jobs{queue="mails", tenant="", state="ready"': "3x90",
        'sereno_jobs{queue="paused", tenant="", state="ready"': "3x90",
        # What sums up queues beyond the largest ones is no queue with workers.
        'sereno_jobs{queue="(other)", tenant="", state="ready"': "3x90",
        'sereno_queue_workers{queue="mails"': "1x90",
        'sereno_queue_paused{queue="paused"': "1x90",
        'sereno_oldest_ready_seconds{queue="mails", tenant=""': "20x90",
        'sereno_oldest_ready_seconds{queue="paused", tenant=""': "9000x90",
        'sereno_jobs_finished_total{queue="q", task="t", outcome="succeeded"': "0+900x90",
        'sereno_scheduler_alive{x=""': "1x90",
        'sereno_schedules{state="enabled"': "5x90",
        'sereno_deliveries_total{channel="sms", state="sent"': "0+50x90",
        'sereno_deliveries_total{channel="sms", state="dead"': "0+1x90",
        'sereno_limit_saturation{limit="l"': "1x90",
        'sereno_limit_waiting_keys{limit="l"': "0x90",
        'sereno_carrier_up{queue="clicks"': "1x90",
    }.items()
}


def _unit_test(series: dict[str, str], minutes: int, expected: str | None) -> dict[str, Any]:
    # Most reasons are tested without the gauges whose absence is a reason of its own.
    others = "" if expected == MISSES else f', alertname!="{MISSES}"'
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count by (alertname) (ALERTS{{alertstate="firing"{others}}})',
                "eval_time": f"{minutes}m",
                "exp_samples": [{"labels": f'{{alertname="{expected}"}}', "value": 1}] if expected else [],
            }
        ],
    }


@needs_promtool
@pytest.mark.slow
def test_each_alert_fires_for_its_reason_and_none_without(tmp_path: Path) -> None:
    assert FIRING.keys() == {rule["alert"] for rule in RULES}
    tests = [_unit_test(series, minutes, name) for name, (series, minutes) in FIRING.items()]
    tests.append(_unit_test(QUIET, 80, None))
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", file)


@pytest.mark.skipif(PROMETHEUS is None, reason=MISSING)
@pytest.mark.slow
def test_a_real_prometheus_scrapes_a_real_server(
    app: Sereno, connection: psycopg.Connection, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """Every rule and every panel is evaluated with what the server shows."""
    app.override(metrics_token=TOKEN, gauge_interval=1.0)
    add(connection, 3, queue="mails", tenant="ann")
    serving = Serving(asgi(app), log_level="error")
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            {
                "job_name": "sereno-server",
                "authorization": {"credentials": TOKEN},
                "static_configs": [{"targets": [serving.url.removeprefix("http://")]}],
            }
        ],
    }
    try:
        with running(tmp_path, config) as prometheus:
            ready = 'sum by (queue) (max by (queue, tenant, state) (sereno_jobs{state="ready"}))'
            (found,) = until(lambda: prometheus.get("query", query=ready)["result"])
            assert (found["metric"], found["value"][1]) == ({"queue": "mails"}, "3")
            for place, text in expressions():
                with subtests.test(place):
                    prometheus.get("query", query=text)
            until(lambda: _states(prometheus)["SerenoQueueUnserved"] == "pending")
            assert {rule["health"] for rule in prometheus.get("rules")["groups"][0]["rules"]} == {"ok"}
    finally:
        serving.stop()


def _states(prometheus: Prometheus) -> dict[str, str]:
    return {rule["name"]: rule["state"] for rule in prometheus.get("rules")["groups"][0]["rules"]}
