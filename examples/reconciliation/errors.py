"""The errors of a run: retried by the policy of its job, or permanent. All others are retried too."""


class PartnerError(Exception):
    """The partner is unavailable, or its response is unusable."""


class PermanentError(Exception):
    """A retry would fail in the same way: the job is a dead letter at once."""


class BadCredentials(PermanentError):  # noqa: N818 - these are named for what happened
    """The partner refuses our application."""


class Refused(PermanentError):  # noqa: N818
    """The merchant is gone, has revoked our access, or has no report."""


class UnsafeLink(PermanentError):  # noqa: N818
    """The address of a report is not one that we call."""


class BadReport(PermanentError):  # noqa: N818
    """The file is invalid, or is not the one that was requested."""
