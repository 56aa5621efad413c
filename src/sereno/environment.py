"""Environment variables of settings: which ones are misspelt, and how the values of some are written."""

import difflib
import re
from collections.abc import Iterable, Mapping

import msgspec

from sereno.errors import ConfigurationError

# Variables that are no settings; and those that Kubernetes sets in every pod for a service whose name begins so.
_OTHER_VARIABLES = frozenset(
    {"SERENO_ATTEMPT", "SERENO_CHILD_DESCRIPTORS", "SERENO_DEMO", "SERENO_JOB", "SERENO_TOKEN"}
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
