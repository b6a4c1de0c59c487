"""TLS, with certificates made here and a handshake over a real socket."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from penstock.errors import MissingInput, SettingsError
from penstock.log.security.tls import principal_of, server_context
from tests.log.security.certificates import Pair, authority, signed

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with the openssl command")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    folder = tmp_path_factory.mktemp("certificates")
    ours, other = authority(folder), authority(folder, "other")
    return {
        "ours": ours,
        "other": other,
        "server": signed(folder, ours, "server", "/CN=localhost"),
        "alice": signed(folder, ours, "alice", "/O=Ops, Inc./CN=alice"),
        "mallory": signed(folder, other, "mallory", "/CN=alice"),
    }


def greet(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Shake hands over a socket pair; return the principal that the server saw."""
    ours, theirs = socket.socketpair()
    problems: list[BaseException] = []

    def connect() -> None:
        try:
            with client.wrap_socket(theirs, server_hostname="localhost") as wrapped:
                wrapped.recv(1)
        except (OSError, ssl.SSLError) as error:
            problems.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        with server.wrap_socket(ours, server_side=True) as wrapped:
            wrapped.send(b"x")
            return principal_of(wrapped.getpeercert())
    finally:
        thread.join()
        theirs.close()


def trusting(authority: Pair, shown: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if shown:
        context.load_cert_chain(shown.certificate, shown.key)
    return context


def test_a_client_that_trusts_the_authority_connects_without_a_certificate(made: dict[str, Pair]) -> None:
    context = server_context(made["server"].certificate, made["server"].key)
    assert greet(context, trusting(made["ours"])) is None


def test_a_clients_certificate_is_its_principal(made: dict[str, Pair]) -> None:
    context = server_context(made["server"].certificate, made["server"].key, made["ours"].certificate)
    assert greet(context, trusting(made["ours"], made["alice"])) == r"User:CN=alice,O=Ops\, Inc."


@pytest.mark.parametrize("shown", [None, "mallory"])
def test_a_client_without_a_certificate_of_the_authority_is_refused(made: dict[str, Pair], shown: str | None) -> None:
    context = server_context(made["server"].certificate, made["server"].key, made["ours"].certificate)
    with pytest.raises(ssl.SSLError):
        greet(context, trusting(made["ours"], made[shown] if shown else None))


def test_clients_may_come_without_where_a_login_does_as_well(made: dict[str, Pair]) -> None:
    server, ours = made["server"], made["ours"]
    context = server_context(server.certificate, server.key, ours.certificate, require_client=False)
    assert greet(context, trusting(ours)) is None
    with pytest.raises(ssl.SSLError):
        greet(context, trusting(ours, made["mallory"]))


def test_tls_older_than_1_2_is_not_spoken(made: dict[str, Pair]) -> None:
    assert server_context(made["server"].certificate, made["server"].key).minimum_version is ssl.TLSVersion.TLSv1_2


def test_files_that_are_missing_or_wrong_are_named(made: dict[str, Pair], tmp_path: Path) -> None:
    server, text = made["server"], tmp_path / "text"
    text.write_text("not PEM")
    with pytest.raises(MissingInput, match=r"the certificate .*nowhere"):
        server_context(tmp_path / "nowhere", server.key)
    with pytest.raises(MissingInput, match=r"the key .*nowhere"):
        server_context(server.certificate, tmp_path / "nowhere")
    with pytest.raises(SettingsError, match="cannot be used"):
        server_context(text, server.key)
    with pytest.raises(SettingsError, match="cannot be used: KEY_VALUES_MISMATCH"):
        server_context(server.certificate, made["alice"].key)
    with pytest.raises(SettingsError, match=r"client CA .* cannot be used"):
        server_context(server.certificate, server.key, text)


def test_a_key_with_a_password_is_refused_instead_of_asking_on_the_terminal(
    made: dict[str, Pair], tmp_path: Path
) -> None:
    locked = tmp_path / "locked.key"
    command = ["openssl", "pkey", "-in", made["server"].key, "-aes256", "-passout", "pass:secret", "-out", locked]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(SettingsError, match="has a password"):
        server_context(made["server"].certificate, locked)
