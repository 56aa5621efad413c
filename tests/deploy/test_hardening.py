"""What ships to deploy with gives each process the least rights, and its roles work as they are written."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from sereno import Sereno
from sereno.database.embedded import EmbeddedPostgres
from sereno.database.embedded.programs import wheel_bin_dir
from sereno.testing.process import TIMEOUT, WorkerProcess
from tests.deploy.test_deploy import DEPLOY, MANIFESTS, UNITS
from tests.docs.pages import ROOT, only
from tests.facts import one
from tests.roles import as_login, sereno

DENIED = psycopg.errors.InsufficientPrivilege


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def pods(path: Path) -> Iterator[dict[str, Any]]:
    for document in documents(path):
        if "template" in document["spec"]:
            yield document["spec"]["template"]["spec"]


def test_pods_have_the_least_rights(subtests: pytest.Subtests) -> None:
    for manifest in MANIFESTS:
        with subtests.test(manifest=manifest.stem):
            found = list(pods(manifest))
            assert found
            for pod in found:
                assert_least_rights(pod)


def assert_least_rights(pod: dict[str, Any]) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] != 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]


def test_the_manifest_in_the_documentation_has_the_least_rights() -> None:
    page = ROOT / "docs" / "operate" / "worker-in-production.md"
    assert_least_rights(yaml.safe_load(only(page, "yaml"))["spec"]["template"]["spec"])


def test_images_and_units_run_without_root() -> None:
    images = [DEPLOY / "Dockerfile", ROOT / "examples" / "deploy" / "Dockerfile"]
    assert images == [*ROOT.glob("*/Dockerfile"), *ROOT.glob("*/*/Dockerfile")]
    for image in images:
        last_stage = image.read_text().rpartition("\nFROM ")[2]
        assert re.findall(r"^USER (.*)$", last_stage, re.MULTILINE) == ["65534"], image
    for unit in (*UNITS, *sorted(ROOT.glob("examples/deploy/systemd/*.service"))):
        (user,) = re.findall(r"^User=(.*)$", unit.read_text(), re.MULTILINE)
        assert user not in ("root", "0", ""), unit


def test_each_kind_of_process_has_its_own_credentials() -> None:
    secrets = {}
    for manifest in MANIFESTS:
        for pod in pods(manifest):
            for container in pod["containers"]:
                values = {each["name"]: each.get("valueFrom") for each in container["env"]}
                secrets[container["name"]] = values["SERENO_DATABASE_URL"]["secretKeyRef"]["name"]
    assert secrets == {"migrate": "sereno-migrate", "worker": "sereno-worker", "server": "sereno-server"}


def test_network_policies_select_the_pods_beside_them() -> None:
    for name in ("worker", "server"):
        found = documents(DEPLOY / "kubernetes" / f"{name}.yaml")
        (policy,) = (each for each in found if each["kind"] == "NetworkPolicy")
        (deployment,) = (each for each in found if each["kind"] == "Deployment")
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert policy["spec"]["podSelector"] == {"matchLabels": labels}
        assert "Ingress" in policy["spec"]["policyTypes"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        ports = {port["name"] for port in container["ports"]}
        assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} <= ports


def test_units_leave_little_open(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """The measure of systemd itself, from 0 (nothing is open) to 10; a unit without any hardening has 9.6."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    for unit in UNITS:
        with subtests.test(unit=unit.stem):
            copy = tmp_path / unit.name
            copy.write_text(unit.read_text())
            command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=20", str(copy)]
            done = subprocess.run(
                command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
            )
            assert done.returncode == 0, done.stdout


# The roles of compose.yaml, on a server of their own: they have fixed names, and roles belong to the whole server.

SERVICES = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
PASSWORDS = {f"{name}_PASSWORD": f'{name.lower()} it\'s "one"' for name in ("DATABASE", "MIGRATE", "WORKER", "SERVER")}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the superuser, after what the image of PostgreSQL does with a new database."""
    directory = tmp_path_factory.mktemp("compose")
    with EmbeddedPostgres(directory, parameters={"fsync": "off"}) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("create database shop")
        url = server.url.replace("/postgres?", "/shop?", 1)
        host = re.search(r"host=([^&]+)", url)
        assert host is not None
        given = {"POSTGRES_USER": "postgres", "POSTGRES_DB": "shop", "PGHOST": host[1], **PASSWORDS}
        environment = {**os.environ, **given, "PATH": f"{wheel_bin_dir()}{os.pathsep}{os.environ['PATH']}"}
        for script in sorted((DEPLOY / "database").iterdir()):
            subprocess.run([str(script)], check=True, env=environment, timeout=TIMEOUT)
        yield url


def login_of(service: str) -> str:
    address = SERVICES[service]["environment"]["SERENO_DATABASE_URL"]
    found = re.fullmatch(r"postgresql://(\w+):\$\{(\w+):\?.*?\}@database/shop", address)
    assert found is not None, address
    assert found[2] == f"{service.upper()}_PASSWORD"
    return found[1]


def test_services_of_compose_are_confined() -> None:
    for name in ("migrate", "worker", "server"):
        service = SERVICES[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "DATABASE_PASSWORD" not in str(service), "the superuser's"


SHOP = """
from sereno import Sereno

app = Sereno()


@app.task
async def pack(order: int) -> None: ...
"""


@pytest.mark.slow
def test_the_roles_of_compose_run_everything_and_no_more(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "compose_shop.py").write_text(SHOP)
    monkeypatch.syspath_prepend(tmp_path)
    with psycopg.connect(database, autocommit=True) as connection:
        roles = "select count(*) from pg_authid where rolname ~ '^sereno_' and rolcanlogin and rolpassword is not null"
        assert one(connection, roles) == 3
    migrate, worker, server = (as_login(database, login_of(name)) for name in ("migrate", "worker", "server"))
    _, _, script = SERVICES["migrate"]["command"]
    for _ in range(2):
        for command in script.split(" && "):
            done = sereno(migrate, *command.split()[1:])
            assert done.exit_code == 0, done.output

    with psycopg.connect(server, autocommit=True) as connection:
        job = one(connection, "select sereno.enqueue('pack', '{\"order\": 7}')")
        app = Sereno(worker)
        process = WorkerProcess("compose_shop:app", app)
        try:
            state = "select state from sereno.history where id = %s"
            assert process.until(lambda: connection.execute(state, [job]).fetchone()) == ("succeeded",)
        finally:
            process.kill()
            app.close()
    assert sereno(server, "token", "create", "me", "--role", "admin").exit_code == 0
    assert sereno(server, "verify").exit_code == 0
    for url in (worker, server, migrate):
        with psycopg.connect(url, autocommit=True) as connection:
            power = "select rolsuper or rolcreaterole or rolcreatedb from pg_roles where rolname = current_user"
            assert one(connection, power) is False
    with psycopg.connect(worker, autocommit=True) as connection:
        for statement in ("select * from sereno.tokens", "drop table sereno.jobs", "create table public.mine (id int)"):
            with pytest.raises(DENIED):
                connection.execute(statement.encode())
