"""No, with its reason: the API answers it with a problem, the pages with a page."""

from collections.abc import Mapping
from http import HTTPStatus


class HTTPError(Exception):
    """Answered with a problem instead."""

    def __init__(self, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers


def not_found(what: str) -> HTTPError:
    return HTTPError(HTTPStatus.NOT_FOUND, f"there is no {what}, or it is not yours to see")
