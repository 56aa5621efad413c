"""The fields by which schedules and their fires are searched."""

from sereno.jobs.lifecycle import FINAL, STATES
from sereno.search.syntax import SearchField

SCHEDULE_FIELDS = (
    SearchField("state", "choice", ("enabled", "paused", "disabled", "parked", "finished")),
    SearchField("key", "word"),
    SearchField("task", "word"),
    SearchField("queue", "word"),
    SearchField("tenant", "word"),
    SearchField("tag", "word"),
    SearchField("kind", "choice", ("cron", "every", "daily", "once")),
    SearchField("zone", "word"),
    SearchField("declared", "word"),
    SearchField("by", "word"),
    SearchField("note", "part"),
    SearchField("last", "choice", FINAL),
    SearchField("error", "part"),
    SearchField("failed", "number"),
    SearchField("next", "moment"),
    SearchField("fired", "moment"),
    SearchField("created", "moment"),
    SearchField("changed", "moment"),
    SearchField("args", "inside"),
)
FIRE_FIELDS = (
    SearchField("state", "choice", (*STATES, "skipped")),
    SearchField("reason", "word"),
    SearchField("error", "part"),
    SearchField("job", "id"),
    SearchField("attempts", "number"),
    SearchField("planned", "moment"),
    SearchField("fired", "moment"),
    SearchField("finished", "moment"),
)
