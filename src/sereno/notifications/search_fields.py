"""The fields by which deliveries, events and recipients are searched."""

from typing import get_args

from sereno.notifications.deliveries.delivery import State
from sereno.search.syntax import YES_NO, SearchField

DELIVERY_FIELDS = (
    SearchField("state", "choice", get_args(State)),
    SearchField("channel", "word"),
    SearchField("account", "word"),
    SearchField("event", "word"),
    SearchField("subject", "word"),
    SearchField("recipient", "word"),
    SearchField("tenant", "word"),
    SearchField("reason", "part"),
    SearchField("error", "part"),
    SearchField("provider", "word"),
    SearchField("id", "id"),
    SearchField("event_id", "id"),
    SearchField("job", "id"),
    SearchField("attempts", "number"),
    SearchField("created", "moment"),
    SearchField("due", "moment"),
    SearchField("sent", "moment"),
    SearchField("changed", "moment"),
    SearchField("age", "length"),
)
EVENT_FIELDS = (
    SearchField("type", "word"),
    SearchField("subject", "word"),
    SearchField("key", "word"),
    SearchField("category", "word"),
    SearchField("channel", "word"),
    SearchField("tenant", "word"),
    SearchField("trace", "word"),
    SearchField("note", "part"),
    SearchField("id", "id"),
    SearchField("matched", "choice", YES_NO),
    SearchField("critical", "choice", YES_NO),
    SearchField("created", "moment"),
    SearchField("due", "moment"),
    SearchField("age", "length"),
    SearchField("payload", "inside"),
)
RECIPIENT_FIELDS = (
    SearchField("key", "word"),
    SearchField("tenant", "word"),
    SearchField("channel", "word"),
    SearchField("locale", "word"),
    SearchField("zone", "word"),
    SearchField("created", "moment"),
    SearchField("changed", "moment"),
    SearchField("data", "inside"),
)
