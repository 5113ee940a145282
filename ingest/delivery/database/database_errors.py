"""The refusals that concern the database itself. Every text hides the password."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from ingest.runtime.errors import InvalidEnvironment, InvalidInput, Refused

_MIGRATE: Final = "ingest database migrate"
_NO_ROLE: Final = r'role "[^"]*" (does not exist|is not permitted to log in)'


def url_invalid(why: str) -> InvalidInput:
    """The URL is no SQLAlchemy URL of PostgreSQL. Its text is not repeated: it may hold a password."""
    return InvalidInput(
        "DATABASE_URL",
        f"the database URL cannot be used: {why}.",
        expected="a SQLAlchemy URL of PostgreSQL: postgresql://user:password@host:5432/database.",
        remedy="correct --database-url or INGEST_DATABASE_URL; percent-encode special characters of the password.",
    )


def not_connected(url: URL, error: DBAPIError) -> InvalidEnvironment:
    """No connection: a wrong login, an unknown database, or no server."""
    text = " ".join(str(error.orig).split())
    state = getattr(error.orig, "sqlstate", None)
    server = f"{url.host or 'the local socket'}:{url.port or 5432}"
    if state in ("28P01", "28000") or "authentication failed" in text or "no password supplied" in text or re.search(_NO_ROLE, text):
        return InvalidEnvironment(
            "DATABASE_LOGIN",
            f"the database at {server} refuses the user {url.username!r}.",
            expected="a user that may log in, with its password.",
            remedy="correct them in --database-url or INGEST_DATABASE_URL; `ingest postgres status` shows an embedded server's URL.",
        )
    if state == "3D000" or f'database "{url.database}" does not exist' in text:
        return InvalidEnvironment(
            "DATABASE_UNKNOWN",
            f"the server at {server} has no database {url.database!r}.",
            expected="an existing database.",
            remedy=f"create it (`CREATE DATABASE {url.database}`), or correct the name in --database-url.",
        )
    if "permission denied for database" in text:
        return denied(f"the user {url.username!r} may not connect to the database {url.database!r}", "CONNECT on the database")
    if "invalid connection option" in text or "invalid URI" in text:
        raise url_invalid("it has an option that PostgreSQL's client does not know")
    return InvalidEnvironment(
        "DATABASE_UNREACHABLE",
        f"no database answers at {server} ({text.replace(str(url.password or chr(0)), '***')[:300]}).",
        expected="a PostgreSQL server that accepts connections.",
        remedy="check the address, start the server, or wait for a free connection; `ingest postgres start` starts an embedded one.",
    )


def denied(found: str, right: str) -> InvalidEnvironment:
    """The user lacks a right."""
    return InvalidEnvironment(
        "DATABASE_DENIED",
        f"{found}.",
        expected=f"a user with {right}.",
        remedy="grant it as the owner: `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO …` covers our tables.",
    )


def statement_failed(error: DBAPIError) -> InvalidEnvironment:
    """A statement of ours failed, and nobody nearer to it knows why. For the command's last resort."""
    state, text = getattr(error.orig, "sqlstate", None), " ".join(str(error.orig).split())[:300]
    if state == "42501":
        return denied(text, "SELECT, INSERT, UPDATE and DELETE on the tables named oncelake_…")
    return InvalidEnvironment(
        "DATABASE_FAILED",
        f"the database refused a statement or went away ({text}).",
        expected="a database that answers, with unchanged tables.",
        remedy="check `ingest database status` and the server's log, then run the command again.",
    )


def schema_missing(version: str | None, wanted: str) -> Refused:
    """The tables are not there, or those of an older version."""
    found = "the database has no tables of this package" if version is None else f"the tables have version {version}"
    return Refused("SCHEMA_MISSING", f"{found}.", expected=f"the tables of version {wanted}.", remedy=_MIGRATE)


def schema_newer(version: str, known: str) -> Refused:
    """A newer package has migrated the tables; this one could write them wrongly."""
    return Refused(
        "SCHEMA_NEWER",
        f"the tables have version {version}, which this package does not know.",
        expected=f"version {known}, or an older one.",
        remedy="install the version of oncelake that migrated the database, or a later one.",
    )


def schema_changed(differences: Sequence[str]) -> Refused:
    """Somebody changed our tables by hand."""
    more = f" (and {len(differences) - 3} more)" if len(differences) > 3 else ""
    return Refused(
        "SCHEMA_CHANGED",
        f"the tables were changed by hand: {'; '.join(differences[:3])}{more}.",
        expected="the columns, keys and indexes that `ingest database migrate` creates; additional ones are allowed.",
        remedy="undo the change with ALTER TABLE; the definitions are in ingest/delivery/database/tables.py.",
    )
