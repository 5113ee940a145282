"""A secured door to the embedded broker: a listener SASL_SSL beside the plain one. Who may do what there: ingest.local.access."""

from __future__ import annotations

from pathlib import Path

from ingest.errors import Unfit
from ingest.local.broker_config import Listener
from ingest.local.keystore import Keystore, Validity
from ingest.local.ports import free_port

MECHANISM = "SCRAM-SHA-256"


class Secure:
    """A listener SASL_SSL with SCRAM-SHA-256, for `Broker(folder, secure=Secure())`; its certificate is made at the first start.

    The plain listener stays the broker's inner one and whoever comes through it is a super user: it administers, and is for this
    machine only. Through the secured one a user may do nothing that was not allowed.
    """

    def __init__(self, certificate: Validity | None = None) -> None:
        self._certificate = certificate or Validity()
        self._keystore: Keystore | None = None
        self._port = 0

    @property
    def bootstrap_servers(self) -> str:
        """Where clients with a password connect; raises Unfit BROKER_STOPPED before the broker's start."""
        self._made()
        return Listener(self._port).address

    @property
    def authority(self) -> Path:
        """The PEM file that clients trust; raises Unfit BROKER_STOPPED before the broker's start."""
        return self._made().authority

    def listener(self, folder: Path, plain_port: int) -> Listener:
        """The listener of a broker in `folder`, on a port that stays; raises the errors of Keystore.make and free_port."""
        if self._keystore is None:
            keystore = Keystore(folder / "tls")
            keystore.make(self._certificate)
            self._keystore, self._port = keystore, free_port(besides=plain_port)
        settings = {
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self._keystore.path),
            "ssl.keystore.password": self._keystore.password,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": "User:ANONYMOUS",
        }
        return Listener(self._port, "SASL_SSL", settings)

    def _made(self) -> Keystore:
        if self._keystore is None:
            found, expected = "no broker was started with this listener.", "a started broker."
            raise Unfit("BROKER_STOPPED", found, expected=expected, remedy="start the broker that it was given to.")
        return self._keystore
