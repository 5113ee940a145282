"""Our tables in a database: created and checked, and refused with one clear error if they are not as they should be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Engine, make_url

from ingest.delivery.database import schema
from ingest.delivery.database.database import connect
from ingest.lab.embedded_postgres import Postgres
from ingest.runtime.errors import IngestError, InvalidEnvironment, InvalidInput, Refused

SECRET = "hunter2"


def refusal(engine: Engine) -> Refused:
    with pytest.raises(Refused) as refused:
        schema.check(engine)
    return refused.value


def test_a_migration_creates_the_tables_once_and_leaves_other_tables_alone(new_database: Callable[[], str]) -> None:
    engine = connect(new_database())
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (number int); INSERT INTO orders VALUES (1)")
    missing = refusal(engine)
    assert (missing.code, missing.exit_code, missing.remedy) == ("SCHEMA_MISSING", 3, "ingest database migrate")
    assert schema.migrate(engine) == (None, "0001")
    schema.check(engine)
    assert schema.migrate(engine) == ("0001", "0001")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM orders").scalar_one() == 1
    engine.dispose()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("ALTER TABLE oncelake_outbox DROP COLUMN last_error", "oncelake_outbox.last_error is missing"),
        ("ALTER TABLE oncelake_sink_event ALTER COLUMN event_id TYPE text", "oncelake_sink_event.event_id is TEXT, not VARCHAR(255)"),
        ("ALTER TABLE oncelake_effect ALTER COLUMN state DROP NOT NULL", "oncelake_effect.state may be null"),
        ("ALTER TABLE oncelake_outbox DROP CONSTRAINT oncelake_outbox_id", "oncelake_outbox_id of oncelake_outbox is missing"),
        ("DROP INDEX oncelake_outbox_unpublished", "oncelake_outbox_unpublished of oncelake_outbox is missing"),
        ("ALTER TABLE oncelake_sink_event DROP CONSTRAINT oncelake_sink_event_pkey", "the primary key of oncelake_sink_event is not"),
        ("DROP TABLE oncelake_effect_history", "the table oncelake_effect_history is missing"),
    ],
)
def test_a_change_by_hand_is_refused_and_named(engine: Engine, statement: str, found: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)
    error = refusal(engine)
    assert error.code == "SCHEMA_CHANGED" and found in error.found


def test_additional_columns_indexes_and_tables_are_allowed(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE oncelake_outbox ADD COLUMN tenant text; CREATE INDEX mine ON oncelake_outbox (tenant)")
        connection.exec_driver_sql("CREATE TABLE oncelake_mine (id int)")
    schema.check(engine)


def test_tables_of_a_newer_version_are_neither_used_nor_migrated(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE oncelake_schema_version SET version_num = '9999'")
    assert refusal(engine).code == "SCHEMA_NEWER"
    with pytest.raises(Refused, match="SCHEMA_NEWER"):
        schema.migrate(engine)


def test_a_user_who_may_not_create_tables_is_told_to_migrate_as_the_owner(new_database: Callable[[], str]) -> None:
    url = new_database()
    engine = connect(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS clerk; CREATE ROLE clerk LOGIN PASSWORD 'word'")
    clerk = connect(make_url(url).set(username="clerk", password="word").render_as_string(hide_password=False))
    with pytest.raises(InvalidEnvironment, match="SCHEMA_DENIED"):
        schema.migrate(clerk)
    for each in (engine, clerk):
        each.dispose()


@pytest.mark.parametrize(
    ("url", "code"),
    [
        (f"not a url with {SECRET}", "DATABASE_URL"),
        (f"mysql://shop:{SECRET}@127.0.0.1/shop", "DATABASE_URL"),
        (f"postgresql+psycopg2://shop:{SECRET}@127.0.0.1/shop", "DATABASE_URL"),
        (f"postgresql://shop:{SECRET}@127.0.0.1:1/shop", "DATABASE_UNREACHABLE"),
    ],
)
def test_a_url_that_cannot_be_used_is_one_clear_error_without_the_password(url: str, code: str) -> None:
    with pytest.raises(IngestError, match=code) as refused:
        connect(url)
    assert SECRET not in str(refused.value) and refused.value.__cause__ is None
    assert isinstance(refused.value, InvalidInput if code == "DATABASE_URL" else InvalidEnvironment)


def test_a_wrong_login_and_an_unknown_database_are_told_apart(postgres: Postgres) -> None:
    url = make_url(postgres.url)
    for changed, code in (
        (url.set(username="nobody", password=SECRET), "DATABASE_LOGIN"),
        (url.set(database="missing"), "DATABASE_UNKNOWN"),
    ):
        with pytest.raises(InvalidEnvironment, match=code) as refused:
            connect(changed.render_as_string(hide_password=False))
        assert SECRET not in str(refused.value)


def test_a_wrong_password_is_refused_and_never_shown(postgres: Postgres) -> None:
    engine = connect(postgres.url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP ROLE IF EXISTS teller; CREATE ROLE teller LOGIN PASSWORD '{SECRET}'")
    engine.dispose()
    url = make_url(postgres.url).set(username="teller")
    with pytest.raises(InvalidEnvironment, match="DATABASE_LOGIN") as refused:
        connect(url.set(password=f"not-{SECRET}").render_as_string(hide_password=False))
    assert SECRET not in str(refused.value)
    connect(url.set(password=SECRET).render_as_string(hide_password=False)).dispose()
