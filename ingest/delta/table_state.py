"""A Delta table's metadata and transaction ids at one version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ingest.delta.batch_commit import Snapshot
from ingest.runtime.canonical_json import read_json


@dataclass(frozen=True)
class TableState:
    """A table's metadata at its newest version, as its log records it.

    `transactions` maps txnAppId to txnVersion. `stamp` identifies the newest commit (see `DeltaLog.stamp`); it is empty if the commit's
    file is gone. `cluster_by` are the clustering columns, `features` the table features of readers and writers, `reader_version` and
    `writer_version` the protocol that a reader and a writer must know at least. `created_ms` is the time in milliseconds since 1970.
    """

    version: int
    id: str = ""
    schema: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    comment: str = ""
    transactions: dict[str, int] = field(default_factory=dict)
    stamp: str = ""
    cluster_by: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()
    reader_version: int = 1
    writer_version: int = 2
    name: str = ""
    created_ms: int | None = None

    @property
    def snapshot(self) -> Snapshot:
        """Id, version and stamp."""
        return Snapshot(self.id, self.version, self.stamp)

    def after(self, actions: Iterable[dict[str, Any]]) -> TableState:
        """The state after these actions. The caller sets `version` and `stamp`."""
        metadata: dict[str, Any] = {}
        transactions: dict[str, int] = {}
        cluster_by, features, versions = self.cluster_by, self.features, (self.reader_version, self.writer_version)
        for action in actions:
            metadata = action.get("metaData") or metadata
            if txn := action.get("txn"):
                transactions[txn["appId"]] = int(txn["version"])
            if protocol := action.get("protocol"):
                features = frozenset([*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())])
                versions = int(protocol.get("minReaderVersion") or 1), int(protocol.get("minWriterVersion") or 2)
            if (domain := action.get("domainMetadata")) and domain["domain"] == "delta.clustering":
                configuration = {} if domain.get("removed") else read_json(domain["configuration"] or "{}")
                cluster_by = tuple(".".join(names) for names in configuration.get("clusteringColumns", ()))
        state = replace(self, transactions=self.transactions | transactions, cluster_by=cluster_by, features=features)
        state = replace(state, reader_version=versions[0], writer_version=versions[1])
        if not metadata:
            return state
        return replace(
            state,
            id=str(metadata.get("id", "")),
            schema=str(metadata.get("schemaString", "")),
            properties=dict(metadata.get("configuration") or {}),
            partition_by=tuple(metadata.get("partitionColumns") or ()),
            comment=str(metadata.get("description") or ""),
            name=str(metadata.get("name") or ""),
            created_ms=metadata.get("createdTime"),
        )
