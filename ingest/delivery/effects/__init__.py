"""Effects: calls to external APIs, each with a recorded state, so that a crash or a timeout leaves none of them unsettled."""

from ingest.delivery.effects.api import Accepted, Answer, Api, Declined, Later, Unknown
from ingest.delivery.effects.calls import Effects, Performed
from ingest.delivery.effects.effect_consumer import EffectConsumer, Effected
from ingest.delivery.effects.effect_row import Position, State
from ingest.delivery.effects.http_api import HttpApi

__all__ = [
    "Accepted",
    "Answer",
    "Api",
    "Declined",
    "EffectConsumer",
    "Effected",
    "Effects",
    "HttpApi",
    "Later",
    "Performed",
    "Position",
    "State",
    "Unknown",
]
