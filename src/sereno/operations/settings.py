"""Settings as a person sees them: each with where it came from, and without its secrets."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sereno.settings import Settings

MASK = "********"


@dataclass(frozen=True, slots=True)
class SettingLine:
    """One setting. `source`: a file, the environment, given in code or on the command line, or the default."""

    setting: str
    value: Any
    source: str


def list_settings(settings: Settings, sources: Mapping[str, str]) -> list[SettingLine]:
    """All of them, in the order of the reference."""
    return [
        SettingLine(name, masked(name, getattr(settings, name)), sources.get(name, "default"))
        for name in settings.__struct_fields__
    ]


def masked(name: str, value: Any) -> Any:
    """Passwords in addresses, and tokens, are nobody's to see."""
    if not isinstance(value, str):
        return value
    if "token" in name or "secret" in name or "password" in name:
        return MASK
    value = re.sub(r"(://[^:/@\s]*):[^@\s]*@", rf"\1:{MASK}@", value)
    return re.sub(r"((?:\b|ssl)password\s*=\s*)('(?:[^'\\]|\\.)*'|[^&\s]*)", rf"\1{MASK}", value, flags=re.IGNORECASE)
