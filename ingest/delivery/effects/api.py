"""What an external API has to offer for a call that must take effect once, and the possible answers to a call."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, runtime_checkable
from urllib.parse import quote

from ingest.delivery.effects.effect_errors import option_wrong

# Payment APIs accept keys of at least this length.
_KEY_CHARACTERS_MAX: Final = 255
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True)
class Accepted:
    """The API has done what was asked. `reference` is its own name for it, such as a charge's id."""

    reference: str | None = None


@dataclass(frozen=True, slots=True)
class Declined:
    """The API has refused for good: sending the same request again would change nothing."""

    reason: str


@dataclass(frozen=True, slots=True)
class Later:
    """The API has certainly done nothing: the request did not reach it, or it asks to come back, in `after_s` seconds if it says so."""

    why: str
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can tell whether the API has done it: no answer, a broken connection, or an internal error."""

    why: str


Answer: TypeAlias = Accepted | Declined | Later | Unknown


@runtime_checkable
class Api(Protocol):
    """An external API. Instances are called from several threads.

    `key_valid_s` is how long the API recognises a key, in seconds since its first use: a request with a known key is answered, not done
    again. 0: it ignores keys; inf: for ever. `has_look_up`: whether `look_up` can find what was done under a key. `settle_s` is the
    longest time for which a request that we gave up on can still be under way; used only if the API ignores keys. `timeout_s` bounds
    one call of `send` or `look_up` as a whole; a `send` that takes longer must send nothing any more.
    """

    key_valid_s: float
    has_look_up: bool
    settle_s: float
    timeout_s: float

    def send(self, request: bytes, key: str) -> Answer:
        """Ask for the effect. An exception counts as Unknown."""

    def look_up(self, key: str) -> Accepted | Declined | Unknown | None:
        """What the API has done under this key; None if it has never seen the key. An exception counts as Unknown."""


def check_name(name: str) -> None:
    """Raise InvalidInput EFFECT_OPTION for an effect's name that could not be part of a key."""
    if not _NAME.fullmatch(name):
        raise option_wrong(f"the effect's name is {name!r}.", "1 to 100 letters, digits, dots, dashes and underscores.")


def idempotency_key(effect: str, event_id: str) -> str:
    """The key of a call: the effect's name, a colon and the event id, escaped so that every header and URL can carry it.

    With the name: an API knows one set of keys for all that we ask of it. Without it, a refund for an event would look like a copy of
    that event's charge. An id that would be too long is replaced by its SHA-256, behind a `*`, which no escaped id contains.
    """
    key = f"{effect}:{quote(event_id, safe='')}"
    return key if len(key) <= _KEY_CHARACTERS_MAX else f"{effect}:*{hashlib.sha256(event_id.encode()).hexdigest()}"
