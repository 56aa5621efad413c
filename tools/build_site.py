"""Build the documentation site from docs/, the examples and the docstrings, with every warning as an error.

    make docs

The result is `build/site/VERSION/`, beside the versions that were built before; `versions.json`, from which the pages
fill their list of versions; and an `index.html` that leads to the newest. The site loads nothing from elsewhere.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from sereno.version import __version__

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
# Zensical reads pages from here.
STAGE = BUILD / "pages"
SITE = BUILD / "site"
CONFIGURATION = ROOT / "zensical.toml"

# Files outside docs/ that are pages even without a link to them.
_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE")
_LANGUAGES = {".py": "python", ".sh": "sh", ".sql": "sql", ".yaml": "yaml", ".service": "ini"}
_LINK = re.compile(r"(?P<head>\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
# The order of the sections, as on the index; "project" has the files outside docs/.
_SECTIONS = ("start", "learn", "recipes", "operate", "extend", "reference", "why", "project")
# How a test runs a block.
_MARK = re.compile(r"^<!-- (?:run|pytest|file|/?bench)[^>]*-->\n", re.MULTILINE)
# The first item of a list right below a paragraph: Python-Markdown wants an empty line between them.
_TIGHT_LIST = re.compile(r"^(?P<above>(?![ \t]*(?:[-*]|\d+\.) |[ \t]*$|#|\||```).+)\n(?=(?:[-*]|1\.) )", re.MULTILINE)
_NEWEST = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>sereno</title>
<meta http-equiv="refresh" content="0; url=VERSION/"></head>
<body><a href="VERSION/">The documentation of sereno VERSION</a></body></html>
"""


def main() -> None:
    stage()
    build()
    publish()


def stage() -> None:
    """Write the pages as the site shows them: without the marks of tests, with all links inside the site."""
    shutil.rmtree(STAGE, ignore_errors=True)
    for path in sorted((ROOT / "docs").rglob("*")):
        place = STAGE / path.relative_to(ROOT / "docs")
        if path.suffix == ".md":
            _write(place, _page(path, path.read_text()))
        elif path.suffix == ".png":
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
    for path in _outside():
        _write(_place(path), _shown(path))


def build() -> None:
    """Run Zensical; end the program when it prints a warning or fails."""
    before, project, after = CONFIGURATION.read_text().partition("[project]\n")
    configuration = BUILD / CONFIGURATION.name
    configuration.write_text(f"{before}{project}nav = [\n{navigation()}]\n{after}")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", str(configuration)]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if ran.returncode != 0 or "warning" in ran.stdout.lower():
        sys.exit(f"{ran.stdout}\nthe documentation site was not built: correct the pages above")


def navigation() -> str:
    """Return the sections in the order of the index, with their pages by title."""
    lines = ['  { "sereno" = "index.md" },\n']
    for section in _SECTIONS:
        pages = sorted((STAGE / section).rglob("*.md"), key=lambda page: (page.name != "index.md", _title(page)))
        entries = ", ".join(f"{{ {json.dumps(_title(page))} = {json.dumps(_in_stage(page))} }}" for page in pages)
        lines.append(f'  {{ "{section.capitalize()}" = [{entries}] }},\n')
    return "".join(lines)


def _title(page: Path) -> str:
    """Return the first heading of a page."""
    return page.read_text().partition("\n")[0].removeprefix("# ").replace("`", "")


def _in_stage(page: Path) -> str:
    return page.relative_to(STAGE).as_posix()


def publish() -> None:
    """Move the built site to the directory of its version, and list all versions."""
    place = SITE / __version__
    shutil.rmtree(place, ignore_errors=True)
    SITE.mkdir(parents=True, exist_ok=True)
    (BUILD / "html").rename(place)
    built = [path.name for path in SITE.iterdir() if (path / "index.html").is_file()]
    newest, *older = sorted(built, key=_numbers, reverse=True)
    listed: list[dict[str, object]] = [{"version": newest, "title": newest, "aliases": ["latest"]}]
    listed += [{"version": version, "title": version, "aliases": []} for version in older]
    (SITE / "versions.json").write_text(json.dumps(listed, indent=1) + "\n")
    (SITE / "index.html").write_text(_NEWEST.replace("VERSION", newest))


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _outside() -> list[Path]:
    """Return the files and directories outside docs/ that pages link to, directly or through such files."""
    found: set[Path] = set()
    waiting = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in _PAGES)]
    while waiting:
        path = waiting.pop()
        if not path.is_relative_to(ROOT / "docs"):
            found.add(path)
        if path.suffix == ".md":
            targets = (_target(path, match["target"]) for match in _LINK.finditer(_FENCE.sub("", path.read_text())))
            waiting += (
                each for each in targets if each and not each.is_relative_to(ROOT / "docs") and each not in found
            )
    return sorted(found)


def _target(page: Path, link: str) -> Path | None:
    """Return what a link leads to, or nothing if it leads out of this repository."""
    if ":" in link:
        return None
    path = (page.parent / link).resolve()
    return path / "README.md" if (path / "README.md").is_file() else path


def _place(path: Path) -> Path:
    """Return where the site has a file or directory of this repository."""
    if path.is_relative_to(ROOT / "docs"):
        return STAGE / path.relative_to(ROOT / "docs")
    name = path.relative_to(ROOT)
    if name == Path("README.md"):
        name = Path("overview.md")
    elif path.is_dir():
        name = name / "index.md"
    elif path.suffix != ".md":
        name = name.with_name(name.name.replace(".", "_") + ".md")
    return STAGE / "project" / name


def _shown(path: Path) -> str:
    """Return the page of a file, or of all files of a directory."""
    if path.suffix == ".md":
        return _page(path, path.read_text())
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file() and each.parent.name != "__pycache__")
        return f"# {path.name}\n\n" + "\n".join(_code(each, f"## {each.relative_to(path)}") for each in files)
    return _code(path, f"# {path.name}")


def _code(path: Path, heading: str) -> str:
    return f"{heading}\n\n```{_LANGUAGES.get(path.suffix, 'text')}\n{path.read_text()}```\n"


def _page(path: Path, text: str) -> str:
    """Return the text with its links changed, outside its code blocks."""
    parts, end = [], 0
    text = _MARK.sub("", text)
    for fence in _FENCE.finditer(text):
        parts += [_prose(path, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _prose(path, text[end:])])


def _prose(path: Path, text: str) -> str:
    def moved(match: re.Match[str]) -> str:
        target = _target(path, match["target"])
        if target is None:
            return match[0]
        there = _relative(_place(path), _place(target)) if target.suffix != ".png" else match["target"]
        return f"{match['head']}{there}{match['anchor'] or ''})"

    return _TIGHT_LIST.sub(r"\g<above>\n\n", _LINK.sub(moved, text))


def _relative(page: Path, target: Path) -> str:
    return Path(os.path.relpath(target, page.parent)).as_posix()


def _write(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


if __name__ == "__main__":
    main()
