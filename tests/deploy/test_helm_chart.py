"""The Helm chart: its manifests are what Kubernetes accepts, with the least rights, and its values are checked.

The manifests are those that Helm has rendered from the values in tests/deploy/helm: `python -m tools.render_chart`.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import kubernetes_validate
import psycopg
import pytest
import yaml

from sereno.settings import _HIDDEN, Settings
from sereno.version import __version__
from tests.deploy.test_deploy import ALSO, beside, is_known
from tests.deploy.test_hardening import assert_least_rights
from tests.facts import advance
from tests.manual_worker import ManualWorker
from tests.roles import made
from tools.render_chart import CHART, cases, digest, render

CASES = {values.name.partition(".")[0]: (values, manifests) for values, manifests in cases()}
# Defined by other projects; kubernetes_validate knows those of Kubernetes.
OTHERS = {"PodMonitor", "ScaledObject", "TriggerAuthentication"}
Manifest = dict[str, Any]


def manifests(case: str) -> list[Manifest]:
    return [each for each in yaml.safe_load_all(CASES[case][1].read_text()) if each]


def of_kind(case: str, kind: str) -> dict[str, Manifest]:
    return {each["metadata"]["name"]: each for each in manifests(case) if each["kind"] == kind}


def containers(case: str) -> Iterator[tuple[Manifest, Manifest]]:
    """Yield each workload with its only container."""
    for each in manifests(case):
        if each["kind"] in ("Deployment", "Job"):
            (container,) = each["spec"]["template"]["spec"]["containers"]
            yield each, container


def test_the_manifests_are_those_of_the_chart() -> None:
    assert set(CASES) == {"default", "full"}
    for values, stored in CASES.values():
        line = stored.read_text().partition("\n")[0]
        assert line == f"# {digest(values)}", "run python -m tools.render_chart"


@pytest.mark.slow
def test_helm_renders_these_manifests(subtests: pytest.Subtests) -> None:
    if (helm := shutil.which("helm")) is None:
        pytest.skip("no helm here")
    for values, stored in CASES.values():
        with subtests.test(values=values.name):
            assert render(helm, values) == stored.read_text()


def test_the_chart_has_the_version_of_sereno() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__


@pytest.mark.slow
def test_kubernetes_accepts_the_manifests(subtests: pytest.Subtests) -> None:
    for case in CASES:
        for manifest in manifests(case):
            if manifest["kind"] not in OTHERS:
                with subtests.test(case=case, kind=manifest["kind"], name=manifest["metadata"]["name"]):
                    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_pods_have_the_least_rights_and_probes(subtests: pytest.Subtests) -> None:
    for case in CASES:
        for workload, container in containers(case):
            with subtests.test(case=case, name=workload["metadata"]["name"]):
                pod = workload["spec"]["template"]["spec"]
                assert_least_rights(pod)
                assert pod["enableServiceLinks"] is False
                if workload["kind"] == "Deployment":
                    for probe, path in (("startup", "/livez"), ("liveness", "/livez"), ("readiness", "/readyz")):
                        found = container[f"{probe}Probe"]["httpGet"]
                        assert (found["path"], found["port"]) == (path, container["ports"][0]["name"])
                    labels = workload["spec"]["template"]["metadata"]["labels"]
                    assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_each_kind_of_process_has_its_own_login() -> None:
    logins = {
        workload["metadata"]["name"]: next(
            each["valueFrom"]["secretKeyRef"]["name"]
            for each in container["env"]
            if each["name"] == "SERENO_DATABASE_URL"
        )
        for workload, container in containers("full")
    }
    assert logins == {
        "sereno-migrate": "sereno-migrate",
        "sereno-scheduler": "sereno-worker",
        "sereno-server": "sereno-server",
        "sereno-worker-letters": "sereno-worker",
        "sereno-worker-reports": "sereno-worker",
    }


def test_commands_and_settings_exist(subtests: pytest.Subtests) -> None:
    known = {f"SERENO_{name.upper()}" for name in Settings.__struct_fields__} | ALSO
    for case in CASES:
        for workload, container in containers(case):
            with subtests.test(case=case, name=workload["metadata"]["name"]):
                named = [each["name"] for each in container["env"]]
                assert len(named) == len(set(named))
                assert {name for name in named if name.startswith("SERENO_")} <= known
                program, *words = container["command"]
                commands = [each.split()[1:] for each in words[1].split(" && ")] if program == "sh" else [[*words]]
                assert all(is_known(command) for command in commands)
    (letters,) = (found for each, found in containers("full") if each["metadata"]["name"] == "sereno-worker-letters")
    queues = ["--queue", "letters=20", "--queue", "mail/bulk=5"]
    assert letters["command"] == ["sereno", "worker", "--processes", "2", *queues]


def test_the_schema_is_migrated_before_pods_are_replaced() -> None:
    (job,) = of_kind("default", "Job").values()
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_budgets_and_policies_select_the_pods_beside_them(subtests: pytest.Subtests) -> None:
    for case in CASES:
        deployments = of_kind(case, "Deployment")
        assert set(of_kind(case, "PodDisruptionBudget")) == set(of_kind(case, "NetworkPolicy")) == set(deployments)
        for name, deployment in deployments.items():
            with subtests.test(case=case, name=name):
                selector = deployment["spec"]["selector"]
                assert of_kind(case, "PodDisruptionBudget")[name]["spec"]["selector"] == selector
                policy = of_kind(case, "NetworkPolicy")[name]["spec"]
                assert policy["podSelector"] == selector
                assert "Ingress" in policy["policyTypes"]
                (container,) = deployment["spec"]["template"]["spec"]["containers"]
                ports = {port["name"] for port in container["ports"]}
                assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == ports
        (service,) = of_kind(case, "Service").values()
        assert service["spec"]["selector"] == deployments["sereno-server"]["spec"]["selector"]["matchLabels"]


def test_metrics_are_read_with_the_token_of_the_workers() -> None:
    (monitor,) = of_kind("full", "PodMonitor").values()
    endpoints = {each["port"]: each for each in monitor["spec"]["podMetricsEndpoints"]}
    (credentials, other) = (each["authorization"]["credentials"] for each in endpoints.values())
    assert credentials == other
    for workload, container in containers("full"):
        given = {each["name"]: each.get("valueFrom") for each in container["env"]}
        has_metrics = any(port["name"] in endpoints for port in container.get("ports", []))
        assert given.get("SERENO_METRICS_TOKEN") == ({"secretKeyRef": credentials} if has_metrics else None)
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_workers_are_scaled_by_the_age_of_the_oldest_ready_job(
    manual: ManualWorker, connection: psycopg.Connection, database_url: str
) -> None:
    """The query runs with the login of a reader; KEDA wants an integer."""
    (scaled,) = of_kind("full", "ScaledObject").values()
    name = scaled["spec"]["scaleTargetRef"]["name"]
    assert "replicas" not in of_kind("full", "Deployment")[name]["spec"]
    (trigger,) = scaled["spec"]["triggers"]
    (authentication,) = of_kind("full", "TriggerAuthentication").values()
    assert trigger["authenticationRef"] == {"name": authentication["metadata"]["name"]}
    query = trigger["metadata"]["query"].encode()
    with made(connection, database_url) as roles, roles.connect("reader") as reader:
        assert reader.execute(query).fetchone() == (0,)
        for queue in ("reports", "reports:large", "default"):
            manual.enqueue(queue=queue)
        for queue, seconds in (("default", 7200), ("reports", 600)):
            earlier = "update sereno.jobs set run_at = run_at - make_interval(secs => %s) where queue = %s"
            connection.execute(earlier, [seconds, queue])
        found = reader.execute(query).fetchone()
        assert found is not None
        assert 600 <= found[0] < 3600
        # Due, but no worker has made it ready.
        manual.enqueue(queue="reports:large", delay="1h")
        advance(connection, 3 * 3600)
        connection.execute("update sereno.jobs set run_at = sereno.now() where state = 'ready'")
        found = reader.execute(query).fetchone()
        assert found is not None
        assert 7200 <= found[0] < 3 * 3600


def merged(base: Any, changes: Any) -> Any:
    """Return the values as Helm merges them: null removes a key."""
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return changes
    result = deepcopy(base)
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@pytest.mark.slow
def test_values_are_checked(tmp_path: Path, subtests: pytest.Subtests) -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    good = [defaults, *(merged(defaults, yaml.safe_load(values.read_text())) for values, _ in CASES.values())]
    bad: dict[str, Manifest] = {
        "a name that is none": {"imgae": {}},
        "a name inside": {"server": {"replica": 2}},
        "a number as text": {"server": {"replicas": "2"}},
        "no memory limit": {"workerDefaults": {"resources": {"limits": {"memory": None}}}},
        "an unknown size": {"workers": {"letters": {"replica": 3}}},
        "a quote in a queue": {"workers": {"default": {"autoscaling": {"queues": ["a'; drop"]}}}},
        "a secret in the open": {"settings": {"database_url": "postgresql://me:secret@db/shop"}},
        "a digest that is none": {"image": {"digest": "1.2.3"}},
    }
    for number, values in enumerate(good):
        (tmp_path / f"good_{number}.json").write_text(json.dumps(values))
    for number, changes in enumerate(bad.values()):
        (tmp_path / f"bad_{number}.json").write_text(json.dumps(merged(defaults, changes)))
    command = [beside("check-jsonschema"), "--schemafile", str(CHART / "values.schema.json")]
    files = sorted(map(str, tmp_path.glob("*.json")))
    done = subprocess.run([*command, *files], check=False, stdout=subprocess.PIPE, encoding="utf-8", timeout=60)
    refused = set(re.findall(r"(\w+_\d+)\.json::", done.stdout))
    for number, name in enumerate(bad):
        with subtests.test(name=name):
            assert f"bad_{number}" in refused
    assert {name for name in refused if name.startswith("good")} == set(), done.stdout


def test_no_secret_is_a_plain_setting() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]["settings"]["propertyNames"]["not"]["enum"]) == _HIDDEN
