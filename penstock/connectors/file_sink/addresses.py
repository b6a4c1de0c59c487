"""Which place a path or URL stands for."""

from __future__ import annotations

import os

from penstock.connectors.file_sink.local import LocalPlace
from penstock.connectors.file_sink.places import Place
from penstock.errors import BadValue, choices

SCHEMES = ("s3", "gs", "az")


def located(path: str, base: str = "") -> str:
    """Return the absolute path or the URL that a path below `base` stands for.

    >>> located("out", "s3://lake/jobs"), located("gs://lake/out/", "/data"), located("out", "/data")
    ('s3://lake/jobs/out', 'gs://lake/out', '/data/out')
    """
    if "://" in path:
        return _url(path)
    if "://" in base and not base.startswith("file://"):
        return _url(base.rstrip("/") + "/" + path)
    return os.path.abspath(os.path.join(base.removeprefix("file://"), path))


def place(where: str) -> Place:
    """Return the place at what `located` returned."""
    if "://" not in where:
        return LocalPlace(where)
    from penstock.connectors.file_sink.objects import ObjectPlace

    return ObjectPlace(where)


def _url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if scheme == "file":
        return os.path.abspath(rest)
    if scheme not in SCHEMES:
        meant = "s3" if scheme in ("s3a", "s3n") else scheme
        message = f"files: {scheme}:// is not known"
        raise BadValue(message, hint=choices("known", SCHEMES, meant))
    parts = rest.rstrip("/").split("/")
    if not all(parts) or {".", ".."} & set(parts):
        message = f"files: {url!r} names no bucket and path"
        raise BadValue(message, hint=f"write {scheme}://BUCKET/PATH, without empty parts, '.' or '..'")
    return f"{scheme}://{'/'.join(parts)}"
