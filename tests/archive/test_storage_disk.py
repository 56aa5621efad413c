"""Files in a directory: synced to disk before rows are dropped, and readable only by their owner."""

import os
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from sereno.archive.storage import ObjectNotFound, Storage
from sereno.errors import ArchiveUnavailable, ConfigurationError


@pytest.fixture
def place(tmp_path: Path) -> Storage:
    return Storage("disk", str(tmp_path / "house"))


def test_an_object_is_put_and_found_again(place: Storage, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    place.put("jobs/2026/one", file)
    assert place.get("jobs/2026/one", tmp_path / "back") == (sha256(b"content").hexdigest(), 7)
    place.put_bytes("jobs/2026/one", b"")
    assert place.get("jobs/2026/one", tmp_path / "back") == (sha256(b"").hexdigest(), 0)
    assert place.length("jobs/2026/one") == 0
    assert list(place.names()) == ["jobs/2026/one"]
    assert place.local is not None
    assert place.local.stat().st_mode & 0o077 == 0


def test_a_missing_object_is_reported(place: Storage, tmp_path: Path) -> None:
    assert place.length("nothing") is None
    with pytest.raises(ObjectNotFound):
        place.get("nothing", tmp_path / "back")
    with pytest.raises(ObjectNotFound):
        place.get_bytes("nothing")
    with pytest.raises(ArchiveUnavailable, match="could not write"):
        place.put("name", tmp_path / "no such file")


def test_a_file_and_its_directories_are_synced(place: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    place.put_bytes("jobs/2026/01/one", b"1")
    assert synced == ["one", "01", "2026", "jobs", "archive"]
    synced.clear()
    place.put_bytes("jobs/2026/01/two", b"2")
    assert synced == ["two", "01"]
    synced.clear()
    place.put_bytes("jobs/2026/02/one", b"3")
    assert synced == ["one", "02", "2026"]


def test_a_missing_package_is_reported(place: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ConfigurationError, match="sereno\\[archive\\]"):
        place.put_bytes("name", b"")
