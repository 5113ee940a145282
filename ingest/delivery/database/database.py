"""How to reach the application's PostgreSQL, and which of its errors pass by themselves."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from ingest.delivery.database.database_errors import not_connected, url_invalid

_DRIVER: Final = "postgresql+psycopg"
# A cut network answers nothing. Without these, a statement would wait for the kernel's two hours.
_CONNECTION: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
# Classes of SQLSTATE: connection exception, transaction rollback (deadlock, serialization), insufficient resources, operator
# intervention (shutdown, a terminated backend), system error.
_TEMPORARY: Final = ("08", "40", "53", "57", "58")


def connect(url: str) -> Engine:
    """An engine for this SQLAlchemy URL, after one successful connection.

    `postgres://` and `postgresql://` use psycopg 3. Raises InvalidInput DATABASE_URL, InvalidEnvironment DATABASE_LOGIN,
    DATABASE_UNKNOWN or DATABASE_UNREACHABLE.
    """
    try:
        parsed = make_url(url.replace("postgres://", "postgresql://", 1) if url.startswith("postgres://") else url)
    except (ArgumentError, ValueError):
        raise url_invalid("it is no URL") from None  # the cause would show the password
    if parsed.get_backend_name() != "postgresql":
        raise url_invalid(f"it names {parsed.get_backend_name()}")
    if parsed.drivername == "postgresql":
        parsed = parsed.set(drivername=_DRIVER)
    if parsed.drivername != _DRIVER:
        raise url_invalid(f"it names the driver {parsed.get_driver_name()}; only psycopg is supported")
    engine = create_engine(parsed, pool_pre_ping=True, connect_args=dict(_CONNECTION), hide_parameters=True)
    try:
        engine.connect().close()
    except DBAPIError as error:
        engine.dispose()
        raise not_connected(parsed, error) from None
    return engine


def is_temporary(error: BaseException) -> bool:
    """Whether the same statements may succeed later: a lost connection, a restart, a deadlock. A retry then repeats the transaction."""
    if not isinstance(error, DBAPIError):
        return False
    state = getattr(error.orig, "sqlstate", None)
    if state is None:
        return error.connection_invalidated or isinstance(error, OperationalError)
    return str(state).startswith(_TEMPORARY)
