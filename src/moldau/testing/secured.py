"""Clients of a broker or cluster in a test: their settings, and with `secure=True` users, passwords and ACLs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from moldau.base.acl_operations import AclOperation
from moldau.base.properties import parse
from moldau.base.settings.security import SASL_JAAS_CONFIG
from moldau.client.admin.acls import Acls
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.users import Users
from moldau.client.cluster import Cluster
from moldau.client.properties import for_librdkafka
from moldau.secure_setup.directory import SecureDirectory, write_private
from moldau.secure_setup.first_users import new_password
from moldau.secure_setup.settings import ADMIN, client_file, client_properties
from moldau.security.acls.bindings import WILDCARD, AclBinding, PatternType, Permission, ResourceType
from moldau.security.sasl.jaas import parse_line

TIMEOUT_MS: Final = 30_000


class SecuredClients:
    """What `TestBroker` and `TestCluster` have in common. Without `secure=True` clients need only the address."""

    data_dir: Path
    _secured: SecureDirectory | None = None

    def _secure(self, log_dirs: list[Path]) -> SecureDirectory:
        """Make keys, certificates and the admin user, unless the directory has them."""
        secured, now = SecureDirectory(self.data_dir), datetime.now(UTC)
        if secured.is_set_up:
            secured.renew_if_due([], now)
        else:
            secured.set_up([], log_dirs, now)
        self._secured = secured
        self._passwords: dict[str, str] = {}
        return secured

    def _secured_properties(self, secured: SecureDirectory) -> dict[str, str]:
        return secured.node_properties(secured.ensured_token_key())

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients."""
        raise NotImplementedError

    @property
    def authority_file(self) -> Path:
        """The certificate that clients trust, as PEM, for libraries that want a file."""
        return Path(self._required().stores[1])

    def client_config(self, user: str = ADMIN) -> dict[str, str]:
        """Return the settings of a client of confluent-kafka."""
        return for_librdkafka(self.java_properties(user))

    def java_properties(self, user: str = ADMIN) -> dict[str, str]:
        """Return the settings of a client with the names of Java's clients, as Spark and Kafka's tools take them."""
        address = {"bootstrap.servers": self.bootstrap_servers}
        if self._secured is None:
            return address
        if user == ADMIN and user not in self._passwords:
            return {**address, **{each.key: each.value for each in parse(self._secured.client_file.read_text())}}
        return {**address, **client_properties(user, self.password(user), self._secured.authority)}

    def command_config(self, user: str = ADMIN) -> Path:
        """Return a properties file for `--command-config`."""
        path = self.data_dir / f"client-{user}.properties"
        write_private(path, client_file(self.java_properties(user)))
        return path

    def password(self, user: str) -> str:
        """Return the password of `admin`, or of a user that `add_user` has added."""
        secured = self._required()
        if user not in self._passwords:
            if user == ADMIN:
                properties = {each.key: each.value for each in parse(secured.client_file.read_text())}
                return parse_line(properties[SASL_JAAS_CONFIG.name]).options["password"]
            raise ValueError(f"no user {user!r} was added here; `add_user({user!r})` adds it")
        return self._passwords[user]

    def add_user(self, name: str, password: str | None = None) -> str:
        """Add a user, or give it a new password; return the password. It may do nothing until `allow`."""
        self._required()
        chosen = password or new_password()
        with self._admin() as admin:
            Users(admin).set_password(name, chosen)
        self._passwords[name] = chosen
        self._await_metadata()
        return chosen

    def allow(
        self,
        user: str,
        operations: str,
        *,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        prefix: bool = False,
    ) -> None:
        """Allow a user operations such as "read,describe" on resources; "*" as a name means all of them. Without a
        resource, they are operations on the cluster, such as "create"."""
        self._required()
        kinds = {ResourceType.TOPIC: topic, ResourceType.GROUP: group, ResourceType.TRANSACTIONAL_ID: transactional_id}
        names = {kind: name for kind, name in kinds.items() if name is not None}
        pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
        bindings = [
            AclBinding(kind, name, pattern, f"User:{user}", WILDCARD, _operation(word), Permission.ALLOW)
            for kind, name in (names or {ResourceType.CLUSTER: "kafka-cluster"}).items()
            for word in operations.split(",")
        ]
        with self._admin() as admin:
            Acls(admin).create(bindings)
        self._await_metadata()

    def _admin(self) -> ClusterAdmin:
        return ClusterAdmin(Cluster(self.bootstrap_servers, self.java_properties()), TIMEOUT_MS)

    def _await_metadata(self) -> None:
        """Wait until every node knows what was changed."""

    def _required(self) -> SecureDirectory:
        if self._secured is None:
            raise ValueError("this broker has no users; start it with `secure=True`")
        return self._secured


def _operation(word: str) -> AclOperation:
    try:
        return AclOperation[word.strip().upper().replace("-", "_")]
    except KeyError:
        names = ", ".join(each.name.lower() for each in AclOperation if each > AclOperation.ANY)
        raise ValueError(f"{word!r} is not an operation; expected some of {names}, with commas between them") from None
