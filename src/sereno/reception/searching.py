"""What may be searched for: what is masked is not found by guessing either."""

from http import HTTPStatus

from sereno.domain.access import Principal
from sereno.domain.masking import is_secret
from sereno.domain.search import parse
from sereno.operations.search import JOB_FIELDS
from sereno.reception.declined import Declined


def check_search(text: str | None, who: Principal) -> None:
    """403 for a guess at an argument that looks like a secret, by somebody who cannot reveal it."""
    if who.may("operator") or not text:
        return
    for term in parse(text, JOB_FIELDS).terms:
        if term.name == "args" and any(is_secret(part) for part in term.path):
            name = ".".join(("args", *term.path))
            raise Declined(HTTPStatus.FORBIDDEN, f"{name:.80} is masked: to search by it takes operator")
