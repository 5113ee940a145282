"""What kafka-python's group coordinator forgets in a rebalance, and does not with these."""

from __future__ import annotations

from typing import Any


def hear_of_every_loss(coordinator: Any) -> None:
    """A member that learns in the midst of a rebalance that it was thrown out has lost its partitions; kafka-python 3.0.12 keeps them.

    It asks what was lost once a rebalance, before the first JoinGroup. If that does not reach the broker for longer than the session, and
    others have the partitions meanwhile, the member comes back as a new one with its old fetch positions: a partition that is dealt to it
    again counts as never gone, and what the others have done is done again. With this it asks again before it joins as a new member.
    """
    reset = coordinator.reset_generation

    def and_ask_again(*arguments: Any, **named: Any) -> None:
        reset(*arguments, **named)
        coordinator.rejoining = False

    coordinator.reset_generation = and_ask_again


def end_every_rebalance(coordinator: Any) -> None:
    """A rebalance that was begun for a change of the topics is needed until its assignment is there; kafka-python 3.0.12 forgets it.

    The leader compares the partitions it dealt with those there are, and takes them for dealt before the broker has answered. A poll that
    ends in between never takes the answer: new partitions are not read, heartbeats stay off, and the broker throws the member out.
    """
    needed = coordinator.need_rejoin

    def and_remember() -> bool:
        if not needed():
            return False
        coordinator.request_rejoin()
        return True

    coordinator.need_rejoin = and_remember
