"""Objects of a storage as read-only files of an fsspec file system, for programs that read parts of them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sereno.archive.storage import Storage
from sereno.errors import ArchiveUnavailable, ConfigurationError

PROTOCOL: Final = "archived"
# Bytes to read ahead: the rest of a column usually follows.
AHEAD = 1024 * 1024


def readable(place: Storage, sizes: Mapping[str, int]) -> Any:
    """Return a file system of only these objects, `archived://NAME`. Its `trouble` is the storage's last error."""
    try:
        from fsspec.spec import AbstractBufferedFile, AbstractFileSystem  # type: ignore[import-untyped]  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ConfigurationError(
            f"queries of the archive need one more package ({error.name} is missing): pip install 'sereno[query]'"
        ) from None

    class UploadPart(AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
        def _fetch_range(self, start: int, end: int) -> bytes:
            try:
                return place.part(self.path, start, end)
            except ArchiveUnavailable as error:
                self.fs.trouble = error
                raise

    class ListedFile(AbstractFileSystem):  # type: ignore[misc]  # as above
        protocol = PROTOCOL
        cachable = False
        trouble: ArchiveUnavailable | None = None

        def info(self, path: str, **_: Any) -> dict[str, Any]:
            name = self._strip_protocol(path)
            if name not in sizes:
                raise FileNotFoundError(name)
            return {"name": name, "size": sizes[name], "type": "file"}

        def modified(self, path: str) -> datetime:  # noqa: ARG002 - they never change
            return datetime(1970, 1, 1, tzinfo=UTC)

        def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
            if mode != "rb":
                raise PermissionError(f"{path} can only be read")
            return UploadPart(self, path, mode, block_size=AHEAD, cache_type="readahead")

    return ListedFile()
