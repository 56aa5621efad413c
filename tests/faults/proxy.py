"""A TCP proxy in front of a server that can reset its connections, refuse new ones, or drop their traffic silently."""

import select
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit


class Proxy:
    """Listens on loopback. `target`: a Unix socket or a port; `url` reaches the same database through it."""

    def __init__(self, target: str | int, name: str = "", user: str = "postgres") -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"postgresql://{user}@127.0.0.1:{self.port}/{name}"
        self._is_blocked = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._frozen_pairs: list[tuple[socket.socket, socket.socket]] = []
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @classmethod
    def before(cls, url: str) -> Self:
        """Start a proxy in front of a server that listens on a Unix socket."""
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        target = f"{query['host'][0]}/.s.PGSQL.{query.get('port', ['5432'])[0]}"
        return cls(target, parts.path.lstrip("/"), parts.username or "postgres")

    def cut(self) -> None:
        """End every connection that is not frozen."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _end(pair)

    def block(self) -> None:
        """End every connection, and refuse new ones."""
        self._is_blocked = True
        self.cut()

    def unblock(self) -> None:
        self._is_blocked = False

    def freeze(self) -> None:
        """Drop all traffic of the open connections silently; new connections work."""
        frozen, self._pairs = self._pairs, []
        self._frozen_pairs += frozen

    def forget_frozen(self) -> None:
        """End the frozen connections."""
        frozen, self._frozen_pairs = self._frozen_pairs, []
        for pair in frozen:
            _end(pair)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self.forget_frozen()
        self.cut()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            target = self._target
            server = socket.socket(socket.AF_INET if isinstance(target, int) else socket.AF_UNIX)
            try:
                server.connect(("127.0.0.1", target) if isinstance(target, int) else target)
            except OSError:
                # The server is down.
                client.close()
                server.close()
                continue
            pair = (client, server)
            self._pairs.append(pair)
            if self._is_blocked:
                self.cut()
            threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        """Copy until one end closes. Only this thread closes the pair: another one could hit a reused descriptor."""
        pair = (client, server)
        try:
            while True:
                readable, _, _ = select.select([client, server], [], [], 0.5)
                while pair in self._frozen_pairs:
                    # It stays open and silent. Its data stays unread, so select would return at once.
                    time.sleep(0.05)
                for end in readable:
                    data = end.recv(65536)
                    if not data:
                        return
                    (server if end is client else client).sendall(data)
        except OSError:
            return
        finally:
            client.close()
            server.close()


def _end(pair: tuple[socket.socket, socket.socket]) -> None:
    """End both connections; the thread that copies their data closes them."""
    for end in pair:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
