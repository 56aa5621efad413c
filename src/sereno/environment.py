"""Environment variables of settings: which ones are misspelt, and how the values of some are written."""

import difflib
import re
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sereno.errors import ConfigurationError
from sereno.shard_urls import parse_shards

# Variables that are no settings; and those that Kubernetes sets in every pod for a service whose name begins so.
_OTHER_VARIABLES = frozenset(
    {
        "SERENO_ATTEMPT",
        "SERENO_CHILD_DESCRIPTORS",
        "SERENO_DEMO",
        "SERENO_JOB",
        "SERENO_TOKEN",
        "SERENO_TOKEN_FILE",
        "SERENO_URL",
    }
)
_OF_KUBERNETES = re.compile(r"_SERVICE_(?:HOST|PORT(?:_\w+)?)$|_PORT_\d+_(?:TCP|UDP)(?:_\w+)?$")


def check_variables(environment: Mapping[str, str], settings: Iterable[str]) -> None:
    """Raise ConfigurationError for a variable SERENO_… that names no setting."""
    names = {name.upper() for name in settings}
    for variable, value in environment.items():
        if not variable.startswith("SERENO_") or variable.startswith("SERENO_TEST_") or variable in _OTHER_VARIABLES:
            continue
        name = variable.removeprefix("SERENO_").removesuffix("_FILE")
        if name in names:
            if value.startswith("tcp://"):
                raise ConfigurationError(
                    f"{variable} was set by Kubernetes for a service of that name: set enableServiceLinks to false in "
                    "the pod, or rename the service"
                )
            continue
        if _OF_KUBERNETES.search(variable) or value.startswith("tcp://"):
            continue
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean SERENO_{close[0]}?" if close else ": `sereno config show` lists them"
        raise ConfigurationError(f"there is no setting {variable}{hint}")


def with_variable(message: str, from_environment: Container[str]) -> str:
    """Return a message that begins with the name of a setting; with its variable instead, if that has the value."""
    name = message.partition(" ")[0].rstrip(":")
    return f"SERENO_{name.upper()}{message[len(name) :]}" if name in from_environment else message


def read_value(variable: str, file: str) -> str:
    """Return the value in the file that a variable SERENO_…_FILE names."""
    try:
        return Path(file).read_text().strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(f"{variable}: {file!r:.200} cannot be read: {reason}") from None


def parse_carriers(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        # The value is not shown: it may contain a password.
        raise ConfigurationError(
            'carriers: write a JSON object of queues and addresses, such as {"clicks": "jetstream://a:4222?replicas=3"}'
        ) from None


def parse_targets(text: str) -> dict[str, str]:
    """Parse `erp=mysql://… books=postgresql://…`, separated by spaces or newlines."""
    targets: dict[str, str] = {}
    for word in text.split():
        name, separator, url = word.partition("=")
        if not separator or "://" not in url:
            # The value is not shown: it may contain a password.
            raise ConfigurationError("procedure_targets: write NAME=ADDRESS, separated by spaces or newlines")
        targets[name] = url
    return targets


def _parse_queue_list(text: str) -> dict[str, int]:
    try:
        return parse_queues(text.split(","))
    except ConfigurationError as error:
        raise ConfigurationError(f"queues: {error}") from None


def parse_queues(words: list[str]) -> dict[str, int]:
    """Parse `["ifood=10", "default"]`, as on the command line. 0 if there is no number: `concurrency` applies."""
    queues: dict[str, int] = {}
    for word in words:
        name, separator, slots = word.strip().partition("=")
        if not name or (separator and not slots.isdigit()):
            raise ConfigurationError(f"{word!r} is not a queue: write NAME or NAME=SLOTS, such as default=10")
        queues[name] = int(slots) if separator else 0
    return queues


# How the values of some settings are written in the environment.
PARSERS: Mapping[str, Callable[[str], Any]] = {
    "queues": _parse_queue_list,
    "carriers": parse_carriers,
    "procedure_targets": parse_targets,
    "shards": parse_shards,
}


def parse_variable(name: str, text: str) -> Any:
    """Return the value of one of the settings above from its variable; the error names the variable."""
    try:
        return PARSERS[name](text)
    except ConfigurationError as error:
        raise ConfigurationError(with_variable(str(error), {name})) from None
