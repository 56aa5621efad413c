"""The fields by which error groups, tenants and the audit log are searched."""

from sereno.search.syntax import YES_NO, Field

ERROR_FIELDS = (
    Field("task", "word"),
    Field("type", "word"),
    Field("message", "part"),
    Field("where", "part"),
    Field("fingerprint", "word"),
    Field("note", "part"),
    Field("muted", "choice", YES_NO),
    Field("job", "id"),
    Field("count", "number"),
    Field("total", "number"),
    Field("first", "moment"),
    Field("last", "moment"),
)
TENANT_FIELDS = (
    Field("tenant", "word"),
    Field("paused", "choice", YES_NO),
    Field("jobs", "number"),
    Field("failed", "number"),
    Field("seconds", "number"),
    Field("deliveries", "number"),
)
AUDIT_FIELDS = (
    Field("actor", "word"),
    Field("action", "word"),
    Field("subject", "word"),
    Field("at", "moment"),
)
