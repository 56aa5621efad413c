"""The settings and their reference page list the same names."""

import re
from pathlib import Path

from sereno.settings import Settings

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_every_setting_is_documented_with_its_variable() -> None:
    lines = REFERENCE.read_text().splitlines()
    undocumented = [
        name
        for name in Settings.__struct_fields__
        if not any(f"`{name}`" in line and f"`SERENO_{name.upper()}`" in line for line in lines)
    ]
    assert undocumented == []


def test_every_documented_variable_is_a_setting() -> None:
    documented = re.findall(r"`SERENO_([A-Z_]+)`", REFERENCE.read_text())
    known = {name.upper() for name in Settings.__struct_fields__}
    assert sorted({name for name in documented if name.removesuffix("_FILE") not in known}) == []
