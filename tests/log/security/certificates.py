"""Certificates for tests, made with the openssl command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    certificate: Path
    key: Path


def authority(folder: Path, name: str = "authority") -> Pair:
    pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
    _openssl("req", "-x509", *_new_key(pair.key), "-out", pair.certificate, "-days", "2", "-subj", f"/CN={name}")
    return pair


def signed(folder: Path, by: Pair, name: str, subject: str) -> Pair:
    """A certificate for localhost; `subject` as openssl writes it: /O=Ops/CN=alice."""
    pair, request, names = (
        Pair(folder / f"{name}.crt", folder / f"{name}.key"),
        folder / f"{name}.csr",
        folder / "names",
    )
    names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    _openssl("req", *_new_key(pair.key), "-out", request, "-subj", subject)
    signer = ["-CA", by.certificate, "-CAkey", by.key, "-CAcreateserial", "-days", "2", "-extfile", names]
    _openssl("x509", "-req", "-in", request, "-out", pair.certificate, *signer)
    return pair


def _new_key(path: Path) -> list[str | Path]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path]


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
