"""Exactly once inside Kafka: producers, consumers, and consume-transform-produce on kafka-python. docs/delivery.md is the guide."""

from ingest.kafka.consumer import Consumed, Consumer, Deduplicate
from ingest.kafka.errors import (
    DeliveryFailed,
    GroupMovedOn,
    GuaranteeBroken,
    OutcomeUnknown,
    PoisonRecord,
    ProducerFenced,
    StoreFailed,
    TransactionAborted,
)
from ingest.kafka.grouped import Grouped
from ingest.kafka.mode import AtLeastOnce, AtMostOnce, DeliveryMode, ExactlyOnce
from ingest.kafka.outgoing import Outgoing
from ingest.kafka.poison import DeadLetter
from ingest.kafka.producer import Producer
from ingest.kafka.seen import SeenIds
from ingest.kafka.state import State
from ingest.kafka.transactional import Transaction, TransactionalProducer
from ingest.kafka.transform import Transform, Transformed, transform

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
    "transform",
]
