"""README, classifiers and continuous tests name the same Pythons, PostgreSQLs and systems."""

import re
import sys
import tomllib

import psycopg

from tests.code_rules.sources import ROOT

README = (ROOT / "README.md").read_text()
CHECKS = (ROOT / ".ci" / "run").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CLAIM = re.search(
    r"Tested on (?P<system>\w+) with Python (?P<pythons>.+?), and with PostgreSQL (?P<servers>.+?)\.\n", README
)


def versions(text: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?", text)


def pythons_of_checks() -> list[str]:
    """Return the oldest allowed Python, which .venv has, and those that the checks run the quick tests on."""
    (others,) = re.findall(r"^ *tools/test_pythons (.+)$", CHECKS, re.MULTILINE)
    return [PROJECT["requires-python"].removeprefix(">="), *others.split()]


def test_the_readme_names_the_pythons_that_are_tested() -> None:
    assert CLAIM is not None
    assert versions(CLAIM["pythons"]) == pythons_of_checks()


def test_the_classifiers_name_the_pythons_that_are_tested() -> None:
    pattern = re.compile(r"Programming Language :: Python :: (3\.\d+)")
    classified = [found[1] for each in PROJECT["classifiers"] if (found := pattern.fullmatch(each))]
    assert classified == pythons_of_checks()


def test_the_readme_names_the_servers_that_are_tested() -> None:
    """The oldest of the system, those that are brought, and the embedded one."""
    assert CLAIM is not None
    searched = re.search(r"for version in ([\d ]+);", CHECKS)
    brought = re.search(r"^ *on_other_postgres ([\d ]+)$", CHECKS, re.MULTILINE)
    embedded = re.search(r"PostgreSQL (\d+), which is the embedded one", CHECKS)
    assert searched is not None
    assert brought is not None
    assert embedded is not None
    assert versions(CLAIM["servers"]) == [searched[1].split()[0], *brought[1].split(), embedded[1]]


def test_the_classifiers_name_the_system_that_is_tested() -> None:
    assert CLAIM is not None
    systems = [each.rpartition(" :: ")[2] for each in PROJECT["classifiers"] if each.startswith("Operating System")]
    assert systems == [CLAIM["system"]]


def test_the_readme_names_the_server_of_these_tests(connection: psycopg.Connection) -> None:
    assert CLAIM is not None
    version = connection.info.server_version // 10_000
    assert str(version) in versions(CLAIM["servers"])
    assert f"Python :: {sys.version_info.major}.{sys.version_info.minor}" in str(PROJECT["classifiers"])
