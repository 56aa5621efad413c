"""Previews: what a recipient would read, rendered by a template or a function of the code, with a sample payload."""

from collections.abc import Mapping
from typing import Any

import msgspec

from sereno.errors import SerenoError
from sereno.notifications.event import Content, EventDefinition, Recipient
from sereno.notifications.templates.render_process import render_apart
from sereno.notifications.templates.templates import TemplateFailed, TemplateSet


def render(
    definition: EventDefinition | None,
    words: TemplateSet,
    event: str,
    channel: str,
    payload: Mapping[str, Any],
    recipient: Recipient,
) -> Content | None:
    """Render as a worker does: a function for the channel precedes templates, a general one follows. None without any.

    Templates are rendered in a separate process with limits; functions of the code are trusted.
    """
    raw = msgspec.json.encode(payload)
    if definition is not None:
        definition.decode(raw)
        if channel in definition.templates:
            return _by_function(definition, channel, raw, recipient)
    made = render_apart(words, event, channel, payload, recipient)
    if made is None and definition is not None and None in definition.templates:
        made = _by_function(definition, channel, raw, recipient)
    return made


def _by_function(definition: EventDefinition, channel: str, raw: bytes, recipient: Recipient) -> Content:
    try:
        made: Any = definition.content(channel, raw, recipient)
    except SerenoError:
        raise
    except Exception as error:  # code of the application, with an arbitrary payload
        raise TemplateFailed(f"the function for {definition.name} failed: {type(error).__name__}") from error
    if not isinstance(made, Content):
        raise TemplateFailed(f"the function for {definition.name} does not return Content")
    return made
