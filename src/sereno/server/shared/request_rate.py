"""A limit on the requests of one sender, such as the holder of a signed link."""

import time
from collections import OrderedDict
from collections.abc import Hashable
from http import HTTPStatus

from sereno.server.shared.http_error import HTTPError

# Senders that are counted; the one that was seen first is dropped.
MOST_COUNTED = 10_000
WINDOW_SECONDS = 60.0


class RequestRate:
    """Counts requests by sender, in windows of a minute that begin with the first request."""

    def __init__(self, most: int) -> None:
        self._most = most
        # By sender: when the window began, and the requests since then.
        self._counted: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def check(self, sender: Hashable, now: float | None = None) -> None:
        """Count a request; 429 above the limit."""
        at = time.monotonic() if now is None else now
        began, count = self._counted.get(sender, (at, 0))
        if at >= began + WINDOW_SECONDS:
            self._counted.pop(sender)
            began, count = at, 0
        if count >= self._most:
            wait = int(began + WINDOW_SECONDS - at) + 1
            detail = f"more than {self._most} requests in a minute: try again in {wait} s"
            raise HTTPError(HTTPStatus.TOO_MANY_REQUESTS, detail, {"Retry-After": str(wait)})
        self._counted[sender] = (began, count + 1)
        while len(self._counted) > MOST_COUNTED:
            self._counted.popitem(last=False)
