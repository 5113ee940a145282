"""Fixtures of the database tests: one real PostgreSQL per session, and a migrated database of its own for each test."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from ingest.delivery.database import schema
from ingest.delivery.database.database import connect
from ingest.lab.embedded_postgres import Postgres

_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("unit") is None:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A running server, shared by the session. Create databases in it, but never stop or kill it (start your own)."""
    with Postgres(tmp_path_factory.mktemp("postgres")) as running:
        yield running


@pytest.fixture(scope="session")
def new_database(postgres: Postgres) -> Callable[[], str]:
    """`new_database()` creates an empty database and returns its URL."""
    admin = connect(postgres.url).execution_options(isolation_level="AUTOCOMMIT")

    def make() -> str:
        name = f"test_{next(_numbers)}_{uuid.uuid4().hex[:6]}"
        with admin.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        return make_url(postgres.url).set(database=name).render_as_string(hide_password=False)

    return make


@pytest.fixture
def database_url(new_database: Callable[[], str]) -> str:
    """The URL of a database of this test's own, with our tables."""
    url = new_database()
    engine = connect(url)
    schema.migrate(engine)
    engine.dispose()
    return url


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine for this test's database."""
    made = connect(database_url)
    yield made
    made.dispose()
