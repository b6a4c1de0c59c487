"""Users: what is kept on disk, and what of it can be seen."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.log import users_app
from penstock.errors import RunError, SettingsError
from penstock.log.security.authentication import Authentication
from penstock.log.security.users import Users

PASSWORD = "correct-horse-battery"


def test_users_survive_a_restart_and_only_their_owner_can_read_the_file(tmp_path: Path) -> None:
    Users(tmp_path).add("alice", PASSWORD, is_super=True)
    again = Users(tmp_path)
    assert [(user.name, user.is_super, list(user.credentials)) for user in again] == [
        ("alice", True, ["SCRAM-SHA-256", "SCRAM-SHA-512"])
    ]
    assert stat.S_IMODE((tmp_path / "users.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["users.json"]


def test_the_password_is_nowhere_to_be_found(tmp_path: Path) -> None:
    users = Users(tmp_path)
    user = users.add("alice", PASSWORD)
    credential = user.credentials["SCRAM-SHA-256"]
    assert PASSWORD not in (tmp_path / "users.json").read_text()
    shown = f"{user!r} {credential!r} {users!r} {user}"
    secrets = [PASSWORD, *(key.hex() for key in (credential.salt, credential.stored_key, credential.server_key))]
    secrets += [repr(key) for key in (credential.salt, credential.stored_key, credential.server_key)]
    assert not [secret for secret in secrets if secret in shown]


def test_a_failed_login_does_not_repeat_what_was_sent(tmp_path: Path) -> None:
    users = Users(tmp_path)
    users.add("alice", PASSWORD)
    for message in (f"\0alice\0{PASSWORD}x", f"{PASSWORD}", f"\0{PASSWORD}\0alice"):
        login = Authentication(users, ["PLAIN"])
        login.handshake("PLAIN")
        with pytest.raises(Exception, match="login failed") as caught:
            login.step(message.encode())
        assert PASSWORD not in f"{caught.value} {caught.value!r} {login!r}"


def test_two_users_with_one_password_have_different_keys(tmp_path: Path) -> None:
    users = Users(tmp_path)
    one, other = (users.add(name, PASSWORD).credentials["SCRAM-SHA-512"] for name in ("alice", "bob"))
    assert one.salt != other.salt
    assert one.stored_key != other.stored_key
    assert one.iterations >= 4096


def test_what_another_process_changes_is_seen_at_the_next_login(tmp_path: Path) -> None:
    server, command = Users(tmp_path), Users(tmp_path)
    command.add("alice", PASSWORD)
    assert server.get("alice") is not None
    server.add("bob", PASSWORD)
    assert [user.name for user in command] == ["alice", "bob"]
    command.remove("alice")
    assert server.get("alice") is None


def test_a_new_password_replaces_the_old_one_and_a_super_user_stays_one(tmp_path: Path) -> None:
    users = Users(tmp_path)
    users.add("alice", "old", is_super=True)
    user = users.add("alice", "new", ["SCRAM-SHA-512"])
    assert user.is_super
    assert list(user.credentials) == ["SCRAM-SHA-512"]
    assert user.credentials["SCRAM-SHA-512"].fits_password("new")
    assert not user.credentials["SCRAM-SHA-512"].fits_password("old")


@pytest.mark.parametrize("text", ["{", "[]", '{"users": {}}', '{"decoy": "00", "users": {"a": {}}}', '{"decoy": "zz"}'])
def test_a_damaged_file_is_named_and_never_taken_for_no_users(tmp_path: Path, text: str) -> None:
    (tmp_path / "users.json").write_text(text)
    with pytest.raises(SettingsError, match=r"users\.json is damaged"):
        Users(tmp_path)


def test_a_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    users = Users(tmp_path / "data")
    users.add("alice", PASSWORD)
    (tmp_path / "data").rename(tmp_path / "moved")
    (tmp_path / "data").write_text("no folder")
    with pytest.raises((RunError, NotADirectoryError)):
        users.add("bob", PASSWORD)
    assert [user.name for user in Users(tmp_path / "moved")] == ["alice"]


def run(*arguments: str, password: str | None = PASSWORD) -> str:
    result = CliRunner().invoke(users_app, arguments, env={"PENSTOCK_PASSWORD": password}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_adds_lists_and_removes_without_showing_a_password(tmp_path: Path) -> None:
    data = str(tmp_path)
    said = run("add", "alice", "--data", data, "--super")
    said += run("add", "bob", "--data", data, "--mechanism", "SCRAM-SHA-512")
    said += run("list", "--data", data)
    assert "alice" in said
    assert "bob" in said
    assert PASSWORD not in said
    run("remove", "alice", "--data", data)
    assert [user.name for user in Users(tmp_path)] == ["bob"]


def test_the_command_reads_a_password_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{PASSWORD}\n")
    run("add", "alice", "--data", str(tmp_path), "--password-file", str(tmp_path / "secret"), password=None)
    user = Users(tmp_path).get("alice")
    assert user is not None
    assert user.credentials["SCRAM-SHA-256"].fits_password(PASSWORD)


@pytest.mark.parametrize(
    ("arguments", "password", "says"),
    [
        (["add", "alice"], None, "no password was given"),
        (["add", "alice"], "", "needs a name and a password"),
        (["add", "alice", "--mechanism", "SCRAM-SHA-1"], PASSWORD, "unknown mechanism 'SCRAM-SHA-1'"),
        (["remove", "alice"], None, "there is no user 'alice'"),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path: Path, arguments: list[str], password: str | None, says: str) -> None:
    with pytest.raises(SettingsError, match=says) as caught:
        run(*arguments, "--data", str(tmp_path), password=password)
    assert caught.value.hint
