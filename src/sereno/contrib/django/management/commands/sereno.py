"""`manage.py sereno …`: the command line of sereno, with Django's settings, database and tasks."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sereno.cli.main import main

APP = "sereno.contrib.django.entry:app"
# Of manage.py itself, and read by it.
THEIRS = ("--settings", "--pythonpath")


class Command(BaseCommand):
    """`manage.py sereno worker`, `manage.py sereno job list`: as `sereno worker`, `sereno job list`."""

    help = "Workers, schedulers, jobs and everything else of sereno: manage.py sereno --help"
    requires_system_checks = ()

    def run_from_argv(self, argv: Sequence[str]) -> None:
        """All that follows is for sereno to read, its --help too."""
        hand_over(without_theirs(argv[2:]))

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("words", nargs=argparse.REMAINDER)

    def handle(self, *_: Any, words: Sequence[str] = (), **__: Any) -> None:
        """`call_command("sereno", "migrate")`."""
        try:
            hand_over(list(words))
        except SystemExit as end:
            if end.code:
                raise CommandError("sereno said no", returncode=int(end.code)) from None


def hand_over(words: Sequence[str]) -> None:
    """Children of a worker start anew: they find the project where this process did, and are told the same."""
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


def without_theirs(words: Sequence[str]) -> list[str]:
    """Without `--settings shop.settings` and `--settings=shop.settings`."""
    kept: list[str] = []
    skip = False
    for word in words:
        if not skip and not word.startswith(tuple(f"{name}=" for name in THEIRS)) and word not in THEIRS:
            kept.append(word)
        skip = word in THEIRS and not skip
    return kept
