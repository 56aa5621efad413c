"""Where files may be written, and what becomes of errors."""

from pathlib import Path

import pytest
from reconciliation import settings, storage
from reconciliation.errors import BadReport
from reconciliation.storage import StorageError


async def test_a_path_is_a_directory_as_its_url_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = storage.path_of("a-1", "2026-10", 7)
    monkeypatch.setattr(settings, "STORAGE", str(tmp_path / "files of a month"))
    await storage.put(path, b"content")
    assert (tmp_path / "files of a month" / path).read_bytes() == b"content"
    monkeypatch.setattr(settings, "STORAGE", f"file://{tmp_path}/files%20of%20a%20month")
    assert await storage.get(path) == b"content"
    await storage.delete(path)
    await storage.delete(path)
    with pytest.raises(StorageError, match=r"could not read a-1/2026-10/7\.csv: "):
        await storage.get(path)


def test_no_other_path_is_made(subtests: pytest.Subtests) -> None:
    for account, month in (("../a", "2026-10"), ("a/b", "2026-10"), ("", "2026-10"), ("a", "../.."), ("a", "2026-1")):
        with subtests.test(account=account, month=month), pytest.raises(BadReport):
            storage.path_of(account, month, 7)
