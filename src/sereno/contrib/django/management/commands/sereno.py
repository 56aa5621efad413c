"""`manage.py sereno …`: sereno's command line, with Django's settings, database and tasks."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sereno.cli.main import main

APP = "sereno.contrib.django.entry:app"
# Options of manage.py itself, which it has already applied.
DJANGO_OPTIONS = ("--settings", "--pythonpath")


class Command(BaseCommand):
    """`manage.py sereno worker`, `manage.py sereno job list`: as `sereno worker`, `sereno job list`."""

    help = "Runs a command of sereno (worker, scheduler, job, …): see manage.py sereno --help"
    requires_system_checks = ()

    def run_from_argv(self, argv: Sequence[str]) -> None:
        """Pass all arguments to sereno, including --help."""
        run_command(without_django_options(argv[2:]))

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("words", nargs=argparse.REMAINDER)

    def handle(self, *_: Any, words: Sequence[str] = (), **__: Any) -> None:
        """Run a command from code: `call_command("sereno", "migrate")`."""
        try:
            run_command(list(words))
        except SystemExit as end:
            if end.code:
                raise CommandError("the sereno command failed", returncode=int(end.code)) from None


def run_command(words: Sequence[str]) -> None:
    """Run sereno's command line. Environment variables tell worker children which project and app to import."""
    before, argv = dict(os.environ), sys.argv
    os.environ.setdefault("SERENO_APP", APP)
    paths = [str(Path(sys.path[0] or ".").resolve()), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    sys.argv = ["sereno", *words]
    try:
        main(list(words), prog_name="manage.py sereno")
    finally:
        sys.argv = argv
        for name in ("SERENO_APP", "PYTHONPATH"):
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]


def without_django_options(words: Sequence[str]) -> list[str]:
    """Return the arguments without `--settings shop.settings` and `--settings=shop.settings`."""
    own: list[str] = []
    skip = False
    for word in words:
        with_value = word.startswith(tuple(f"{name}=" for name in DJANGO_OPTIONS))
        if not skip and not with_value and word not in DJANGO_OPTIONS:
            own.append(word)
        skip = word in DJANGO_OPTIONS and not skip
    return own
