"""For root, the server runs as another account, and private directories stay private."""

import os
import pwd
import shutil
import stat
from pathlib import Path

import pytest

from sereno.database.embedded import EmbeddedPostgres
from sereno.database.embedded.programs import SystemAccount, wheel_bin_dir
from sereno.errors import EmbeddedPostgresError
from tests.database.embedded.server_steps import as_user, execute, modes, query, server_process

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs its server as another user")


@pytest.mark.slow
@only_root
def test_a_server_of_root_runs_as_the_owner_of_its_data(directory: Path) -> None:
    unprivileged = pwd.getpwnam("nobody")
    with EmbeddedPostgres(directory) as server:
        data = Path(query(server.url, "show data_directory"))
        assert data.stat().st_uid != 0
        assert Path(f"/proc/{server_process(server.url)}").stat().st_uid == data.stat().st_uid
    for path in (data.parent, *data.parent.rglob("*")):
        os.chown(path, unprivileged.pw_uid, unprivileged.pw_gid)
    with EmbeddedPostgres(directory) as server:
        assert Path(f"/proc/{server_process(server.url)}").stat().st_uid == unprivileged.pw_uid


@pytest.mark.slow
@only_root
def test_a_private_home_stays_private(private_home: Path, system_directory: Path) -> None:
    project = private_home / "project"
    project.mkdir()
    installed = wheel_bin_dir().parents[1]
    before = modes(project, installed)
    with EmbeddedPostgres(project / ".sereno") as server:
        execute(server.url, "create table stored as select 42 as answer")
        data = Path(query(server.url, "show data_directory"))
        assert data.is_relative_to(system_directory)
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        assert {path: mode for path, mode in modes(project, installed).items() if path in before} == before
    private_home.chmod(0o755)
    with EmbeddedPostgres(project / ".sereno") as server:
        assert query(server.url, "select answer from stored") == "42"


@pytest.mark.slow
@only_root
def test_programs_inside_a_private_home_are_copied(private_home: Path, system_directory: Path) -> None:
    installed = wheel_bin_dir().parent
    copied = private_home / "site-packages" / installed.parent.name / installed.name
    shutil.copytree(installed, copied, symlinks=True)
    libraries = installed.parents[1] / f"{installed.parent.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, private_home / "site-packages" / libraries.name, symlinks=True)
    for path in copied.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)
    before = modes(private_home)
    with EmbeddedPostgres(private_home / ".sereno", bin_dir=copied / "bin") as server:
        program_path = Path(f"/proc/{server_process(server.url)}/exe").resolve()
        assert program_path.is_relative_to(system_directory)
        assert {path: mode for path, mode in modes(private_home).items() if path in before} == before
    written = program_path.stat().st_mtime_ns
    with EmbeddedPostgres(private_home / ".sereno", bin_dir=copied / "bin") as server:
        assert query(server.url, "select 1") == "1"
    assert program_path.stat().st_mtime_ns == written
    assert not list(system_directory.glob(".unfinished-*"))


@only_root
def test_a_private_installation_other_than_the_wheel_is_not_copied(private_home: Path, system_directory: Path) -> None:
    shutil.copytree(wheel_bin_dir(), private_home / "bin", symlinks=True)
    with pytest.raises(EmbeddedPostgresError, match="every user can enter"):
        EmbeddedPostgres(private_home / ".sereno", bin_dir=private_home / "bin").start()
    assert not list(system_directory.glob("postgresql-*"))


@pytest.mark.slow
@only_root
def test_an_ordinary_user_keeps_everything_in_the_directory(place: Path) -> None:
    unprivileged = pwd.getpwnam("nobody")
    if not SystemAccount(unprivileged.pw_uid, unprivileged.pw_gid).executes(wheel_bin_dir() / "initdb"):
        pytest.skip("the wheel is installed where only root can use it")
    home = place / "home"
    home.mkdir()
    home.chmod(0o700)
    os.chown(home, unprivileged.pw_uid, unprivileged.pw_gid)
    directory = home / ".sereno"

    def use_twice() -> str:
        with EmbeddedPostgres(directory) as server:
            execute(server.url, "create table if not exists stored as select 42 as answer")
        with EmbeddedPostgres(directory) as server:
            return query(server.url, "select answer || current_setting('data_directory') from stored")

    assert as_user(unprivileged, use_twice) == f"42{directory}/postgres/data"
    assert {path.stat().st_uid for path in directory.rglob("*")} == {unprivileged.pw_uid}
    # Root later starts the server as the owner of the data, and leaves no files that block the owner.
    with EmbeddedPostgres(directory) as server:
        assert Path(f"/proc/{server_process(server.url)}").stat().st_uid == unprivileged.pw_uid
    assert as_user(unprivileged, use_twice) == f"42{directory}/postgres/data"
