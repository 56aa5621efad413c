"""The application of a demo worker: the example that `SERENO_DEMO` names, with faster schedules.

The schedules fire often enough for a demo of a minute; everything else is unchanged.
"""

import importlib
import os

import msgspec

from sereno.app import Sereno
from sereno.cli.context import load_app


def sped_up(name: str) -> Sereno:
    """Return the application of an example, with the schedules that its demo module overrides."""
    show = importlib.import_module(f"{name}.demo")
    app = load_app(show.APP)
    declared = app.schedules._declared  # noqa: SLF001 - only the demo replaces a declaration
    for key in declared.keys() & show.FAST.keys():
        declared[key] = msgspec.structs.replace(declared[key], when=show.FAST[key])
    return app


app = sped_up(os.environ["SERENO_DEMO"])
