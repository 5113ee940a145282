"""An API over HTTP, as an `Api`: which status and which failure means what."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final
from urllib.parse import quote

import urllib3
from urllib3.exceptions import InvalidHeader, LocationParseError
from urllib3.util.retry import Retry

from ingest.delivery.effects.api import Accepted, Answer, Declined, Later, Unknown
from ingest.delivery.effects.effect_errors import option_wrong
from ingest.delivery.effects.http_call import CallPool, HttpAnswer, HttpCall, HttpFailure
from ingest.runtime.canonical_json import read_json

KEY_HEADER: Final = "Idempotency-Key"
# Credentials that are refused concern every call: no call fails for good because a token has expired.
LATER: Final = (401, 403, 407, 429)
# Not about this request: time-outs, and a key whose first request is still under way.
_UNKNOWN: Final = (408, 409, 425)
_BODY_BYTES_MAX: Final = 1024 * 1024
_CONNECTIONS: Final = 32
_DETAIL_CHARACTERS_MAX: Final = 300


def json_id(body: bytes) -> str | None:
    """The field `id` of a JSON object, as text; None if there is none."""
    try:
        found = read_json(body).get("id")
    except (ValueError, AttributeError):
        return None
    return None if found is None else str(found)


class HttpApi:
    """POSTs each request to `url` with the key in the header Idempotency-Key. It never retries and never follows redirects.

    2xx: Accepted, with `reference_of(body)` (default: the JSON field `id`). 429, 503 with Retry-After, and 401, 403 and 407 (`later`):
    Later. 408, 409 and 425: Unknown. Other 4xx: Declined. If no byte was sent, because no connection could be opened: Later. Everything
    else is Unknown.

    `look_up_url` contains `{key}` and is read with GET. 404: the API has never seen the key. 2xx: `found_in(body)`, which returns
    Accepted, Declined or None for never seen. By default an answer with a `reference_of(body)` is Accepted, and one without is Unknown: an
    API that answers 200 with an empty list needs a `found_in`. Choose a look-up that sees a call as soon as it is answered: one that reads
    a lagging copy would say "never seen" of a call that was done.

    `headers` is called before every request, so tokens stay fresh and are never stored. `timeout_s` is for all of it: `headers`, connect,
    send, and the answer to its last byte. While 32 calls of `headers` hang after their time-out, no other call starts: Later. An answer
    longer than `body_bytes_max`, or a compressed one, has no reference: it is as good as none for the look-up. Raises InvalidInput
    EFFECT_OPTION.
    """

    def __init__(
        self,
        url: str,
        *,
        look_up_url: str | None = None,
        key_valid_s: float = 0.0,
        settle_s: float = 60.0,
        timeout_s: float = 10.0,
        body_bytes_max: int = _BODY_BYTES_MAX,
        headers: Callable[[], Mapping[str, str]] = dict,
        content_type: str = "application/json",
        reference_of: Callable[[bytes], str | None] = json_id,
        found_in: Callable[[bytes], Accepted | Declined | Unknown | None] | None = None,
        later: Collection[int] = LATER,
    ) -> None:
        if timeout_s <= 0 or settle_s < 0 or key_valid_s < 0 or body_bytes_max < 1:
            found = f"{timeout_s=}, {settle_s=}, {key_valid_s=}, {body_bytes_max=}."
            raise option_wrong(found, "a time-out and a limit above 0, and the others 0 or more.")
        if look_up_url is not None and "{key}" not in look_up_url:
            raise option_wrong("look_up_url without {key}.", "the place of the key, such as https://api.example.com/charges/{key}.")
        for each in (url, *([look_up_url.replace("{key}", "key")] if look_up_url else [])):
            _check_url(each)
        self.key_valid_s, self.settle_s, self.timeout_s = key_valid_s, settle_s, timeout_s
        self.has_look_up = look_up_url is not None
        self._url, self._look_up_url = url, look_up_url or ""
        self._headers, self._content_type, self._later = headers, content_type, frozenset(later)
        self._reference_of = reference_of
        self._found_in = found_in
        self._body_bytes_max = body_bytes_max
        self._pool = CallPool(_CONNECTIONS)

    def send(self, request: bytes, key: str) -> Answer:
        """POST the request."""
        more = {"Content-Type": self._content_type, KEY_HEADER: key}
        if not self.has_look_up and not self.key_valid_s:
            # On a kept connection that the server closes just now, nobody could tell whether the request arrived.
            more["Connection"] = "close"
        answer = self._call("POST", self._url, more, request)
        if isinstance(answer, HttpFailure):
            return Unknown(answer.why) if answer.sent else Later(answer.why)
        status, told, after = answer.status, _told(answer), answer.headers.get("Retry-After")
        if 200 <= status < 300:
            return Accepted(self._reference(answer.body) if answer.whole else None)
        if status in self._later or (status == 503 and after is not None):
            return Later(told, _seconds(after))
        return Declined(told) if 400 <= status < 500 and status not in _UNKNOWN else Unknown(told)

    def look_up(self, key: str) -> Accepted | Declined | Unknown | None:
        """GET what was done under this key."""
        answer = self._call("GET", self._look_up_url.replace("{key}", quote(key, safe="")), {}, None)
        if isinstance(answer, HttpFailure):
            return Unknown(answer.why)
        if answer.status == 404:
            return None
        if not 200 <= answer.status < 300:
            return Unknown(_told(answer))
        if not answer.whole:
            return Unknown(f"the look-up's answer is compressed, or longer than {self._body_bytes_max:,} bytes; see body_bytes_max")
        if self._found_in is not None:
            return self._found_in(answer.body)
        reference = self._reference(answer.body)
        return Unknown("the look-up's answer has no reference; see found_in") if reference is None else Accepted(reference)

    def _call(self, method: str, url: str, more: Mapping[str, str], body: bytes | None) -> HttpAnswer | HttpFailure:
        def headers() -> Mapping[str, str]:
            made = urllib3.HTTPHeaderDict(self._headers())
            for name, value in more.items():
                made[name] = value  # in place of theirs, however it is spelt
            return made

        return HttpCall(self._pool, method, url, headers, body, self.timeout_s, self._body_bytes_max).outcome()

    def _reference(self, body: bytes) -> str | None:
        try:
            return self._reference_of(body)
        except Exception:  # it is done, whatever its name is
            return None


def _check_url(url: str) -> None:
    try:
        parsed = urllib3.util.parse_url(url)
    except LocationParseError:
        parsed = urllib3.util.Url()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise option_wrong("the API's URL is no http or https URL.", "one such as https://api.example.com/charges.")


def _told(answer: HttpAnswer) -> str:
    shown = " ".join(answer.body[: 4 * _DETAIL_CHARACTERS_MAX].decode("utf-8", "replace").split())
    return f"HTTP {answer.status}" + (f": {shown[:_DETAIL_CHARACTERS_MAX]}" if shown else "")


def _seconds(after: str | None) -> float:
    try:
        return Retry().parse_retry_after(after) if after is not None else 0.0
    except InvalidHeader:
        return 0.0
