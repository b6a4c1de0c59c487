"""The bounds of a server, where it may listen, and what it needs to start."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import SettingsError
from penstock.log.errors import LogError
from penstock.log.network.limits import ConnectionCounter, Limits
from penstock.log.security.setup import check_listen, offered_mechanisms, open_security
from penstock.log.security.users import Users


def test_a_limit_that_cannot_be_meant_is_refused() -> None:
    with pytest.raises(SettingsError, match="request_bytes"):
        Limits(request_bytes=0)


def test_connections_are_counted_in_all_and_per_host() -> None:
    connections = ConnectionCounter(Limits(connections=3, connections_per_host=2))
    connections.opened("a")
    connections.opened("a")
    with pytest.raises(LogError, match="one host"):
        connections.opened("a")
    connections.opened("b")
    with pytest.raises(LogError, match="3 connections"):
        connections.opened("c")
    connections.closed("a")
    connections.opened("c")
    assert connections.open == 3
    assert set(connections._by_host) == {"a", "b", "c"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.7"])
def test_listening_beyond_this_machine_without_authentication_is_refused(host: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="without authentication") as caught:
        open_security(tmp_path, host)
    assert caught.value.hint
    check_listen(host, authenticated=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_this_machine_alone_may_be_served_without_authentication(host: str, tmp_path: Path) -> None:
    security = open_security(tmp_path, host)
    assert security.access is None
    assert security.authentication() is None


def test_logins_without_a_single_user_are_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="has no users") as caught:
        open_security(tmp_path, login=True)
    assert "penstock log user add" in str(caught.value.hint)
    Users(tmp_path).add("alice", "pencil")
    security = open_security(tmp_path, "0.0.0.0", login=True, tls=True)
    login = security.authentication()
    assert login is not None
    assert not login.ready


def test_plain_is_offered_only_where_nobody_can_listen_in() -> None:
    assert "PLAIN" not in offered_mechanisms("0.0.0.0", tls=False)
    assert "PLAIN" in offered_mechanisms("0.0.0.0", tls=True)
    assert "PLAIN" in offered_mechanisms("127.0.0.1", tls=False)
    assert "SCRAM-SHA-512" in offered_mechanisms("0.0.0.0", tls=False)
