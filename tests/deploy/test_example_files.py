"""The files that deploy the examples: what their readers accept, with the least rights, and only names that exist."""

import ast
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from sereno.settings import Settings
from tests.deploy.compose_file import interpolated, services
from tests.deploy.dockerfile import BUILD, DOCKERFILE, PROGRAM, ROOT, copied
from tests.deploy.test_deploy import ALSO, beside, is_known, said
from tests.deploy.test_hardening import assert_least_rights, documents, pods
from tools.locked_packages import locked

EXAMPLES = ("tenders", "separate_worker", "reminders", "reconciliation", "triggers")
COMPOSE = sorted(ROOT.glob("examples/*/deploy/*compose*.y*ml"))
MANIFESTS = sorted(ROOT.glob("examples/*/deploy/kubernetes/*.yaml"))
UNITS = sorted(ROOT.glob("examples/deploy/systemd/*.service"))
# What a unit of systemd starts an example with; the others have manifests for Kubernetes.
BY_SYSTEMD = ("tenders", "reconciliation", "triggers")
# Read by docker compose itself, the database and the object store.
AROUND = re.compile(r"(DATABASE|MIGRATE|WORKER|SERVER)_PASSWORD|(SERVER|API)_PORT|AWS_[A-Z_]+")
CONFINED = {
    "read_only": True,
    "tmpfs": ["/tmp"],  # noqa: S108 - of the container
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
}


def folder(example: str) -> Path:
    return ROOT / "examples" / example / "deploy"


def programs(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the services of a compose file that run the example, and not the database."""
    for name, service in yaml.safe_load(file.read_text())["services"].items():
        if not service.get("image", "").startswith("postgres:") and "extends" not in service:
            yield name, service


def variables(file: Path) -> set[str]:
    """Return the names that a compose file takes from the shell or from .env."""
    text = file.read_text()
    passed = (each.get("environment", {}) for each in yaml.safe_load(text)["services"].values())
    return {
        *re.findall(r"\$\{(\w+)", text),
        *(name for each in passed for name, value in each.items() if value is None),
    }


def test_every_example_has_its_files() -> None:
    for example in EXAMPLES:
        assert {"compose.yaml", ".env.example", "README.md"} <= {path.name for path in folder(example).iterdir()}
        assert example in BY_SYSTEMD or any(path.is_relative_to(folder(example)) for path in MANIFESTS)
    assert {path.name for path in UNITS} == {
        f"sereno-{kind}@.service" for kind in ("api", "migrate", "server", "worker")
    }


def test_the_dockerfile_copies_what_is_there_and_sent_to_the_builder(subtests: pytest.Subtests) -> None:
    assert said([beside("hadolint"), str(DOCKERFILE)]) == ""
    lines = (DOCKERFILE.parent / f"{DOCKERFILE.name}.dockerignore").read_text().split("\n")
    sent = {line[1:] for line in lines if line.startswith("!")}
    assert "**/.env" in lines
    for source, _ in [*copied(BUILD), *(each for example in EXAMPLES for each in copied(PROGRAM, example))]:
        with subtests.test(source=str(source)):
            assert source.exists()
            assert sent & {
                str(path.relative_to(ROOT)) for path in (source, *source.parents) if path.is_relative_to(ROOT)
            }


@pytest.mark.slow
def test_the_image_has_the_packages_that_the_examples_import() -> None:
    """With the hashes of the lock; imports of a function are of what only some installations need."""
    (words,) = re.findall(
        r"^RUN python tools/locked_packages.py (.*) > locked.txt", DOCKERFILE.read_text(), re.MULTILINE
    )
    extras, *more = words.split()
    image = locked(extras.split(","), more)
    assert [name for name, entry in image.items() if "--hash=sha256:" not in entry] == []
    own = {"sereno", "deploy", *EXAMPLES, *sys.stdlib_module_names}
    distributions = packages_distributions()
    for name in {each for example in EXAMPLES for each in imported(folder(example).parent)} - own:
        assert {re.sub(r"[-_.]+", "-", each).lower() for each in distributions[name]} & image.keys(), name


def imported(directory: Path) -> Iterator[str]:
    """Yield the packages that the modules of an example import when they are imported."""
    for path in directory.rglob("*.py"):
        if "tests" not in path.parts:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.Import):
                    yield from (alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module:
                    yield node.module.partition(".")[0]


@pytest.mark.slow
def test_compose_files_are_accepted_and_confine_their_services(subtests: pytest.Subtests) -> None:
    check = [beside("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    assert said([*check, *map(str, COMPOSE)]) == "ok -- validation done\n"
    for file in COMPOSE:
        with subtests.test(file=str(file.relative_to(ROOT))):
            for name, service in programs(file):
                if "image" in service:
                    assert service.items() >= CONFINED.items(), name
                assert "DATABASE_PASSWORD" not in str(service), "the superuser's"
                assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_only_programs_that_serve_are_published() -> None:
    for file in COMPOSE:
        published = {name for name, each in yaml.safe_load(file.read_text())["services"].items() if "ports" in each}
        assert published <= {"server", "api"}


def test_example_environments_name_every_variable_and_settings_exist(subtests: pytest.Subtests) -> None:
    """Those of sereno are its settings, the others are read by the code of the example."""
    known = {f"SERENO_{name.upper()}" for name in Settings.__struct_fields__} | ALSO
    for example in EXAMPLES:
        with subtests.test(example=example):
            listed = set(re.findall(r"^# ([A-Z_]+)=", (folder(example) / ".env.example").read_text(), re.MULTILINE))
            assert listed == variables(folder(example) / "compose.yaml")
            assert {name for name in listed if name.startswith("SERENO_")} <= known
            code = "".join(
                path.read_text() for path in folder(example).parent.rglob("*.py") if "tests" not in path.parts
            )
            own = {name for name in listed if not name.startswith("SERENO_") and not AROUND.fullmatch(name)}
            assert {name for name in own if not is_read(name, code)} == set()


def test_every_setting_of_an_example_can_be_set(subtests: pytest.Subtests) -> None:
    """Whole names in settings.py, and the keys of a table of defaults, which lack the prefix."""
    whole = re.compile(r'"((?:APP|JOB_RUNNER|NOTIFICATION|RECONCILIATION|SEPARATE_WORKER|REMINDERS|WORKER)_[A-Z_]+)"')
    for example in EXAMPLES:
        settings = folder(example).parent / "settings.py"
        if settings.is_file():
            with subtests.test(example=example):
                code = settings.read_text()
                keys = re.findall(r'^    "([A-Z_]+)": ', code, re.MULTILINE)
                named = {*whole.findall(code), *(f"{example.upper()}_{key}" for key in keys)}
                passed = (folder(example) / "compose.yaml").read_text()
                assert {name for name in named if not re.search(rf"\b{name}:", passed)} == set()


def is_read(name: str, code: str) -> bool:
    """Return whether code names a variable: whole, without its prefix, or as provider and name of a setting."""
    words = name.split("_")
    parts = [(name,), ("_".join(words[1:]),), (words[1], "_".join(words[2:]).lower())]
    return any(all(f'"{part}"' in code for part in each) for each in parts)


@pytest.mark.slow
def test_commands_exist(subtests: pytest.Subtests) -> None:
    for file in [*COMPOSE, *MANIFESTS, *UNITS]:
        with subtests.test(file=str(file.relative_to(ROOT))):
            assert [command for command in commands(file) if not exists(command)] == []


def commands(file: Path) -> Iterator[list[str]]:
    """Yield what a file starts: lists of a compose file or a manifest, lines of a unit, and what a shell starts."""
    if file.suffix == ".service":
        yield from (shlex.split(line) for line in re.findall(r"^ExecStart=\S+/(.*)$", file.read_text(), re.MULTILINE))
        return
    if "services" in (read := next(yaml.safe_load_all(file.read_text()))):
        found = [service.get("command") for service in read["services"].values()]
    else:
        found = [container["command"] for pod in pods_of(file) for container in pod["containers"]]
    for command in filter(None, found):
        if command[0] == "sh":
            yield from map(shlex.split, re.findall(r"(?:sereno|python) [^&;}]*", command[2]))
        else:
            yield command


def exists(command: list[str]) -> bool:
    program, *words = command
    if program == "sereno":
        return is_known(words)
    name = words[1] if program == "python" else words[0].replace("%i", BY_SYSTEMD[0]).removesuffix(":api")
    module = ROOT / "examples" / name.replace(".", "/")
    is_there = module.with_suffix(".py").is_file() or (module / "__main__.py").is_file()
    return program in ("python", "uvicorn") and is_there


def pods_of(manifest: Path) -> Iterator[dict[str, Any]]:
    for document in documents(manifest):
        if "jobTemplate" in document["spec"]:
            yield document["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    yield from pods(manifest)


@pytest.mark.slow
def test_manifests_are_accepted_and_confine_their_pods(subtests: pytest.Subtests) -> None:
    for manifest in MANIFESTS:
        with subtests.test(manifest=str(manifest.relative_to(ROOT))):
            for document in documents(manifest):
                kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
            found = list(pods_of(manifest))
            assert found
            for pod in found:
                assert_least_rights(pod)


@pytest.mark.slow
def test_units_are_accepted_and_leave_little_open(tmp_path: Path, subtests: pytest.Subtests) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    for unit in UNITS:
        with subtests.test(unit=unit.stem):
            # The program and the user are those of the machine where it will run.
            text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE)
            (tmp_path / unit.name.replace("@", "@tenders")).write_text(text.replace("User=%i", "User=root"))
    for unit in UNITS:
        copy = tmp_path / unit.name.replace("@", "@tenders")
        assert said(["systemd-analyze", "verify", "--man=no", str(copy)]) == ""
        measure = ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=20", str(unit)]
        assert subprocess.run(measure, check=False, capture_output=True, timeout=60).returncode == 0


def test_staging_refuses_to_start_without_its_secrets() -> None:
    with pytest.raises(ValueError, match="set DATABASE_PASSWORD"):
        services([folder("separate_worker") / "docker-compose.staging.yml"], {})


def test_variables_are_replaced_as_compose_does() -> None:
    given = {"A": "1", "EMPTY": ""}
    for text, wanted in {
        "${A}-${B}": "1-",
        "${A:-2}-${B:-2}-${EMPTY:-3}-${EMPTY-4}": "1-2-3-",
        "$$A": "$A",
    }.items():
        assert interpolated({"key": [text]}, given) == {"key": [wanted]}
