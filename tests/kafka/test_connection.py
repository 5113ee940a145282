"""What is put in the place of kafka-python's own, on its real transaction manager."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from kafka.errors import IllegalStateError, KafkaError
from kafka.producer.transaction_manager import ProducerIdAndEpoch, TransactionManager

from ingest.kafka.connection import _look_before_asking

pytestmark = pytest.mark.unit

NEW, ADDED = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_look_without_a_lock_lets_nothing_pass_that_the_locks_would_stop() -> None:
    manager = TransactionManager("x", api_version=(4, 1))
    manager.initialize_transactions()
    manager.set_producer_id_and_epoch(ProducerIdAndEpoch(1, 0))
    manager._transition_to(manager._current_state.READY)
    _look_before_asking(SimpleNamespace(_transaction_manager=manager))
    with pytest.raises(IllegalStateError, match="READY"):
        manager.maybe_add_partition_to_transaction(ADDED)
    manager.begin_transaction()
    manager.maybe_add_partition_to_transaction(ADDED)
    manager._partitions_in_transaction.add(ADDED)  # the coordinator has answered
    manager._new_partitions_in_transaction.clear()
    manager.maybe_add_partition_to_transaction(ADDED)
    assert not manager._new_partitions_in_transaction
    manager.maybe_add_partition_to_transaction(NEW)
    assert manager._new_partitions_in_transaction == {NEW}
    manager.transition_to_fatal_error(KafkaError("fenced"))
    with pytest.raises(KafkaError, match="failed with errors"):
        manager.maybe_add_partition_to_transaction(ADDED)
