"""Decoders of records, made one at a time.

What msgspec learns of a type when that is first decoded is not safe from other threads (seen with 0.22): two
that begin at once may take the process down.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_one_at_a_time = threading.Lock()
_made: dict[type, msgspec.json.Decoder[Any]] = {}


def decoder(type: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of JSON for a type, always the same one. Once it is made, ``msgspec.convert`` is safe as well."""
    found = _made.get(type)
    if found is None:
        with _one_at_a_time:
            if (found := _made.get(type)) is None:
                found = _made[type] = msgspec.json.Decoder(type)
    return found
