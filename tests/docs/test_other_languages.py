"""Blocks that are neither Python nor SQL do what the page says of them, too."""

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
    """The package of the page, as an installer leaves it: the module, and what its `pyproject.toml` offers."""
    offered = tomllib.loads(only(CHANNELS, "toml"))["project"]["entry-points"]
    sections = [
        "\n".join([f"[{group}]", *(f"{name} = {place}" for name, place in entries.items())])
        for group, entries in offered.items()
    ]
    about = tmp_path / "pager-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pager\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("\n".join(sections))
    (tmp_path / "pager.py").write_text(only(CHANNELS, "python", name="pager.py"))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("pager", None)


@pytest.mark.usefixtures("installed")
def test_a_channel_that_a_package_offers_is_found_by_its_name() -> None:
    app = Sereno()
    app.event("fire", dict, channels=["pager"])
    assert type(app.channels["pager"]).__module__ == "pager"
    assert app.channels.check_address("pager", " 4711 ") == "4711"
    assert app.channels.resolve(["pager"]) == (["pager"], None)


def test_a_channel_that_nobody_offers_is_told_in_the_application() -> None:
    app = Sereno()
    app.event("fire", dict, channels=["pager"])
    active, note = app.channels.resolve(["pager"])
    assert active == ["in_app"]
    assert note is not None
