"""The exceptions that sereno raises.

SerenoError
├── ConfigurationError        a setting or a declaration is invalid
│   ├── EmbeddedPostgresError   the embedded PostgreSQL could not be started
│   ├── UnknownTask             no task of that name in this application
│   └── UnknownEvent            no event of that name in this application
├── InvalidArguments          arguments or options are invalid; nothing was written
├── InvalidAddress            a channel can never deliver to this address; nothing was written
├── RejectedCallback          a callback is not authenticated as coming from the provider, or is unreadable
├── InvalidSchedule           the schedule is invalid; nothing was written
├── DuplicateJob              a job with this unique key exists, and on_conflict is "raise"
├── JobNotFound               no job has this id
├── DatabaseUnavailable       PostgreSQL did not answer
│   └── ConnectionsInUse        every allowed connection is in use; a job that raises this is snoozed
├── ResourceUnavailable       a resource of the application could not be opened; the attempt is retried
├── ArchiveUnavailable        the archive storage did not answer, or holds unexpected files
├── SchemaError               the schema is missing, or older than this code
├── LeaseLost                 the worker no longer holds this attempt: its writes are ignored
└── Refused                   the action needs a confirmation, or is not allowed in this state
"""


class SerenoError(Exception):
    """Base class of the exceptions that sereno raises."""


class ConfigurationError(SerenoError):
    """A setting or a declaration is invalid."""


class EmbeddedPostgresError(ConfigurationError):
    """The embedded PostgreSQL could not be started."""


class UnknownTask(ConfigurationError):
    """No task of that name is registered in this application."""


class InvalidArguments(SerenoError):
    """Arguments or options are invalid; nothing was written."""


class InvalidSchedule(SerenoError):
    """The schedule is invalid; nothing was written."""


class DuplicateJob(SerenoError):
    """A job with this unique key exists already."""

    def __init__(self, message: str, job_id: int) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobNotFound(SerenoError):
    """No job has this id."""


class ResourceUnavailable(SerenoError):
    """A resource (`@app.resource`) could not be opened."""


class DatabaseUnavailable(SerenoError):
    """PostgreSQL did not answer."""


class ConnectionsInUse(DatabaseUnavailable):
    """Every connection that this process or the server allows is in use. A job that raises it is snoozed."""


class ArchiveUnavailable(SerenoError):
    """The archive storage did not answer, or holds unexpected files."""


class SchemaError(SerenoError):
    """The schema is missing, or older than this code."""


class LeaseLost(SerenoError):
    """The worker no longer holds this attempt: its writes are ignored."""


class Refused(SerenoError):
    """The action needs a confirmation, or is not allowed in the current state; nothing was changed."""


class UnknownEvent(ConfigurationError):
    """No event of that name is registered in this application."""


class InvalidAddress(SerenoError):
    """An address that a channel can never deliver to; the message says what is wrong with it."""


class RejectedCallback(SerenoError):
    """A callback that is not authenticated as coming from the provider, or is unreadable."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, at most 500 characters; its class if there is no message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:500]
