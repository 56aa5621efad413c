"""What people copy to deploy is what its readers accept, and names commands and settings that exist."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from sereno.cli.main import main
from sereno.settings import Settings, load
from sereno.version import __version__

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted(DEPLOY.glob("*.service"))
FILES = [DEPLOY / "Dockerfile", DEPLOY / "compose.yaml", *MANIFESTS, *UNITS]
# Read by what is around the settings, not by them.
ALSO = {"SERENO_APP"}


def said(command: list[str], **options: Any) -> str:
    """What a program says; nothing is what it says of a file that is well."""
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, **options
    )
    return done.stdout if done.returncode or done.stdout.strip() else ""


def beside(program: str) -> str:
    return str(Path(sys.executable).parent / program)


def test_there_is_something_to_look_at() -> None:
    assert len(MANIFESTS) == 3
    assert len(UNITS) == 2


def test_the_dockerfile() -> None:
    assert said([beside("hadolint"), str(DEPLOY / "Dockerfile")]) == ""
    assert "--require-hashes" in (DEPLOY / "Dockerfile").read_text()
    packages = (DEPLOY / "requirements.in").read_text()
    ((extras, version),) = re.findall(r"^sereno\[([\w,]+)\]==(\S+)$", packages, re.MULTILINE)
    assert version == __version__
    assert set(extras.split(",")) <= set(metadata("sereno").get_all("Provides-Extra", []))


@pytest.mark.slow
def test_the_compose_file() -> None:
    checked = said(
        [beside("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose.yaml")]
    )
    assert checked == "ok -- validation done\n"


@pytest.mark.slow
def test_the_manifests(subtests: pytest.Subtests) -> None:
    for manifest in MANIFESTS:
        with subtests.test(manifest=manifest.stem):
            documents = list(yaml.safe_load_all(manifest.read_text()))
            assert documents
            for document in documents:
                kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.slow
def test_the_units(tmp_path: Path, subtests: pytest.Subtests) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    for unit in UNITS:
        with subtests.test(unit=unit.stem):
            # The program and the user are those of the machine where it will run.
            text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE)
            copy = tmp_path / unit.name
            copy.write_text(text.replace("User=shop", "User=root"))
            assert said(["systemd-analyze", "verify", "--man=no", str(copy)]) == ""


def test_every_setting_is_one(subtests: pytest.Subtests) -> None:
    for file in FILES:
        with subtests.test(file=file.name):
            named = set(re.findall(r"\bSERENO_[A-Z_]+\b", file.read_text()))
            known = {f"SERENO_{name.upper()}" for name in Settings.__struct_fields__} | ALSO
            assert {name.removesuffix("_FILE") for name in named} - known == set()


def test_whatever_starts_the_server_says_which_proxies_it_trusts(subtests: pytest.Subtests) -> None:
    """Or all who come through one would count as one client."""
    for file in ["sereno-server.service", "compose.yaml", "kubernetes/server.yaml"]:
        with subtests.test(file=file):
            said_by = r"SERENO_TRUSTED_PROXIES(?:=|\"?, value: \"|: \$\{SERENO_TRUSTED_PROXIES:-)([0-9a-f.:/,]+)"
            (trusted,) = re.findall(said_by, (DEPLOY / file).read_text())
            assert load(environment={"SERENO_TRUSTED_PROXIES": trusted})[0].trusted_proxies == trusted.split(",")


def test_every_command_is_one(subtests: pytest.Subtests) -> None:
    for file in FILES:
        with subtests.test(file=file.name):
            commands = list(commands_in(file))
            assert commands
            for command in commands:
                assert is_known(command), command
    assert not is_known(["worker", "--no-such-option"])
    assert not is_known(["no-such-command"])


def is_known(command: list[str]) -> bool:
    """Whether click knows the command and its options; nothing is done."""
    return CliRunner().invoke(main, [*command, "--help"]).exit_code == 0


def commands_in(file: Path) -> Iterator[list[str]]:
    """As arguments of `sereno`: lists in JSON, lines of units, and what comments tell people to type."""
    text = file.read_text()
    for found in re.findall(r'\["sereno", (.*?)\]', text):
        yield re.findall(r'"([^"]*)"', found)
    for found in re.findall(r'\["sh", "-c", "(.*?)"\]', text):
        for command in found.split(" && "):
            yield shlex.split(command.removeprefix("sereno "))
    for found in re.findall(r"^ExecStart=\S+/sereno (.*)$", text, re.MULTILINE):
        yield shlex.split(found)
    for found in re.findall(r"^# .*sereno (token create .*)$", text, re.MULTILINE):
        yield shlex.split(found)
