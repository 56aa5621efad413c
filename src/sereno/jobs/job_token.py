"""Job tokens: let a client read the progress of one job for some hours, signed by the application.

A token is readable: it contains the id of the job. It cannot be created or changed without the secret of the
installation, and opens nothing but the stream of that job.
"""

import math

import msgspec

from sereno.access.signed_token import SignedTokens
from sereno.duration import Duration, seconds
from sereno.errors import ConfigurationError, InvalidArguments

PREFIX = "srj_"
# Longest lifetime of a token in seconds, a year.
LONGEST_LIFE = 366 * 86400


class JobReader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The job whose progress a token opens. `until`: expiry in seconds since 1970."""

    job: int
    until: int


_tokens = SignedTokens(PREFIX, b"sereno job", JobReader)


def sign_token(secret: str | None, job_id: int, valid_for: Duration, now: float) -> str:
    """Return a token for a job; raise without a secret, and for a duration that is too long."""
    lasts = seconds(valid_for)
    if secret is None:
        raise ConfigurationError("job tokens are signed: set SERENO_SECRET")
    if not 0 < lasts <= LONGEST_LIFE:
        raise InvalidArguments(f"valid_for={valid_for!r:.60}: it must be positive and at most one year")
    if not 0 <= job_id < 2**63:
        raise InvalidArguments(f"job_id={job_id!r:.60}: it must be the id of a job")
    return make_token(secret, JobReader(job_id, math.ceil(now + lasts)))


def make_token(secret: str, reader: JobReader) -> str:
    return _tokens.make(secret, reader)


def read_token(secret: str, token: str, now: float) -> JobReader | None:
    """Return the reader; None if the token is not valid or has expired."""
    reader = _tokens.read(secret, token)
    if reader is None:
        return None
    return reader if reader.until > now else None
