"""A TCP proxy in front of PostgreSQL that can reset its connections, or drop their traffic silently."""

import select
import socket
import threading
import time
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit


class Proxy:
    """Listens on loopback; `url` reaches the same database through it."""

    def __init__(self, target: str, name: str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"postgresql://postgres@127.0.0.1:{self._listener.getsockname()[1]}/{name}"
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._frozen_pairs: list[tuple[socket.socket, socket.socket]] = []
        self._frozen = threading.Event()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @classmethod
    def before(cls, url: str) -> Self:
        """Start a proxy in front of a server that listens on a Unix socket."""
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        return cls(f"{query['host'][0]}/.s.PGSQL.{query.get('port', ['5432'])[0]}", parts.path.lstrip("/"))

    def cut(self) -> None:
        """Reset every connection."""
        for pair in self._pairs:
            for end in pair:
                end.close()
        self._pairs.clear()

    def freeze(self) -> None:
        """Drop all traffic of the open connections silently; new connections work."""
        frozen, self._pairs = self._pairs, []
        self._frozen_pairs += frozen
        self._frozen.set()

    def heal(self) -> None:
        self._frozen.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self._listener.close()
        self._pairs += self._frozen_pairs
        self.cut()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            pair = (client, server)
            self._pairs.append(pair)
            threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        pair = (client, server)
        try:
            while True:
                readable, _, _ = select.select([client, server], [], [], 0.05)
                # A frozen pair is in no list: it stays open and silent.
                if pair not in self._pairs:
                    if client.fileno() < 0:
                        return
                    # Data stays unread in a frozen pair, so select returns at once.
                    time.sleep(0.05)
                    continue
                for end in readable:
                    data = end.recv(65536)
                    if not data:
                        return
                    (server if end is client else client).sendall(data)
        except (OSError, ValueError):
            return
        finally:
            if pair in self._pairs or client.fileno() < 0:
                for end in pair:
                    end.close()
