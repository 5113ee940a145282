"""The errors of effects."""

from __future__ import annotations

from ingest.runtime.errors import InvalidInput, Refused


def option_wrong(found: str, expected: str) -> InvalidInput:
    """An argument of Effects, HttpApi or EffectConsumer."""
    return InvalidInput("EFFECT_OPTION", found, expected=expected, remedy="correct it.")


def event_id_wrong(why: ValueError) -> InvalidInput:
    """An event id that cannot be stored."""
    return InvalidInput(
        "EFFECT_EVENT_ID",
        f"{why}.",
        expected="an event id: a text of 1 to 255 characters.",
        remedy="give every event an id when it is made; without one, nobody can recognise its copies.",
    )


def api_unusable(named: str, why: str) -> InvalidInput:
    """The object that --api names."""
    return InvalidInput(
        "EFFECT_API",
        f"--api {named}: {why}.",
        expected="package.module:object, where the object is an Api, such as an HttpApi, or a function that makes one.",
        remedy="correct it; the module is searched in the current folder first.",
    )


def effect_unknown(name: str, event_id: str) -> InvalidInput:
    """A person settles a call that does not exist."""
    found, expected = f"the effect {name!r} has no call for the event {event_id!r}.", "an event id that `ingest effects list` shows."
    return InvalidInput("EFFECT_UNKNOWN", found, expected=expected, remedy=f"ingest effects list {name}")


def effect_done(name: str, event_id: str, reference: str | None) -> Refused:
    """A person settles a call that has succeeded."""
    return Refused(
        "EFFECT_DONE",
        f"the call of {name!r} for the event {event_id!r} has succeeded (reference {reference or 'unknown'}).",
        expected="a call that has failed, is held, or has an unknown outcome.",
        remedy="undo it at the API, as another effect with an event id of its own.",
    )


def effect_busy(name: str, event_id: str, worker: str, due_s: float) -> Refused:
    """A person settles a call that a worker is making right now."""
    return Refused(
        "EFFECT_BUSY",
        f"the worker {worker} may be calling the API of {name!r} for the event {event_id!r} right now.",
        expected="a call that nobody is making.",
        remedy=f"wait {max(due_s, 0):.0f} s, until the worker's lease ends, and try again.",
    )
