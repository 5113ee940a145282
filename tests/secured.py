"""A broker with a secured listener, its user, and a search for leaked passwords in files."""

from __future__ import annotations

import base64
import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificate
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.errors import NoError

from ingest.lab.broker import broker_probe
from ingest.lab.broker.broker_config import HOST, Listener
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.broker.ports import free_port

MECHANISM = "SCRAM-SHA-256"
# A reader needs DESCRIBE for offsets and metadata, and READ for the records.
READING = (ACLOperation.DESCRIBE, ACLOperation.READ)
WRITING = (ACLOperation.DESCRIBE, ACLOperation.WRITE)
USER = "ann"
CANARY = f"canary{uuid.uuid4().hex}"
WRONG = f"canary{uuid.uuid4().hex}"


class Secure:
    """A SASL_SSL listener with SCRAM-SHA-256, for `Broker(folder, beside=Secure(...).listener)`.

    Clients of the plain listener are super users. Through the secured listener, a user may do only what was allowed explicitly. The
    certificate is issued by a new authority. It is valid for `days` days, starting `since_days` days ago.
    """

    def __init__(self, folder: Path, days: int = 3650, since_days: int = 0) -> None:
        began = datetime.now(UTC) - timedelta(days=since_days)
        authority = trustme.CA()
        leaf = authority.issue_cert(HOST, not_before=began, not_after=began + timedelta(days=days))
        key: Any = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        chain = [load_pem_x509_certificate(each.bytes()) for each in (*leaf.cert_chain_pems, authority.cert_pem)]
        self._password = secrets.token_urlsafe(24)
        self._keystore, self.authority = folder / "keystore.p12", folder / "ca.pem"
        folder.mkdir(parents=True, exist_ok=True)
        encrypted = BestAvailableEncryption(self._password.encode())
        self._keystore.write_bytes(pkcs12.serialize_key_and_certificates(b"broker", key, chain[0], chain[1:], encrypted))
        authority.cert_pem.write_to_path(self.authority)

    @cached_property
    def _port(self) -> int:
        return free_port()

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self._port}"

    def listener(self) -> Listener:
        """The listener, the same at every start of the broker."""
        settings = {
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self._keystore),
            "ssl.keystore.password": self._password,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": "User:ANONYMOUS",
        }
        return Listener(self._port, "SASL_SSL", settings)


class Access:
    """Users of a secured broker and their permissions, managed through its plain listener."""

    def __init__(self, plain_servers: str) -> None:
        self._servers = plain_servers

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        with broker_probe.admin(self._servers, timeout_s=30.0) as client:
            yield client

    def add_user(self, name: str, password: str) -> None:
        credential = UserScramCredentialUpsertion(name, ScramMechanism.SCRAM_SHA_256, password)
        with self._admin() as client:
            assert client.alter_user_scram_credentials([credential]) == {name: None}

    def allow(
        self, user: str, name: str, operations: tuple[ACLOperation, ...] = READING, *, kind: ResourceType = ResourceType.TOPIC
    ) -> None:
        """Allow a user to read a topic, or to do `operations` on a topic, a group or a transactional id."""
        resource = ResourcePattern(kind, name)
        with self._admin() as client:
            granted = [ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, resource) for operation in operations]
            assert not client.create_acls(granted)["failed"]

    def forbid(self, user: str, topic: str) -> None:
        """Revoke everything that `allow` granted a user on a topic."""
        resource = ResourcePatternFilter(ResourceType.TOPIC, topic, ACLResourcePatternType.LITERAL)
        with self._admin() as client:
            given = ACLFilter(f"User:{user}", "*", ACLOperation.ANY, ACLPermissionType.ANY, resource)
            assert all(error is NoError for _, _, error in client.delete_acls([given]))


@dataclass(frozen=True)
class Door:
    """A broker with a secured listener, and a user without permissions so far."""

    broker: Broker
    secure: Secure

    @property
    def access(self) -> Access:
        return Access(self.broker.bootstrap_servers)

    def login(self, password: str = CANARY, **changes: str) -> dict[str, str]:
        """The environment of a run that connects through the secured listener."""
        return {
            "INGEST_BOOTSTRAP_SERVERS": self.secure.bootstrap_servers,
            "INGEST_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "INGEST_KAFKA_SASL_MECHANISM": MECHANISM,
            "INGEST_KAFKA_SASL_USERNAME": USER,
            "INGEST_KAFKA_SASL_PASSWORD": password,
            "INGEST_KAFKA_SSL_TRUSTSTORE_TYPE": "PEM",
            "INGEST_KAFKA_SSL_TRUSTSTORE_LOCATION": str(self.secure.authority),
            **changes,
        }


@contextmanager
def opened(folder: Path) -> Iterator[Door]:
    """A running broker in `folder` with a secured listener, and a user without permissions so far. Stopped on exit."""
    secure = Secure(folder / "tls")
    with Broker(folder, beside=secure.listener) as broker:
        made = Door(broker, secure)
        made.access.add_user(USER, CANARY)
        yield made


def holding(words: str, *folders: Path) -> list[Path]:
    """The files that contain `words`, as plain text or in base64."""
    forms = [words.encode(), base64.b64encode(words.encode()).rstrip(b"=")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(form in path.read_bytes() for form in forms)]
