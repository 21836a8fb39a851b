"""A broker with ACLs at which users log in as they like, by PLAIN, SCRAM, OAuth or a delegation token, and the
gateway's accounts before it.

    with login_broker(directory) as running:
        running.allow("anna", AclOperation.WRITE, kind=ResourceType.TOPIC, name="telemetry")
        run_with_accounts(running.bootstrap, running.properties("admin"), test)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from harness.tokens import AUDIENCE, ISSUER, Issuer
from moldau.base.acl_operations import AclOperation
from moldau.client.admin.acls import Acls
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.delegation_tokens import DelegationTokens, TokenWithHmac
from moldau.client.admin.topics import create_topic
from moldau.client.admin.users import Users
from moldau.client.cluster import Cluster
from moldau.gateway.kafka.accounts import KafkaAccounts
from moldau.platforms.event_loop import new_loop
from moldau.security.acls.bindings import AclBinding, PatternType, Permission, ResourceType
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.testing.broker import TestBroker

TIMEOUT_MS: Final = 30_000
PLAIN_USERS: Final = {"admin": "r00t", "gate": "pw-gate", "anna": "pw-anna", "bob": "pw-bob"}
"""Those who may log in by PLAIN; the others are added by `set_password`."""
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


class LoginBroker:
    def __init__(self, broker: TestBroker, issuer: Issuer) -> None:
        self.bootstrap = broker.bootstrap_servers
        self.issuer = issuer
        self._passwords = dict(PLAIN_USERS)
        self._admin = ClusterAdmin(Cluster(self.bootstrap, self.properties("admin")), TIMEOUT_MS)

    def properties(self, user: str, mechanism: str = "PLAIN") -> dict[str, str]:
        module = _PLAIN if mechanism == "PLAIN" else _SCRAM
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} username="{user}" password="{self._passwords[user]}";',
        }

    def create_topic(self, name: str, partitions: int = 2) -> None:
        create_topic(self._admin, name, partitions)

    def set_password(self, user: str, password: str) -> None:
        """For SCRAM."""
        Users(self._admin).set_password(user, password)
        self._passwords.setdefault(user, password)

    def allow(self, user: str, *operations: AclOperation, kind: ResourceType, name: str) -> None:
        principal = f"User:{user}"
        Acls(self._admin).create(
            AclBinding(kind, name, PatternType.LITERAL, principal, "*", operation, Permission.ALLOW)
            for operation in operations
        )

    def tokens(self) -> list[TokenWithHmac]:
        return DelegationTokens(self._admin).describe()

    def close(self) -> None:
        self._admin.cluster.close()


@contextmanager
def login_broker(directory: Path) -> Iterator[LoginBroker]:
    issuer, keys = Issuer(), directory / "keys.json"
    keys.write_bytes(issuer.key_set())
    users = " ".join(f'user_{name}="{password}"' for name, password in PLAIN_USERS.items())
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_PLAIN} {users};",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{_OAUTH};",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin;User:ANONYMOUS",
        "delegation.token.secret.key": "k3y",
    }
    broker = TestBroker(directory / "data", settings).start()
    running = LoginBroker(broker, issuer)
    try:
        yield running
    finally:
        running.close()
        broker.stop()


def run_with_accounts(
    bootstrap: str,
    properties: Mapping[str, str],
    test: Callable[[KafkaAccounts], Coroutine[Any, Any, None]],
    anonymous: bool = False,
) -> None:
    async def main() -> None:
        faults: list[Mapping[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        accounts = KafkaAccounts(bootstrap, properties, anonymous)
        try:
            await test(accounts)
        finally:
            await accounts.close()
        assert not faults, "callbacks raise nothing"

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
