"""The files of `--secure`: who can read them, when they are created, and when they are renewed."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from moldau.base.properties import parse
from moldau.base.secure_files import AUTHORITY, SECURE_FILES
from moldau.cli.admin_password import renew_admin_password
from moldau.client.admin.users import Users
from moldau.log.files import DiskFiles
from moldau.log.meta_properties import MetaProperties, write
from moldau.platforms import replaced_files
from moldau.runtime.controller.first_records import read_first_records
from moldau.secure_setup import directory
from moldau.secure_setup.authority import NODE_LIFETIME, hosts_of
from moldau.secure_setup.directory import MACHINE_NAMES_MAX, SecureDirectory
from moldau.secure_setup.problems import SetupFailed
from moldau.security.sasl.jaas import parse_line
from moldau.security.scram_credentials import ScramMechanism

NOW = datetime(2026, 11, 17, tzinfo=UTC)


@pytest.fixture
def secured(tmp_path: Path) -> SecureDirectory:
    return SecureDirectory(tmp_path / "data")


def set_up(secured: SecureDirectory, *hosts: str) -> str:
    return secured.set_up(hosts, [secured.path], NOW)


def node_pem(secured: SecureDirectory) -> str:
    return Path(secured.stores[0]).read_text()


def test_only_the_owner_can_read_the_files(secured: SecureDirectory) -> None:
    secured.path.mkdir(mode=0o755)
    password = set_up(secured)
    assert secured.path.stat().st_mode & 0o777 == 0o700
    private = {
        path.name: path.stat().st_mode & 0o777 for path in secured.path.iterdir() if ".checkpoint" not in path.name
    }
    assert private == dict.fromkeys(("authority.key", "authority.pem", "node.pem", "client.properties"), 0o600)
    assert {path.name for path in secured.path.iterdir()} <= SECURE_FILES
    with_password = [path.name for path in secured.path.iterdir() if password.encode() in path.read_bytes()]
    assert with_password == ["client.properties"]
    assert password not in repr(secured)


def test_the_client_file_and_the_first_records_are_of_the_same_user(secured: SecureDirectory) -> None:
    password = set_up(secured)
    properties = {each.key: each.value for each in parse(secured.client_file.read_text())}
    assert properties["ssl.truststore.certificates"] == secured.authority.strip()
    assert parse_line(properties["sasl.jaas.config"]).options == {"username": "admin", "password": password}
    records = read_first_records(DiskFiles(), str(secured.path))
    assert {(record.name, record.mechanism) for record in records} == {  # type: ignore[union-attr]
        ("admin", ScramMechanism.SCRAM_SHA_256),
        ("admin", ScramMechanism.SCRAM_SHA_512),
    }


def test_every_node_of_a_cluster_gets_the_first_records(secured: SecureDirectory) -> None:
    log_dirs = [secured.path / f"node-{number}" for number in (1, 2, 3)]
    secured.set_up([], log_dirs, NOW)
    assert all(read_first_records(DiskFiles(), str(log_dir)) for log_dir in log_dirs)


def test_passwords_are_random(tmp_path: Path) -> None:
    passwords = {set_up(SecureDirectory(tmp_path / name)) for name in "ab"}
    assert len(passwords) == 2
    assert all(len(password) == 24 for password in passwords)


def test_an_interrupted_setup_is_repeated_from_scratch(secured: SecureDirectory) -> None:
    first = set_up(secured)
    os.unlink(secured.path / AUTHORITY)
    assert not secured.is_set_up
    (secured.path / "node.pem.tmp").write_text("half")
    assert set_up(secured) != first
    assert secured.is_set_up


def test_data_without_security_is_refused(secured: SecureDirectory) -> None:
    write(DiskFiles(), str(secured.path), MetaProperties("id", 1, bytes(16)))  # type: ignore[arg-type]
    with pytest.raises(SetupFailed, match="data holds the data of a broker without --secure"):
        set_up(secured)
    assert os.listdir(secured.path) == ["meta.properties"]


def test_a_directory_with_other_files_is_refused_and_unchanged(secured: SecureDirectory) -> None:
    secured.path.mkdir(mode=0o755)
    (secured.path / "thesis.tex").touch()
    with pytest.raises(SetupFailed, match=r"holds thesis.tex and no meta.properties"):
        set_up(secured)
    assert secured.path.stat().st_mode & 0o777 == 0o755
    assert os.listdir(secured.path) == ["thesis.tex"]


def test_a_path_that_cannot_be_a_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupFailed, match="file/data: not a directory"):
        set_up(SecureDirectory(tmp_path / "file" / "data"))


def test_a_certificate_is_renewed_shortly_before_it_expires(secured: SecureDirectory) -> None:
    set_up(secured, "kafka.example.com")
    first = node_pem(secured)
    assert not secured.renew_if_due(["kafka.example.com"], NOW + timedelta(days=200))
    assert node_pem(secured) == first
    assert secured.renew_if_due([], NOW + NODE_LIFETIME - timedelta(days=30))
    assert node_pem(secured) != first
    assert hosts_of(node_pem(secured)) == hosts_of(first)
    assert Path(secured.stores[0]).stat().st_mode & 0o777 == 0o600


def test_a_new_host_name_is_added_to_the_certificate(secured: SecureDirectory) -> None:
    set_up(secured, "old.example.com")
    assert secured.renew_if_due(["new.example.com"], NOW)
    assert {"old.example.com", "new.example.com", "localhost", "127.0.0.1", "::1"} <= hosts_of(node_pem(secured))
    assert not secured.renew_if_due(["old.example.com"], NOW)


def test_only_the_newest_names_of_the_machine_are_kept(
    secured: SecureDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container has another host name whenever it is recreated."""
    set_up(secured, "kafka.example.com")
    for number in range(MACHINE_NAMES_MAX + 5):
        monkeypatch.setattr("socket.gethostname", lambda number=number: f"container-{number}")
        assert secured.renew_if_due([f"container-{number}"], NOW)
        assert not secured.renew_if_due([], NOW)
    hosts = hosts_of(node_pem(secured))
    names = {f"container-{number}" for number in range(5, MACHINE_NAMES_MAX + 5)}
    assert {host for host in hosts if host.startswith("container-")} == names
    assert {"kafka.example.com", "localhost", "127.0.0.1", "::1"} <= hosts
    assert secured.renew_if_due([], NOW + NODE_LIFETIME)
    assert hosts_of(node_pem(secured)) == hosts, "a running node refuses a certificate that lacks some"


def test_a_file_named_like_a_temporary_one_is_kept(tmp_path: Path) -> None:
    path, other = tmp_path / "ann.properties", tmp_path / "ann.properties.tmp"
    other.write_text("mine")
    directory.check_can_write_private(path)
    directory.write_private(path, "text")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {path.name: "text", other.name: "mine"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(replaced_files, "sync_file", fail)
    with pytest.raises(OSError, match="No space left"):
        directory.write_private(tmp_path / "ann.properties", "text")
    assert list(tmp_path.iterdir()) == []


def test_damaged_and_missing_certificates_are_reported(secured: SecureDirectory) -> None:
    set_up(secured)
    Path(secured.stores[0]).write_text("half")
    with pytest.raises(SetupFailed, match="a certificate is damaged"):
        secured.renew_if_due([], NOW)
    Path(secured.stores[0]).unlink()
    with pytest.raises(SetupFailed, match=r"node.pem: no such file"):
        secured.renew_if_due([], NOW)


def test_kept_settings_are_private_and_merged(secured: SecureDirectory) -> None:
    assert secured.kept() == {}
    set_up(secured)
    key = secured.ensured_token_key()
    assert len(key) == 24
    secured.keep({"advertise": "kafka.example.com"})
    assert secured.kept() == {"delegation.token.secret.key": key, "advertise": "kafka.example.com"}
    assert secured.ensured_token_key() == key
    path = secured.path / "secure.properties"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.name in SECURE_FILES
    assert key not in repr(secured)
    path.write_text("a=\\u12\n")
    with pytest.raises(SetupFailed, match=r"secure\.properties is damaged"):
        secured.kept()


def test_a_client_file_can_be_recreated(secured: SecureDirectory) -> None:
    set_up(secured)
    before = secured.client_file.read_text()
    secured.client_file.unlink()
    with secured.new_client_file("another"):
        assert not secured.client_file.exists(), "the password is not set yet"
    properties = {each.key: each.value for each in parse(secured.client_file.read_text())}
    assert parse_line(properties["sasl.jaas.config"]).options == {"username": "admin", "password": "another"}
    assert secured.client_file.read_text() != before
    assert secured.client_file.stat().st_mode & 0o777 == 0o600


def test_a_client_file_is_not_created_if_its_password_cannot_be_set(secured: SecureDirectory) -> None:
    set_up(secured)
    secured.client_file.unlink()
    files = sorted(secured.path.iterdir())
    with pytest.raises(ConnectionError), secured.new_client_file("another"):
        raise ConnectionError
    assert sorted(secured.path.iterdir()) == files


def test_no_password_is_set_if_its_client_file_cannot_be_written(
    secured: SecureDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the old password would be invalid and the new one unknown."""
    set_up(secured)
    secured.client_file.unlink()

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(replaced_files, "sync_file", fail)
    monkeypatch.setattr(Users, "set_password", lambda *_: pytest.fail("the password was set"))
    with pytest.raises(SetupFailed, match=r"client.properties is missing and cannot be made again: .*No space left"):
        renew_admin_password("localhost:1", {}, secured)
