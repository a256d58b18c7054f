"""What every noun is: a frozen value with a canonical JSON form."""

from __future__ import annotations

import hashlib

import msgspec


class Noun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A frozen value; unknown fields are ignored when read, so that newer files open in older code."""


def digest(value: object) -> str:
    """SHA-256 (hex) of the canonical JSON of any noun or plain value: sorted keys, defaults left out."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
