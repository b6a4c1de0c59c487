"""SCRAM, held against the RFC's own exchange and against a client that nobody here wrote."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from aiokafka.conn import ScramAuthenticator
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.security.authentication import LoginFailed, Plain, Scram
from penstock.log.security.users import Credential, User, Users

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture
def users(tmp_path: Path) -> Users:
    users = Users(tmp_path)
    users.add("alice", "pencil")
    return users


Client = Generator[tuple[bytes, bool], bytes, None]


def client_of(name: str, password: str, mechanism: str) -> Client:
    names = {"sasl_plain_username": name, "sasl_plain_password": password}
    return ScramAuthenticator(loop=None, sasl_mechanism=mechanism, **names).authenticator_scram()


def proof_of(client: Client, server: Scram) -> bytes:
    """What the client sends after the first exchange."""
    return client.send(server.step(next(client)[0]))[0]


def log_in(users: Users, mechanism: str, name: str, password: str) -> Scram:
    server, client = Scram(users, mechanism), client_of(name, password, mechanism)
    answer = server.step(proof_of(client, server))
    with pytest.raises(StopIteration):  # the client found the server's proof good
        client.send(answer)
    return server


def test_the_exchange_of_rfc_7677(tmp_path: Path) -> None:
    users = Users(tmp_path)
    salt = bytes.fromhex("5b6d99689d12358eeca04b141236fa81")
    credential = Credential.of_password("SCRAM-SHA-256", "pencil", salt=salt, iterations=4096)
    users.put(User("user", {"SCRAM-SHA-256": credential}))
    server = Scram(users, "SCRAM-SHA-256", nonce=lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    assert not server.done
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert server.step(f"c=biws,r={nonce},p={proof}".encode()) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert (server.done, server.user) == (True, "user")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_logs_in_and_the_server_proves_itself_too(users: Users, mechanism: str) -> None:
    server = log_in(users, mechanism, "alice", "pencil")
    assert (server.done, server.user) == (True, "alice")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_unknown_user_and_a_wrong_password_are_told_the_same(users: Users, mechanism: str) -> None:
    said = set()
    for name, password in [("alice", "wrong"), ("mallory", "pencil")]:
        with pytest.raises(LoginFailed) as caught:
            log_in(users, mechanism, name, password)
        said.add(caught.value.message)
    assert len(said) == 1


def test_an_unknown_user_is_shown_the_same_salt_each_time_after_a_restart_too(users: Users, tmp_path: Path) -> None:
    def salt(of: Users, name: str) -> bytes:
        return Scram(of, "SCRAM-SHA-256").step(f"n,,n={name},r=abc".encode()).split(b",")[1]

    assert salt(users, "mallory") == salt(users, "mallory") == salt(Users(tmp_path), "mallory")
    assert len({len(salt(users, name)) for name in ("alice", "mallory", "eve")}) == 1
    assert salt(users, "mallory") != salt(users, "eve")


def test_a_user_without_a_password_for_this_mechanism_cannot_log_in_by_it(tmp_path: Path) -> None:
    users = Users(tmp_path)
    users.add("bob", "pencil", ["SCRAM-SHA-512"])
    assert log_in(users, "SCRAM-SHA-512", "bob", "pencil").done
    with pytest.raises(LoginFailed):
        log_in(users, "SCRAM-SHA-256", "bob", "pencil")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=alice",
        b"n,,r=abc,n=alice",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,a=root,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,m=x,n=alice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=alice,r=",
        b"\xff\xfe",
    ],
)
def test_a_first_message_that_is_none_is_refused(users: Users, message: bytes) -> None:
    with pytest.raises(LoginFailed):
        Scram(users, "SCRAM-SHA-256").step(message)


def test_a_name_with_commas_and_equals_signs_is_read_as_the_rfc_writes_it(tmp_path: Path) -> None:
    users = Users(tmp_path)
    users.add("a,b=c", "pencil")
    assert log_in(users, "SCRAM-SHA-256", "a,b=c", "pencil").user == "a,b=c"


@pytest.mark.parametrize("change", [(b"c=biws", b"c=eSws"), (b",r=", b",r=x"), (b",p=", b",p=AA"), (b",p=", b",q=")])
def test_a_last_message_that_was_changed_on_the_way_is_refused(users: Users, change: tuple[bytes, bytes]) -> None:
    server = Scram(users, "SCRAM-SHA-256")
    proof = proof_of(client_of("alice", "pencil", "SCRAM-SHA-256"), server)
    with pytest.raises(LoginFailed):
        server.step(proof.replace(*change))
    assert not server.done


def test_a_proof_cannot_be_used_a_second_time(users: Users) -> None:
    server = Scram(users, "SCRAM-SHA-256")
    proof = proof_of(client_of("alice", "pencil", "SCRAM-SHA-256"), server)
    server.step(proof)
    for replayed in (server, Scram(users, "SCRAM-SHA-256")):
        with pytest.raises(LoginFailed):
            replayed.step(proof)


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_random_bytes_never_log_anyone_in(messages: list[bytes]) -> None:
    server = Scram(_SHARED, "SCRAM-SHA-256")
    for message in messages:
        with pytest.raises(LoginFailed):
            server.step(message)
        assert not server.done


@pytest.mark.parametrize("only", [["SCRAM-SHA-256"], ["SCRAM-SHA-512"], MECHANISMS])
def test_plain_is_checked_against_the_salted_keys(tmp_path: Path, only: list[str]) -> None:
    users = Users(tmp_path)
    users.add("alice", "pencil", only)
    login = Plain(users)
    assert login.step(b"\0alice\0pencil") == b""
    assert (login.done, login.user) == (True, "alice")


@pytest.mark.parametrize(
    "message",
    [b"\0alice\0wrong", b"\0mallory\0pencil", b"root\0alice\0pencil", b"alice\0pencil", b"", b"\0\0", b"\xff\0a\0b"],
)
def test_plain_refuses_anything_else(users: Users, message: bytes) -> None:
    login = Plain(users)
    with pytest.raises(LoginFailed):
        login.step(message)
    assert not login.done


_SHARED = Users(Path("no-such-folder"))
