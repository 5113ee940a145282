"""The embedded PostgreSQL lets nobody in without its password, and can do no more than its user, who is not root."""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from sqlalchemy.engine import make_url

from ingest.delivery.database.database import connect
from ingest.lab import embedded_postgres
from ingest.lab.embedded_postgres import Postgres
from ingest.runtime.errors import InvalidEnvironment

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its name has characters that a URL must escape, and pytest's folder above it is closed to all other users."""
    return tmp_path_factory.mktemp("own") / "a folder & more"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Postgres]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SOMEBODYS_TOKEN", "s3cret-word")
        server = Postgres(folder)
    with server as running:
        yield running


def password(server: Postgres) -> str:
    return (server.folder / "passfile").read_text().strip().rpartition(":")[2]


def test_nobody_logs_in_without_the_password(server: Postgres) -> None:
    place = make_url(server.url).set(query={})
    for url, why in (
        (place, "no password supplied"),
        (place.set(password="guessed"), "password authentication failed"),
        (place.set(password="guessed", username="nobody"), "password authentication failed"),
    ):
        with pytest.raises(psycopg.OperationalError, match=why):
            psycopg.connect(url.render_as_string(hide_password=False), passfile="/dev/null")
    psycopg.connect(place.set(password=password(server)).render_as_string(hide_password=False)).close()


def test_its_url_works_for_every_client_and_shows_no_password(server: Postgres) -> None:
    assert len(password(server)) >= 32 and password(server) not in server.url
    connect(server.url).dispose()
    connect(make_url(server.url).render_as_string()).dispose()
    psycopg.connect(server.url).close()


def test_only_the_user_who_started_it_can_read_password_log_and_data(server: Postgres) -> None:
    modes = {name: stat.S_IMODE((server.folder / name).stat().st_mode) for name in (".", "passfile", "server.log", "data")}
    assert modes == {".": 0o700, "passfile": 0o600, "server.log": 0o600, "data": 0o700}
    assert (server.folder / "passfile").stat().st_uid == os.geteuid()
    assert password(server) not in (server.folder / "server.log").read_text()


def test_its_process_has_no_capability_no_secret_of_ours_and_is_not_root(server: Postgres) -> None:
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert 0 not in process.uids() and 0 not in process.gids()
    assert "SOMEBODYS_TOKEN" not in process.environ() and password(server) not in " ".join(process.cmdline())


def test_its_superuser_reads_no_file_of_the_user_who_started_it(server: Postgres, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("an ordinary user's server is that user's")
    (tmp_path / "secret").write_text("s3cret-word")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE seen (line text)")
        for path in ("/etc/shadow", f"{tmp_path}/secret", "../passfile", f"/proc/{os.getpid()}/environ"):
            with pytest.raises(psycopg.errors.ExternalRoutineException):
                connection.execute(f"COPY seen FROM PROGRAM 'cat {path}'")
        connection.execute("COPY seen FROM PROGRAM 'id -un'")
        assert connection.execute("SELECT line FROM seen").fetchall() == [("nobody",)]


def test_a_restart_keeps_data_and_password_and_a_lost_password_is_an_error(server: Postgres) -> None:
    before = password(server)
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE kept (number int)")
    server.stop()
    with psycopg.connect(server.start().url) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,) and password(server) == before
    server.stop()
    aside = (server.folder / "passfile").rename(server.folder / "aside")
    with pytest.raises(InvalidEnvironment, match="POSTGRES_PASSWORD"):
        server.start()
    aside.rename(server.folder / "passfile")
    server.start()


@as_root
def test_an_ordinary_user_starts_and_uses_a_server_of_its_own() -> None:
    """In a fork that gives up being root: the Python itself may be in a folder that only root can read."""
    user = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, user.pw_uid, user.pw_gid)
        if (child := os.fork()) == 0:
            try:
                os.setgroups([])
                os.setgid(user.pw_gid)
                os.setuid(user.pw_uid)
                with Postgres(f"{folder}/data") as running, psycopg.connect(running.url) as connection:
                    assert running.process is not None and psutil.Process(running.process.pid).uids().real == user.pw_uid
                    assert connection.execute("SELECT current_setting('data_directory')").fetchone() == (f"{folder}/data/data",)
                    assert (running.folder / "passfile").stat().st_uid == user.pw_uid
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@as_root
def test_root_is_refused_if_no_other_user_can_run_the_server(tmp_path: Path) -> None:
    with pytest.raises(InvalidEnvironment, match="POSTGRES_ROOT") as refused:
        embedded_postgres._as_user(pwd.getpwnam("nobody"), tmp_path)
    assert f"may not read or enter {tmp_path}" in refused.value.found
