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
├── GroupNotFound             no group has this id
├── JobFailed                 the job whose result was asked for is dead
├── JobCancelled              the job whose result was asked for was cancelled
├── ResultUnavailable         the job succeeded, but its result was not kept or cannot be read
├── DatabaseUnavailable       PostgreSQL did not answer
│   └── ConnectionsInUse        every allowed connection is in use; a job that raises this is snoozed
├── ResourceUnavailable       a resource of the application could not be opened; the attempt is retried
├── ArchiveUnavailable        the archive storage did not answer, or holds unexpected files
├── SchemaError               the schema is missing, or older than this code
├── PermissionDenied          the role of the connection lacks a privilege
├── LeaseLost                 the worker no longer holds this attempt: its writes are ignored
├── SignalTimeout             no signal was sent in time to a job that waited for it; also a TimeoutError
├── StepOrderChanged          a job has begun with other steps than the code has now; the job is dead
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


class GroupNotFound(SerenoError):
    """No group has this id."""


class JobFailed(SerenoError):
    """The job whose result was asked for is dead; `error_type` and `error_message` are those of its last attempt."""

    def __init__(
        self, message: str, job_id: int, error_type: str | None = None, error_message: str | None = None
    ) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.error_type = error_type
        self.error_message = error_message


class JobCancelled(SerenoError):
    """The job whose result was asked for was cancelled."""

    def __init__(self, message: str, job_id: int) -> None:
        super().__init__(message)
        self.job_id = job_id


class ResultUnavailable(SerenoError):
    """The job succeeded, but its result was not kept or cannot be read."""


class ResourceUnavailable(SerenoError):
    """A resource (`@app.resource`) could not be opened."""


class DatabaseUnavailable(SerenoError):
    """PostgreSQL did not answer."""


class ConnectionsInUse(DatabaseUnavailable):
    """Every connection that this process or the server allows is in use. A job that raises it is snoozed."""


class CarrierUnavailable(SerenoError):
    """The carrier of a queue (NATS JetStream) did not accept a message, or did not answer."""


class CarrierFull(CarrierUnavailable):
    """The stream of a queue has reached its limit of bytes or messages, and accepts no more."""


class ArchiveUnavailable(SerenoError):
    """The archive storage did not answer, or holds unexpected files."""


class SchemaError(SerenoError):
    """The schema is missing, or older than this code."""


class PermissionDenied(SerenoError):
    """The role of the connection to PostgreSQL lacks a privilege."""


class LeaseLost(SerenoError):
    """The worker no longer holds this attempt: its writes are ignored."""


class SignalTimeout(SerenoError, TimeoutError):
    """No signal was sent in time to a job that waited for it."""


class StepOrderChanged(SerenoError):
    """A job has begun with steps in another order than the code has now. It is not retried: the job is dead."""


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
