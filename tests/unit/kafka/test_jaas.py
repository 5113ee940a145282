"""User and password out of JAAS text, as Java reads it."""

from __future__ import annotations

import pytest

from ingest.kafka.jaas import Login

pytestmark = pytest.mark.unit

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.mark.parametrize(
    ("options", "username", "password"),
    [
        ('username="ann" password="secret";', "ann", "secret"),
        ("username='ann' password='se\"cret';", "ann", 'se"cret'),
        ("username=ann password=secret;", "ann", "secret"),
        ('username = "ann"\n  password = "a;b=c";', "ann", "a;b=c"),
        (r'username="ann" password="a\"b\\c\td\101";', "ann", 'a"b\\c\tdA'),
        ('password="username=\\"eve\\"" username="ann";', "ann", 'username="eve"'),
        ('tokenauth="true" username="ann" password="secret";', "ann", "secret"),
        ('serviceName="kafka";', None, None),
        ("", None, None),
    ],
)
def test_a_login_is_read_with_its_quotes_and_escapes(options: str, username: str | None, password: str | None) -> None:
    login = Login.parse(f"{MODULE} {options}")
    assert (login.username, login.password) == (username, password)
    assert "ann" not in repr(login) and "secret" not in repr(login)
