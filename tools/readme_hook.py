"""The description of the distribution: README.md as a package index shows it, where relative links lead nowhere.

Hatchling calls it for each build. Links to files of this repository become plain text; pictures and marks of tests are
left out.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_MARK = re.compile(r"^<!-- .*? -->\n", re.MULTILINE)
_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[((?:[^\]\[]|\n)+)\]\((?!https?:|mailto:)[^)]*\)")


class ReadmeHook(MetadataHookInterface):
    """Sets `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text()
        metadata["readme"] = {"content-type": "text/markdown", "text": description(text)}


def description(readme: str) -> str:
    """Return the README without what works only beside its files."""
    return _LINK.sub(r"\1", _PICTURE.sub("", _MARK.sub("", readme)))
