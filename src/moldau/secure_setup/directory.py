"""The files of `--secure` in a data directory, which only its owner can read:

    authority.key       the private key of the authority
    authority.pem       its certificate, which clients trust; written last: with it, the directory counts as secured
    node.pem            private key and certificate of the nodes
    client.properties   the settings of a client, with the password of the admin user: the only place that has it
    secure.properties   what later starts need again: the key of delegation tokens, the advertised name, and the names
                        that the machine has had

They are plain files beside the partitions, because Apache Kafka refuses directories in a log directory that are not
partitions.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import mkstemp
from typing import Final

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.properties import parse, render
from moldau.base.secure_files import AUTHORITY, AUTHORITY_KEY, CLIENT, KEPT, NODE, TEMPORARY
from moldau.base.settings.security import DELEGATION_TOKEN_SECRET_KEY
from moldau.log.files import DiskFiles
from moldau.log.meta_properties import META_PROPERTIES, ForeignDirectory, refuse_unformatted_data
from moldau.platforms.durable_files import sync_directory
from moldau.platforms.replaced_files import replacement
from moldau.secure_setup.authority import (
    RENEW_BEFORE,
    Authority,
    as_host,
    expires,
    hosts_of,
    issue,
    new_authority,
    require_cryptography,
)
from moldau.secure_setup.first_users import credential_records, new_password, write_first_records
from moldau.secure_setup.problems import SetupFailed
from moldau.secure_setup.settings import (
    ADMIN,
    MECHANISMS,
    client_file,
    client_properties,
    internal_client_properties,
    secured_properties,
)

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
KEPT_HEADER: Final = "# Made by --secure, for later starts. Without the key, no delegation token is valid any more.\n"
PRIVATE_FILE: Final = 0o600
PUBLIC_FILE: Final = 0o644
PRIVATE_DIRECTORY: Final = 0o700
KEPT_MACHINE_NAMES: Final = "machine.names"
MACHINE_NAMES_MAX: Final = 20
"""Names of the machine, the newest, that a certificate has: a container has another name whenever it is made again."""


@dataclass(frozen=True, slots=True)
class SecureDirectory:
    path: Path

    @property
    def is_set_up(self) -> bool:
        return (self.path / AUTHORITY).exists()

    @property
    def client_file(self) -> Path:
        return self.path / CLIENT

    @property
    def authority(self) -> str:
        """The certificate that clients trust."""
        return self._read(AUTHORITY)

    @property
    def stores(self) -> tuple[str, str]:
        """The paths of the key store and the trust store of nodes."""
        absolute = self.path.absolute()
        return str(absolute / NODE), str(absolute / AUTHORITY)

    def node_properties(self, token_key: str) -> dict[str, str]:
        return secured_properties(*self.stores, token_key)

    def kept(self) -> dict[str, str]:
        """Return what `keep` has written; raise SetupFailed if it cannot be read."""
        if not (self.path / KEPT).exists():
            return {}
        try:
            return {each.key: each.value for each in parse(self._read(KEPT))}
        except MalformedData:
            raise SetupFailed(f"{self.path / KEPT} is damaged") from None

    def keep(self, values: Mapping[str, str]) -> None:
        """Write these values for later starts, beside those that are there."""
        before = self.kept()
        after = {**before, **values}
        if after == before:
            return
        try:
            self._write(KEPT, KEPT_HEADER + render(after))
        except OSError as error:
            raise _failed(error, self.path) from error

    def token_key(self) -> str | None:
        """Return the key of delegation tokens, if there is one already."""
        return self.kept().get(DELEGATION_TOKEN_SECRET_KEY.name)

    def ensured_token_key(self) -> str:
        """Return the key of delegation tokens; make it if there is none."""
        key = self.token_key() or new_password()
        self.keep({DELEGATION_TOKEN_SECRET_KEY.name: key})
        return key

    @contextmanager
    def new_client_file(self, password: str) -> Iterator[None]:
        """Write the settings of a client with a new password of the admin user, which the block sets. The file gets its
        name after the block: if it cannot be written, the old password stays valid."""
        settings = client_file(client_properties(ADMIN, password, self.authority))
        with replacement(self.client_file, _open_ours(self.client_file), settings):
            yield
        sync_directory(str(self.path))

    def internal_client_properties(self) -> dict[str, str]:
        return internal_client_properties(*self.stores)

    def set_up(self, hosts: Iterable[str], log_dirs: Sequence[Path], now: datetime, password: str = "") -> str:
        """Make everything; return the password of the admin user, a new one unless it is given.

        `log_dirs` are those of the nodes: each may be the first to lead the quorum. Raise SetupFailed if it cannot be
        done; what is there then is made anew by the next attempt.
        """
        require_cryptography()
        for log_dir in log_dirs:
            _check_is_new(log_dir)
        password = password or new_password()
        try:
            self._make_private_directory()
            authority = new_authority(now)
            self._write(AUTHORITY_KEY, authority.key)
            self._write(NODE, issue(authority, _all_hosts(hosts), now))
            records = credential_records(ADMIN, password, MECHANISMS)
            for log_dir in log_dirs:
                write_first_records(DiskFiles(), str(log_dir), records, int(now.timestamp() * 1000))
            self._write(CLIENT, client_file(client_properties(ADMIN, password, authority.certificate)))
            self._write(AUTHORITY, authority.certificate)
        except StorageFault as fault:
            raise SetupFailed(str(fault)) from fault
        except OSError as error:
            raise _failed(error, self.path) from error
        return password

    def renew_if_due(self, hosts: Iterable[str], now: datetime, *, is_running: bool = False) -> bool:
        """Issue a new certificate if the present one expires soon or lacks one of the hosts; return whether it did.

        The new one has all hosts of the old one, because a running node refuses a certificate that lacks some. Only at
        a start, the oldest of the machine's own names go if there are many.
        """
        present = self._read(NODE)
        known, wanted = hosts_of(present), _all_hosts(hosts)
        if expires(present) - now >= RENEW_BEFORE and wanted <= known:
            return False
        authority = Authority(self.authority, self._read(AUTHORITY_KEY))
        new_name = _machine_name() - known
        text = self.kept().get(KEPT_MACHINE_NAMES, "")
        names = list(dict.fromkeys([*filter(None, text.split(",")), *new_name]))
        outdated = () if is_running else names[:-MACHINE_NAMES_MAX]
        try:
            self._write(NODE, issue(authority, wanted | (known - frozenset(outdated)), now))
        except OSError as error:
            raise _failed(error, self.path) from error
        if new_name or outdated:
            self.keep({KEPT_MACHINE_NAMES: ",".join(names[len(outdated) :])})
        return True

    def _make_private_directory(self) -> None:
        self.path.mkdir(PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        self.path.chmod(PRIVATE_DIRECTORY)

    def _read(self, name: str) -> str:
        path = self.path / name
        try:
            return path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise _failed(error, path) from error

    def _write(self, name: str, text: str) -> None:
        path = self.path / name
        with replacement(path, _open_ours(path), text):
            pass
        sync_directory(str(self.path))


def _check_is_new(log_dir: Path) -> None:
    if (log_dir / META_PROPERTIES).exists():
        raise SetupFailed(
            f"{log_dir} holds the data of a broker without --secure, whose clients have no passwords, or its"
            f" {AUTHORITY} is missing; choose another --data-dir, or set TLS, SASL and ACLs up yourself"
            " (docs/security.md)"
        )
    try:
        refuse_unformatted_data(DiskFiles(), str(log_dir))
    except ForeignDirectory as foreign:
        raise SetupFailed(str(foreign)) from foreign
    except StorageFault as fault:
        raise SetupFailed(str(fault)) from fault


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step by one that only this user can read."""
    with replacement(path, _open_private(path), text):
        pass


def write_public(path: Path, text: str) -> None:
    """Replace a file in one step by one that everybody can read, such as a certificate."""
    temporary, descriptor = _open_private(path)
    temporary.chmod(PUBLIC_FILE)
    with replacement(path, (temporary, descriptor), text):
        pass


def check_can_write_private(path: Path) -> None:
    """Raise OSError if the directory does not exist or this user may not write there."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary, descriptor = _open_private(path)
    os.close(descriptor)
    temporary.unlink()


def _open_private(path: Path) -> tuple[Path, int]:
    """Return the path and the descriptor of a new file beside the path that only this user can read."""
    descriptor, temporary = mkstemp(TEMPORARY, f"{path.name}.", path.parent)
    return Path(temporary), descriptor


def _open_ours(path: Path) -> tuple[Path, int]:
    """Like `_open_private` in a data directory, where one that a crash left behind is known by its name."""
    temporary = path.with_name(path.name + TEMPORARY)
    temporary.unlink(missing_ok=True)
    return temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)


def _all_hosts(hosts: Iterable[str]) -> frozenset[str]:
    """Return the hosts and those that every certificate has: of the loopback interface, and this machine's name."""
    return frozenset(as_host(host) for host in (*LOCAL_HOSTS, *hosts)) | _machine_name()


def _machine_name() -> frozenset[str]:
    """Return this machine's name; nothing if it is no host name."""
    with suppress(SetupFailed):
        return frozenset([as_host(socket.gethostname())])
    return frozenset()


def _failed(error: OSError | UnicodeDecodeError, path: Path) -> SetupFailed:
    if isinstance(error, UnicodeDecodeError):
        return SetupFailed(f"{path} is damaged")
    return SetupFailed(f"{error.filename or path}: {(error.strerror or str(error)).lower()}")
