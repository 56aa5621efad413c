"""An error with an HTTP status: the API renders it as a problem document, the dashboard as a page."""

from collections.abc import Mapping
from http import HTTPStatus


class HTTPError(Exception):
    """Aborts a request; the response carries its status and detail."""

    def __init__(self, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers


def not_found(what: str) -> HTTPError:
    return HTTPError(HTTPStatus.NOT_FOUND, f"there is no {what}, or you have no access to it")
