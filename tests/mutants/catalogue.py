"""The list of mutants."""

import tomllib
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of one place in one file. `test`: the test that fails with it.

    `promise`: what it breaks, in words. `equivalent`: why no test can tell it from the original, if none can.
    """

    name: str
    promise: str
    file: str
    old: str
    new: str
    test: str
    equivalent: str | None = None
    # The name of the `.toml` file: the part of sereno that it is about.
    capability: str = ""

    def apply(self, root: Path) -> None:
        """Change the file under this root."""
        path = root / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: its line is there {text.count(self.old)} times in {self.file}, not once")
        path.write_text(text.replace(self.old, self.new))


class MutantFile(msgspec.Struct, forbid_unknown_fields=True):
    mutant: list[Mutant]


def catalogue() -> list[Mutant]:
    """Return all mutants, by capability."""
    found: list[Mutant] = []
    for path in sorted(HERE.glob("*.toml")):
        listed = msgspec.convert(tomllib.loads(path.read_text()), MutantFile)
        found += [msgspec.structs.replace(mutant, capability=path.stem) for mutant in listed.mutant]
    return found
