"""The mutants can be applied, and their tests exist."""

import ast
from collections import Counter

from tests.mutants.catalogue import ROOT, Mutant, catalogue


def _problem(mutant: Mutant) -> str | None:
    path = ROOT / mutant.file
    if not path.is_file():
        return f"there is no {mutant.file}"
    if (count := path.read_text().count(mutant.old)) != 1:
        return f"its line is there {count} times in {mutant.file}, not once"
    if mutant.old == mutant.new:
        return "it changes nothing"
    file, _, rest = mutant.test.partition("::")
    name = rest.partition("[")[0].rpartition("::")[2]
    tree = ast.parse((ROOT / file).read_text()) if (ROOT / file).is_file() else ast.Module([], [])
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return None if name in names else f"there is no test {mutant.test}"


def test_each_mutant_changes_one_place_and_names_its_test() -> None:
    problems = [f"{mutant.name}: {problem}" for mutant in catalogue() if (problem := _problem(mutant))]
    assert not problems, "\n".join(problems)


def test_names_are_unique() -> None:
    twice = [name for name, count in Counter(mutant.name for mutant in catalogue()).items() if count > 1]
    assert not twice
