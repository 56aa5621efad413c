"""The name of the limit that all calls to the partner share; a 429 closes it."""

LIMIT = "reconciliation.partner"
