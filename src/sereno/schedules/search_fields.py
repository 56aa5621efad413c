"""The fields by which schedules and their fires are searched."""

from sereno.jobs.lifecycle import FINAL, STATES
from sereno.search.syntax import Field

SCHEDULE_FIELDS = (
    Field("state", "choice", ("enabled", "paused", "disabled", "parked", "finished")),
    Field("key", "word"),
    Field("task", "word"),
    Field("queue", "word"),
    Field("tenant", "word"),
    Field("tag", "word"),
    Field("kind", "choice", ("cron", "every", "daily", "once")),
    Field("zone", "word"),
    Field("declared", "word"),
    Field("by", "word"),
    Field("note", "part"),
    Field("last", "choice", FINAL),
    Field("error", "part"),
    Field("failed", "number"),
    Field("next", "moment"),
    Field("fired", "moment"),
    Field("created", "moment"),
    Field("changed", "moment"),
    Field("args", "inside"),
)
FIRE_FIELDS = (
    Field("state", "choice", (*STATES, "skipped")),
    Field("reason", "word"),
    Field("error", "part"),
    Field("job", "id"),
    Field("attempts", "number"),
    Field("planned", "moment"),
    Field("fired", "moment"),
    Field("finished", "moment"),
)
