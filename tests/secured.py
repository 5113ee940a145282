"""A broker with a secured listener, a user of it, and the search for a password where none may be."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ingest.local.access import Access
from ingest.local.broker import Broker
from ingest.local.secure import MECHANISM, Secure

USER = "ann"
CANARY = f"canary{uuid.uuid4().hex}"
WRONG = f"canary{uuid.uuid4().hex}"


@dataclass(frozen=True)
class Door:
    """A broker with a secured listener and a user who may do nothing yet."""

    broker: Broker
    secure: Secure

    @property
    def access(self) -> Access:
        return Access(self.broker.bootstrap_servers)

    def login(self, password: str = CANARY, **changes: str) -> dict[str, str]:
        """The environment of a run that comes through the secured listener."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return {
            "INGEST_BOOTSTRAP_SERVERS": self.secure.bootstrap_servers,
            "INGEST_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "INGEST_KAFKA_SASL_MECHANISM": MECHANISM,
            "INGEST_KAFKA_SASL_JAAS_CONFIG": f'{module} required username="{USER}" password="{password}";',
            "INGEST_KAFKA_SSL_TRUSTSTORE_TYPE": "PEM",
            "INGEST_KAFKA_SSL_TRUSTSTORE_LOCATION": str(self.secure.authority),
            **changes,
        }


@contextmanager
def opened(folder: Path) -> Iterator[Door]:
    """A broker in `folder` with a secured listener, as long as this lasts, and the user who may do nothing yet."""
    secure = Secure()
    with Broker(folder, secure=secure) as broker:
        made = Door(broker, secure)
        made.access.add_user(USER, CANARY)
        yield made


def holding(words: str, *folders: Path) -> list[Path]:
    """The files that hold these words, as they are or in base64."""
    forms = [words.encode(), base64.b64encode(words.encode()).rstrip(b"=")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(form in path.read_bytes() for form in forms)]
