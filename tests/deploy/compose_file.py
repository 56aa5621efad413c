"""Reads compose files as `docker compose` does, as far as the files of this repository need it."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

# $$, ${NAME}, ${NAME:-default} and ${NAME:?what to do}.
_VARIABLE = re.compile(r"\$(?:\$|\{(?P<name>\w+)(?:(?P<operator>:?[-?])(?P<text>[^}]*))?\})")


def services(files: Sequence[Path], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the services, by name: later files override earlier ones, `variables` are those of the shell."""
    merged: Any = {}
    for file in files:
        merged = _merge(merged, _load(file, variables))
    found: dict[str, Any] = merged["services"]
    return found


def _load(file: Path, variables: Mapping[str, str]) -> Any:
    read = interpolated(yaml.safe_load(file.read_text()), variables)
    for name, service in read["services"].items():
        service["volumes"] = [_absolute(each, file.parent) for each in service.get("volumes", [])]
        service["environment"] = {
            key: variables.get(key) if value is None else str(value)
            for key, value in service.get("environment", {}).items()
        }
        if extended := service.pop("extends", None):
            base = _load(file.parent / extended["file"], variables)["services"][extended["service"]]
            read["services"][name] = _merge(base, service)
    return read


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """Return the value with the variables in all its texts replaced."""
    if isinstance(value, dict):
        return {key: interpolated(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [interpolated(each, variables) for each in value]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _value(found, variables), value)
    return value


def _value(found: "re.Match[str]", variables: Mapping[str, str]) -> str:
    name, operator, text = found["name"], found["operator"] or "", found["text"]
    if name is None:
        return "$"
    value = variables.get(name)
    if value is None or (not value and operator.startswith(":")):
        if operator.endswith("?"):
            raise ValueError(f"{name}: {text}")
        return text or ""
    return value


def _merge(base: Any, over: Any) -> Any:
    """Mappings are merged, volumes and ports appended; a command, a test and all else is replaced."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    merged = dict(base)
    for key, value in over.items():
        if key in ("volumes", "ports") and isinstance(value, list):
            merged[key] = [*base.get(key, []), *value]
        else:
            merged[key] = _merge(base.get(key), value)
    return merged


def _absolute(volume: str, directory: Path) -> str:
    source, _, rest = volume.partition(":")
    return f"{(directory / source).resolve()}:{rest}" if source.startswith(".") else volume
