"""Two versions in one run: this one and a commit, measured in turn, on one server.

    python -m bench drain --against COMMIT

Each figure is compared with the figure of the commit in the same round: what disturbs the machine for minutes disturbs
both.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.context import BenchContext
from bench.report import Figure
from bench.workers import BenchmarkFailed

ROOT = Path(__file__).parents[1]
ROUNDS, ROUNDS_QUICK = 7, 3


def run(context: BenchContext, name: str, commit: str) -> None:
    """Report the median of each figure, and its ratio to the same figure of the commit."""
    ours: dict[str, list[Figure]] = {}
    theirs: dict[str, list[Figure]] = {}
    with _tree(commit) as tree:
        for number in range(context.size(ROUNDS, ROUNDS_QUICK)):
            context.report.note(f"round {number + 1}")
            # Either version is first in turn, because the first one may find the machine in another state.
            for directory, found in ((ROOT, ours), (tree, theirs))[:: -1 if number % 2 else 1]:
                for figure in _measure(directory, name, context.server.url):
                    found.setdefault(figure.name, []).append(figure)
    for figure_name, figures in ours.items():
        references = [figure.value for figure in theirs.get(figure_name, ())]
        if len(references) == len(figures) and all(references):
            values = [figure.value for figure in figures]
            context.report.rounds(figure_name, values, figures[0].unit, commit, references)


@contextmanager
def _tree(commit: str) -> Iterator[Path]:
    """Check the commit out into a directory of its own, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        tree = Path(directory) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*words: str) -> None:
    done = subprocess.run(["git", "-C", str(ROOT), *words], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchmarkFailed(f"git {' '.join(words)}: {done.stderr.strip()}")


def _measure(tree: Path, name: str, url: str) -> list[Figure]:
    command = [sys.executable, "-m", "bench", name, "--quick", "--json", "--database-url", url]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)])}
    done = subprocess.run(command, check=False, cwd=tree, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchmarkFailed(f"{name} failed in {tree}: {done.stderr.strip()[-500:]}")
    return [msgspec.json.decode(line, type=Figure) for line in done.stdout.splitlines()]
