"""What a worker of the demo is started with: one of the examples, in a hurry.

`SERENO_DEMO` names it. Its rhythms are the ones for a show of a minute, and everything else is as it is.
"""

import importlib
import os

import msgspec

from sereno.app import Sereno
from sereno.cli.context import load_app


def hurried(name: str) -> Sereno:
    """The application of an example, with its schedules declared anew where the show says so."""
    show = importlib.import_module(f"{name}.demo")
    app = load_app(show.APP)
    declared = app.schedules._declared  # noqa: SLF001 - nobody else needs to declare a thing twice
    for key in declared.keys() & show.FAST.keys():
        declared[key] = msgspec.structs.replace(declared[key], when=show.FAST[key])
    return app


app = hurried(os.environ["SERENO_DEMO"])
