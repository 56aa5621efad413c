"""The fields by which deliveries, events and recipients are searched."""

from typing import get_args

from sereno.notifications.deliveries.delivery import State
from sereno.search.syntax import YES_NO, Field

DELIVERY_FIELDS = (
    Field("state", "choice", get_args(State)),
    Field("channel", "word"),
    Field("account", "word"),
    Field("event", "word"),
    Field("subject", "word"),
    Field("recipient", "word"),
    Field("tenant", "word"),
    Field("reason", "part"),
    Field("error", "part"),
    Field("provider", "word"),
    Field("id", "id"),
    Field("event_id", "id"),
    Field("job", "id"),
    Field("attempts", "number"),
    Field("created", "moment"),
    Field("due", "moment"),
    Field("sent", "moment"),
    Field("changed", "moment"),
    Field("age", "length"),
)
EVENT_FIELDS = (
    Field("type", "word"),
    Field("subject", "word"),
    Field("key", "word"),
    Field("category", "word"),
    Field("channel", "word"),
    Field("tenant", "word"),
    Field("trace", "word"),
    Field("note", "part"),
    Field("id", "id"),
    Field("matched", "choice", YES_NO),
    Field("critical", "choice", YES_NO),
    Field("created", "moment"),
    Field("due", "moment"),
    Field("age", "length"),
    Field("payload", "inside"),
)
RECIPIENT_FIELDS = (
    Field("key", "word"),
    Field("tenant", "word"),
    Field("channel", "word"),
    Field("locale", "word"),
    Field("zone", "word"),
    Field("created", "moment"),
    Field("changed", "moment"),
    Field("data", "inside"),
)
