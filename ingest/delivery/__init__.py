"""Exactly-once delivery inside Kafka: producers, consumers and consume-transform-produce. The guide is docs/tutorial/delivery.md."""

from ingest.delivery.consumer import Consumed, Consumer, Deduplicate
from ingest.delivery.delivery_errors import (
    DeliveryFailed,
    GroupMovedOn,
    GuaranteeBroken,
    OutcomeUnknown,
    PoisonRecord,
    ProducerFenced,
    StoreFailed,
    TransactionAborted,
)
from ingest.delivery.group_positions import begin_group
from ingest.delivery.grouped import Grouped
from ingest.delivery.mode import AtLeastOnce, AtMostOnce, DeliveryMode, ExactlyOnce
from ingest.delivery.outgoing import Outgoing
from ingest.delivery.poison import DeadLetter
from ingest.delivery.producer import Producer
from ingest.delivery.seen import SeenIds
from ingest.delivery.state import State
from ingest.delivery.transactional import Transaction, TransactionalProducer
from ingest.delivery.transform import Transform, Transformed, transform

__all__ = [
    "AtLeastOnce",
    "AtMostOnce",
    "Consumed",
    "Consumer",
    "DeadLetter",
    "Deduplicate",
    "DeliveryFailed",
    "DeliveryMode",
    "ExactlyOnce",
    "GroupMovedOn",
    "Grouped",
    "GuaranteeBroken",
    "OutcomeUnknown",
    "Outgoing",
    "PoisonRecord",
    "Producer",
    "ProducerFenced",
    "SeenIds",
    "State",
    "StoreFailed",
    "Transaction",
    "TransactionAborted",
    "TransactionalProducer",
    "Transform",
    "Transformed",
    "begin_group",
    "transform",
]
