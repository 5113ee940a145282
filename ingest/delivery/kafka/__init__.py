"""Exactly-once delivery inside Kafka: producers, consumers and consume-transform-produce. The guide is docs/tutorial/delivery.md."""

from ingest.delivery.kafka.consumer import Consumed, Consumer, Deduplicate
from ingest.delivery.kafka.delivery_errors import (
    DeliveryFailed,
    GroupMovedOn,
    GuaranteeBroken,
    OutcomeUnknown,
    PoisonRecord,
    ProducerFenced,
    StoreFailed,
    TransactionAborted,
)
from ingest.delivery.kafka.group_positions import begin_group
from ingest.delivery.kafka.grouped import Grouped
from ingest.delivery.kafka.mode import AtLeastOnce, AtMostOnce, DeliveryMode, ExactlyOnce
from ingest.delivery.kafka.outgoing import Outgoing
from ingest.delivery.kafka.poison import DeadLetter
from ingest.delivery.kafka.producer import Producer
from ingest.delivery.kafka.seen import SeenIds
from ingest.delivery.kafka.state import State
from ingest.delivery.kafka.transactional import Transaction, TransactionalProducer
from ingest.delivery.kafka.transform import Transform, Transformed, transform

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
