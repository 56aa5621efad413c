"""What is raised when the database is too slow, or away."""

import psycopg

from sereno.errors import DatabaseUnavailable

BUSY = (psycopg.OperationalError, DatabaseUnavailable, TimeoutError)
