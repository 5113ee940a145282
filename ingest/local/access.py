"""Users of a secured broker and what each may do."""

from __future__ import annotations

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

from ingest.local import broker_probe

_ANSWER_WITHIN_S = 30.0
# What a reader needs: offsets and metadata, and the records.
READING = (ACLOperation.DESCRIBE, ACLOperation.READ)
WRITING = (ACLOperation.DESCRIBE, ACLOperation.WRITE)


class Access:
    """Administers a broker through its plain listener; what it refuses is raised as a kafka.errors.KafkaError."""

    def __init__(self, plain_servers: str) -> None:
        self._servers = plain_servers

    def add_user(self, name: str, password: str) -> None:
        """Make a user, or give one another password. Only its salted hash leaves this process. Raises ValueError for a bad name."""
        credential = UserScramCredentialUpsertion(name, ScramMechanism.SCRAM_SHA_256, password)
        with broker_probe.admin(self._servers, timeout_s=_ANSWER_WITHIN_S) as client:
            for user, problem in client.alter_user_scram_credentials([credential]).items():
                if problem is not None:
                    raise ValueError(f"the broker does not take the user {user}: {problem}")

    def allow(
        self, user: str, name: str, operations: tuple[ACLOperation, ...] = READING, *, kind: ResourceType = ResourceType.TOPIC
    ) -> None:
        """Let a user read a topic, or do what is named with a topic, a group or a transactional id."""
        resource = ResourcePattern(kind, name)
        granted = [ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, resource) for operation in operations]
        with broker_probe.admin(self._servers, timeout_s=_ANSWER_WITHIN_S) as client:
            for error in client.create_acls(granted)["failed"]:
                raise error(f"{user} may use {name}")

    def forbid(self, user: str, topic: str) -> None:
        """Take back all that `allow` gave a user on a topic."""
        resource = ResourcePatternFilter(ResourceType.TOPIC, topic, ACLResourcePatternType.LITERAL)
        given = ACLFilter(f"User:{user}", "*", ACLOperation.ANY, ACLPermissionType.ANY, resource)
        with broker_probe.admin(self._servers, timeout_s=_ANSWER_WITHIN_S) as client:
            for _, _, error in client.delete_acls([given]):
                if error is not NoError:
                    raise error(f"{user} may not read {topic}")
