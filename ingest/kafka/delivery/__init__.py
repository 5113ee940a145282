"""Exactly-once delivery inside Kafka: producers, consumers and consume-transform-produce. The guide is docs/tutorial/delivery.md."""

from ingest.kafka.delivery.consumer import Consumed, Consumer, Deduplicate
from ingest.kafka.delivery.delivery_errors import (
    DeliveryFailed,
    GroupMovedOn,
    GuaranteeBroken,
    OutcomeUnknown,
    PoisonRecord,
    ProducerFenced,
    StoreFailed,
    TransactionAborted,
)
from ingest.kafka.delivery.grouped import Grouped
from ingest.kafka.delivery.mode import AtLeastOnce, AtMostOnce, DeliveryMode, ExactlyOnce
from ingest.kafka.delivery.outgoing import Outgoing
from ingest.kafka.delivery.poison import DeadLetter
from ingest.kafka.delivery.producer import Producer
from ingest.kafka.delivery.seen import SeenIds
from ingest.kafka.delivery.state import State
from ingest.kafka.delivery.transactional import Transaction, TransactionalProducer
from ingest.kafka.delivery.transform import Transform, Transformed, transform

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
