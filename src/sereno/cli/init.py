"""`sereno init`: create a small working project with passing tests."""

import keyword
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import click

from sereno.cli.options import output_option
from sereno.cli.output import show_record
from sereno.errors import ConfigurationError, Refused

# Path of each file in the project -> name of its template.
PLAIN = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    ".gitignore": "gitignore",
    ".env.example": "env",
    "{package}/__init__.py": "package.py",
    "{package}/jobs.py": "jobs.py",
    "tests/test_jobs.py": "test_jobs.py",
}
FASTAPI = PLAIN | {
    "pyproject.toml": "pyproject_fastapi.toml",
    "README.md": "README_fastapi.md",
    ".env.example": "env_fastapi",
    "{package}/web.py": "web.py",
    "tests/test_web.py": "test_web.py",
}
# A package with one of these names would shadow a module that the project imports.
TAKEN = frozenset({"fastapi", "httpx", "msgspec", "psycopg", "pydantic", "pytest", "sereno", "tests", "uvicorn"})
LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class CreatedFiles:
    """The files that were created, and the commands to run next."""

    directory: str
    package: str
    files: list[str]
    next: list[str]


@click.command(epilog="Example: sereno init shop --fastapi")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option("--fastapi", is_flag=True, help="Add an HTTP API that enqueues jobs, and mount the dashboard.")
@output_option
@click.option("-v", "--verbose", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def init(directory: Path, fastapi: bool, form: str) -> None:
    """Create a small working project: a task, a cycle and passing tests.

    The project goes to DIRECTORY, by default the current one. Existing files are never overwritten.
    """
    package = package_name(directory.resolve().name)
    contents = _contents(FASTAPI if fastapi else PLAIN, package)
    with _explained(directory):
        _check_free(directory, contents)
        _write(directory, contents)
    # The name of a directory may not be valid UTF-8.
    shown = str(directory).encode("utf-8", "replace").decode()
    made = CreatedFiles(shown, package, list(contents), _next_words(directory, shown, package, fastapi=fastapi))
    show_record(form, made, lambda: _words(made))


def package_name(directory: str) -> str:
    """Return an importable name that shadows no module: `My Shop!` -> `my_shop`, `json` -> `json_app`."""
    plain = unicodedata.normalize("NFKD", directory).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9]+", "_", plain)[:LONGEST_NAME].strip("_") or "app"
    if name[0].isdigit():
        name = f"app_{name}"
    if keyword.iskeyword(name) or name in sys.stdlib_module_names or name in TAKEN:
        name = f"{name}_app"
    return name


def _contents(wanted: Mapping[str, str], package: str) -> dict[str, str]:
    """Return the text of each file by its path in the project."""
    templates = files("sereno.cli") / "init_files"
    words = {"@package@": package, "@project@": package.replace("_", "-")}
    contents = {}
    for path, template in wanted.items():
        text = (templates / f"{template}.tmpl").read_text("utf-8")
        for mark, word in words.items():
            text = text.replace(mark, word)
        contents[path.format(package=package)] = text
    return contents


def _check_free(directory: Path, contents: Mapping[str, str]) -> None:
    """Raise Refused, before anything is written, if a file exists or its directory is a symlink or a file."""
    in_the_way = []
    for path in contents:
        place = directory / path
        parent = place.parent
        if parent != directory and (parent.is_symlink() or (parent.exists() and not parent.is_dir())):
            in_the_way.append(parent.name)
        elif place.is_symlink() or place.exists():
            in_the_way.append(path)
    if in_the_way:
        there = ", ".join(dict.fromkeys(in_the_way))
        raise Refused(f"nothing was written: {directory} already has {there}; choose another directory")


def _write(directory: Path, contents: Mapping[str, str]) -> None:
    """Write all files or none: on an error, remove what was created, except directories that gained other files."""
    made: list[Path] = []
    try:
        for path, text in contents.items():
            place = directory / path
            for missing in reversed([each for each in (place.parent, *place.parent.parents) if not each.exists()]):
                missing.mkdir()
                made.append(missing)
            # Mode "x": another process may have created the file since the check.
            with place.open("x", encoding="utf-8", newline="\n") as file:
                made.append(place)
                file.write(text)
    except BaseException:
        for path_made in reversed(made):
            with suppress(OSError):
                path_made.rmdir() if path_made.is_dir() else path_made.unlink()
        raise


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    """Turn errors of the file system into one-line errors."""
    try:
        yield
    except FileExistsError as error:
        raise Refused(f"nothing was written: another process has just created {error.filename}") from None
    except OSError as error:
        place = error.filename or directory
        raise ConfigurationError(f"nothing was written: {place}: {error.strerror or error}") from None


def _next_words(directory: Path, shown: str, package: str, *, fastapi: bool) -> list[str]:
    go = [] if directory.resolve() == Path.cwd() else [f"cd {shlex.quote(shown)}"]
    serve = [f"uvicorn {package}.web:web  # in another terminal"] if fastapi else []
    return [*go, "pip install -e '.[dev]'", "pytest", f"sereno worker {package}.jobs:app --embedded", *serve]


def _words(made: CreatedFiles) -> Iterator[str]:
    yield f"Created {len(made.files)} files in {made.directory}. Next:"
    for command in made.next:
        yield f"    {command}"
    yield "README.md describes the files."
