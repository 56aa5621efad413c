"""Write name, variable and default of each setting into docs/reference/settings.md, from settings.py.

    make reference

The sections and the sentence about each setting are the page's own, and so is a default that depends on other things,
such as "all", where settings.py says None.
"""

import re
from pathlib import Path

import msgspec

from sereno.settings import Settings

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "settings.md"
_ROW = re.compile(r"^\| `(?P<name>[a-z_]+)` \|[^|]*\| (?P<default>(?:[^|]|\\\|)*) \| (?P<meaning>.*) \|$", re.MULTILINE)


def reference() -> str:
    """Return the page with its cells as settings.py has them. Raises LookupError when a setting has no line."""
    page = PAGE.read_text()
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    missing = fields.keys() - {row["name"] for row in _ROW.finditer(page)}
    if missing:
        raise LookupError(f"{PAGE} has no line for {', '.join(sorted(missing))}")

    def cells(row: re.Match[str]) -> str:
        field = fields.get(row["name"])
        if field is None:
            raise LookupError(f"{PAGE} has a line for {row['name']}, which is no setting")
        default = row["default"] if field.default is None else f"`{_written(field.default)}`"
        return f"| `{field.name}` | `SERENO_{field.name.upper()}` | {default} | {row['meaning']} |"

    return _ROW.sub(cells, page)


def _written(default: object) -> str:
    """Return a default as a user writes it."""
    if isinstance(default, bool):
        return str(default).lower()
    return str(default).removesuffix(".0")


if __name__ == "__main__":
    PAGE.write_text(reference())
