"""The exceptions that are raised when the database is too slow or unavailable."""

import psycopg

from sereno.errors import DatabaseUnavailable

BUSY = (psycopg.OperationalError, DatabaseUnavailable, TimeoutError)
