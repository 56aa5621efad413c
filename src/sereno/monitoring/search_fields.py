"""The fields by which error groups, tenants and the audit log are searched."""

from sereno.search.syntax import YES_NO, SearchField

ERROR_FIELDS = (
    SearchField("task", "word"),
    SearchField("type", "word"),
    SearchField("message", "part"),
    SearchField("where", "part"),
    SearchField("fingerprint", "word"),
    SearchField("note", "part"),
    SearchField("muted", "choice", YES_NO),
    SearchField("job", "id"),
    SearchField("count", "number"),
    SearchField("total", "number"),
    SearchField("first", "moment"),
    SearchField("last", "moment"),
)
TENANT_FIELDS = (
    SearchField("tenant", "word"),
    SearchField("paused", "choice", YES_NO),
    SearchField("jobs", "number"),
    SearchField("failed", "number"),
    SearchField("seconds", "number"),
    SearchField("deliveries", "number"),
)
AUDIT_FIELDS = (
    SearchField("actor", "word"),
    SearchField("action", "word"),
    SearchField("subject", "word"),
    SearchField("at", "moment"),
)
