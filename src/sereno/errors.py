"""Everything that sereno raises on purpose.

SerenoError
├── ConfigurationError        a setting or a declaration makes no sense
│   ├── EmbeddedPostgresError   the embedded PostgreSQL could not be started
│   ├── UnknownTask             no task of that name in this application
│   └── UnknownEvent            no event of that name in this application
├── InvalidArguments          refused before anything was written
├── InvalidAddress            a channel can never reach it; nothing was written
├── RejectedCallback          it does not prove that it comes from the provider
├── InvalidSchedule           the schedule was refused; nothing was written
├── DuplicateJob              a job with this unique key exists, and the caller asked to be told
├── JobNotFound               no job has this id
├── DatabaseUnavailable       PostgreSQL did not answer
│   └── ConnectionsInUse        every connection that may be opened is in use; a job that meets this is put off
├── ArchiveUnavailable        the place of archived files did not answer, or holds something else
├── SchemaError               the schema is missing, or older than this code
├── LeaseLost                 this attempt is no longer ours: its writes change nothing
└── Refused                   not without confirmation
"""


class SerenoError(Exception):
    """Base of every error that sereno raises on purpose."""


class ConfigurationError(SerenoError):
    """A setting or a declaration makes no sense."""


class EmbeddedPostgresError(ConfigurationError):
    """The embedded PostgreSQL could not be started."""


class UnknownTask(ConfigurationError):
    """No task of that name is registered in this application."""


class InvalidArguments(SerenoError):
    """The job was refused; nothing was written."""


class InvalidSchedule(SerenoError):
    """The schedule was refused; nothing was written."""


class DuplicateJob(SerenoError):
    """A job with this unique key exists already."""

    def __init__(self, message: str, job_id: int) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobNotFound(SerenoError):
    """No job has this id."""


class DatabaseUnavailable(SerenoError):
    """PostgreSQL did not answer."""


class ConnectionsInUse(DatabaseUnavailable):
    """Every connection that this process or the server allows is in use. A job that raises it is put off."""


class ArchiveUnavailable(SerenoError):
    """The place of archived files did not answer, or holds something else than it should."""


class SchemaError(SerenoError):
    """The schema is missing, or older than this code."""


class LeaseLost(SerenoError):
    """This attempt is no longer ours: its writes change nothing."""


class Refused(SerenoError):
    """Not done, because it needs a confirmation that was not given."""


class UnknownEvent(ConfigurationError):
    """No event of that name in this application."""


class InvalidAddress(SerenoError):
    """An address that a channel can never reach; the message says what is wrong with it."""


class RejectedCallback(SerenoError):
    """A callback that does not prove that it comes from the provider, or cannot be read."""


def first_line(error: BaseException) -> str:
    """What an error says, as one line that is not too long; its kind, where it says nothing."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:500]
