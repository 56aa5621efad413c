"""Every test is in one tier, and pytest finds every test."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.tiers import EXPENSIVE_FIXTURES, EXPENSIVE_FOLDERS, is_slow_module, tier_of

ROOT = Path(__file__).parents[2]
TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
FIXTURE = re.compile(r"^@pytest\.fixture.*\ndef (\w+)", re.MULTILINE)


def test_a_cheap_test_is_quick_unless_it_is_marked() -> None:
    assert tier_of("tests/jobs/test_x.py::test_x", [], ["app", "connection"]) == "quick"
    assert tier_of("tests/jobs/test_x.py::test_x", ["slow"], ["app"]) == "slow"


def test_the_closest_mark_counts() -> None:
    assert tier_of("tests/faults/test_x.py::test_x", ["asyncio", "quick", "slow"], []) == "quick"
    assert tier_of("tests/faults/test_x.py::test_x[1500]", ["storm", "slow"], []) == "storm"


def test_an_expensive_test_must_be_marked() -> None:
    for node, fixtures in (
        *((f"{folder}test_x.py::test_x", []) for folder in EXPENSIVE_FOLDERS),
        *(("tests/jobs/test_x.py::test_x", ["app", fixture]) for fixture in EXPENSIVE_FIXTURES),
    ):
        assert tier_of(node, ["asyncio"], fixtures) is None


def test_expensive_fixtures_and_folders_exist() -> None:
    defined = {name for path in python_files("tests") for name in FIXTURE.findall(path.read_text())}
    assert defined >= EXPENSIVE_FIXTURES
    assert all((ROOT / folder).is_dir() for folder in EXPENSIVE_FOLDERS)


def test_every_test_function_is_in_a_file_that_pytest_reads() -> None:
    lost = {
        str(path.relative_to(ROOT)): found
        for folder in ("tests", "examples", "bench", "tools")
        for path in python_files(folder)
        if not (folder in ("tests", "examples") and path.name.startswith("test_"))
        and (found := TEST.findall(path.read_text()))
    }
    assert lost == {}


def python_files(folder: str) -> Iterator[Path]:
    yield from (ROOT / folder).rglob("*.py")


def test_a_module_is_slow_if_it_says_so_and_has_no_quick_test(tmp_path: Path) -> None:
    module = tmp_path / "test_x.py"
    for text, expected in (
        ("import pytest\n\npytestmark = pytest.mark.slow\n", True),
        ("import pytest\n\npytestmark = pytest.mark.slow\n\n\n@pytest.mark.quick\ndef test_x(): ...\n", False),
        ("def test_x(): ...\n", False),
    ):
        module.write_text(text)
        assert is_slow_module(module) is expected
