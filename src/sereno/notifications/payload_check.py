"""Checks the payload of events that were created in SQL, before their deliveries are created."""

import logging
from collections.abc import Mapping

from sereno.database.database import Database
from sereno.error_text import one_line
from sereno.errors import InvalidArguments
from sereno.notifications import event_types
from sereno.notifications.event import EventDefinition
from sereno.telemetry.log_events import emit


async def is_payload_valid(database: Database, definitions: Mapping[str, EventDefinition], event: int) -> bool:
    """Return False for an event whose payload does not match its type; the event is closed with a note.

    An event of a type that this code does not declare is not checked.
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
            f"event {event} ({definition.name}): payload of the wrong shape, no deliveries were created; see its note",
            event_id=event,
            event_type=definition.name,
        )
        return False
    return True
