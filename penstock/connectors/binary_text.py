"""Bytes in JSON: text in base64, as Spark, Kafka Connect and Penstock's own sinks write them, at any depth."""

from __future__ import annotations

from binascii import a2b_base64

import pyarrow as pa


def from_base64(text: str) -> bytes:
    """Return the bytes of a text in base64: standard alphabet, padded, nothing else; raise ValueError otherwise.

    >>> from_base64("aGk=")
    b'hi'
    """
    return a2b_base64(text, strict_mode=True)


def is_base64(text: str) -> bool:
    """Say whether `from_base64` takes a text."""
    try:
        from_base64(text)
    except ValueError:
        return False
    return True


def decoded(texts: pa.Array) -> pa.Array:
    """Return texts in base64 as bytes; raise ArrowInvalid if one is none."""
    try:
        return pa.array([None if text is None else from_base64(text) for text in texts.to_pylist()], pa.binary())
    except ValueError as error:
        message = f"not base64: {error}"
        raise pa.ArrowInvalid(message) from error
