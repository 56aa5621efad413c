"""Events that SQL wrote: whether their payload is what the code expects, looked at before anybody is told."""

import logging
from collections.abc import Mapping

from sereno.database.database import Database
from sereno.error_text import one_line
from sereno.errors import InvalidArguments
from sereno.notifications import event_types
from sereno.notifications.event import EventDefinition
from sereno.telemetry.log_events import emit


async def can_be_told(database: Database, definitions: Mapping[str, EventDefinition], event: int) -> bool:
    """False for an event whose payload has the wrong shape: it is closed, and its note says why.

    Of a type that this code does not declare, nothing can be said.
    """
    found = await database.arun_one(event_types.unchecked(event))
    definition = definitions.get(found[0]) if found else None
    if found is None or definition is None:
        return True
    try:
        definition.decode(found[1])
    except InvalidArguments as error:
        await database.arun(event_types.refuse(event, one_line(f"payload of the wrong shape: {error}")))
        # The payload is never logged, and the error may quote it.
        emit(
            logging.WARNING,
            "event.refused",
            f"event {event} ({definition.name}): a payload of the wrong shape, so nobody is told; see its note",
            event_id=event,
            event_type=definition.name,
        )
        return False
    return True
