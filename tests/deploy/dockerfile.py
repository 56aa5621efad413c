"""What the stages of examples/deploy/Dockerfile copy from the repository."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "examples" / "deploy" / "Dockerfile"
# The two stages.
BUILD, PROGRAM = 1, 2
_COPY = re.compile(r"^COPY (?!--)(.+) (\S+)$", re.MULTILINE)


def copied(stage: int, example: str = "") -> Iterator[tuple[Path, Path]]:
    """Yield a file or directory of the repository, and where it is put, relative to the directory of the stage."""
    stages = DOCKERFILE.read_text().replace("${EXAMPLE}", example).split("\nFROM ")
    for sources, target in _COPY.findall(stages[stage]):
        for source in map(ROOT.joinpath, sources.split()):
            yield source, Path(target) if source.is_dir() else Path(target) / source.name
