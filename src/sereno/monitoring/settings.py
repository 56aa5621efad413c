"""Settings for display: each with its source, and with secrets masked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sereno.access.masking import MASK, is_secret, without_secrets
from sereno.settings import Settings

# Settings whose value may be an address in the form of keywords and values.
_ADDRESSES = ("database_url", "procedure_url", "procedure_targets", "read_url")


@dataclass(frozen=True, slots=True)
class SettingLine:
    """One setting. `source`: a file, the environment, given in code or on the command line, or the default."""

    setting: str
    value: Any
    source: str


def list_settings(settings: Settings, sources: Mapping[str, str]) -> list[SettingLine]:
    """Return all settings, in the order of the reference."""
    return [
        SettingLine(name, masked(name, getattr(settings, name)), sources.get(name, "default"))
        for name in settings.__struct_fields__
    ]


def masked(name: str, value: Any) -> Any:
    """Return the value with tokens and passwords in URLs masked."""
    if isinstance(value, Mapping):
        return {key: masked(name, part) for key, part in value.items()}
    if name == "encryption_keys" and value:
        # The ids of the keys are no secret.
        return [f"{each.partition(':')[0]}:{MASK}" if ":" in each else MASK for each in value]
    if not isinstance(value, str):
        return value
    if name in _ADDRESSES and "://" not in value:
        return _masked_address(value)
    return MASK if is_secret(name) else without_secrets(value)


def _masked_address(text: str) -> str:
    """Return an address of keywords and values without its passwords, whatever characters they have."""
    try:
        given = conninfo_to_dict(text)
    except psycopg.ProgrammingError:
        return MASK
    return make_conninfo(
        "", **{key: MASK if key in ("password", "sslpassword") else each for key, each in given.items()}
    )
