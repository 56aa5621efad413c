"""The mutants can be applied, and their tests exist."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.catalogue import ROOT, Mutant, catalogue


@cache
def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def _problem(mutant: Mutant) -> str | None:
    path = ROOT / mutant.file
    if not path.is_file():
        return f"there is no {mutant.file}"
    if (count := _text(path).count(mutant.old)) != 1:
        return f"its line is there {count} times in {mutant.file}, not once"
    if mutant.old == mutant.new:
        return "it changes nothing"
    if later := [each.name for each in path.parent.glob("[0-9]*.sql") if each > path and mutant.old in _text(each)]:
        return f"its function is replaced by {later[0]}"
    file, _, rest = mutant.test.partition("::")
    name = rest.partition("[")[0].rpartition("::")[2]
    is_there = re.search(rf"^ *(async )?def {name}\(", _text(ROOT / file), re.MULTILINE)
    return None if is_there else f"there is no test {mutant.test}"


@pytest.mark.slow
def test_each_mutant_changes_one_place_and_names_its_test() -> None:
    problems = [f"{mutant.name}: {problem}" for mutant in catalogue() if (problem := _problem(mutant))]
    assert not problems, "\n".join(problems)


def test_names_are_unique() -> None:
    twice = [name for name, count in Counter(mutant.name for mutant in catalogue()).items() if count > 1]
    assert not twice
