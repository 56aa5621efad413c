"""Blocks in other languages than Python and SQL work as the page says."""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sereno import Sereno
from tests.docs.pages import ROOT, only

CHANNELS = ROOT / "docs" / "extend" / "write-a-channel.md"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the package of the page: the module, and the entry points of its `pyproject.toml`."""
    offered = tomllib.loads(only(CHANNELS, "toml"))["project"]["entry-points"]
    sections = [
        "\n".join([f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())])
        for group, entries in offered.items()
    ]
    metadata = tmp_path / "pager-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pager\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("\n".join(sections))
    (tmp_path / "pager.py").write_text(only(CHANNELS, "python", name="pager.py"))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("pager", None)


@pytest.mark.usefixtures("installed")
def test_a_channel_of_an_installed_package_is_found_by_its_name() -> None:
    app = Sereno()
    app.event("fire", dict, channels=["pager"])
    assert type(app.channels["pager"]).__module__ == "pager"
    assert app.channels.check_address("pager", " 4711 ") == "4711"
    assert app.channels.resolve(["pager"]) == (["pager"], None)


def test_an_unknown_channel_is_replaced_by_the_inbox_with_a_note() -> None:
    app = Sereno()
    app.event("fire", dict, channels=["pager"])
    active, note = app.channels.resolve(["pager"])
    assert active == ["in_app"]
    assert note is not None
