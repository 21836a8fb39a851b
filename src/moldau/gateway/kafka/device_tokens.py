"""Delegation tokens for devices with certificates: the gateway has no key of theirs, so it lets the cluster make a
token of which the device's user is the owner (KIP-373), and logs in with that."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.settings.security import SSL_PRINCIPAL_MAPPING_RULES
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.delegation_tokens import DelegationTokens
from moldau.client.cluster import Cluster
from moldau.gateway.kafka.own_cluster import ask_cluster
from moldau.security.principals import Principal
from moldau.security.sasl.client import ClientLogin
from moldau.security.tls.mapping_rules import DEFAULT_RULES, MappingRules, NoRuleApplies

T = TypeVar("T")
log = logging.getLogger("moldau.gateway")

MECHANISM: Final = "SCRAM-SHA-256"
TIMEOUT_MS: Final = 10_000
RULES: Final = SSL_PRINCIPAL_MAPPING_RULES.name


@dataclass(slots=True)
class DeviceToken:
    user: str
    login: ClientLogin
    hmac: bytes
    renew_at_ms: int


class DeviceTokens:
    def __init__(self, bootstrap: str, properties: Mapping[str, str], own: str) -> None:
        """`own` is the gateway's user, who may renew the tokens."""
        self._bootstrap = bootstrap
        self._renewers = (Principal("User", own),)
        self._rules = MappingRules(properties.get(RULES, DEFAULT_RULES))
        self._properties = {name: value for name, value in properties.items() if name != RULES}

    async def create(self, subject: str) -> DeviceToken:
        """Return a new token of the user with this distinguished name."""
        try:
            user = self._rules.user(subject)
        except NoRuleApplies:
            text = f"no rule of {RULES} applies to the certificate of {subject}"
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, text) from None
        try:
            made = await self._ask(lambda tokens: tokens.create(self._renewers, owner=Principal("User", user)))
        except KafkaError as error:
            log.warning("no delegation token for User:%s, who has a certificate: %s", user, error)
            raise KafkaError(error.code, f"no delegation token for User:{user}: {error}") from None
        token = made.token
        login = ClientLogin(MECHANISM, token.id, base64.b64encode(made.hmac).decode(), by_token=True)
        return DeviceToken(user, login, made.hmac, (_now_ms() + token.expires_ms) // 2)

    async def renew_in_time(self, token: DeviceToken) -> None:
        """Renew a token after half of its time."""
        if _now_ms() < token.renew_at_ms:
            return
        try:
            expires_at_ms = await self._ask(lambda tokens: tokens.renew(token.hmac))
        except KafkaError as error:
            log.warning("the delegation token of User:%s is not renewed: %s", token.user, error)
            return
        token.renew_at_ms = (_now_ms() + expires_at_ms) // 2

    async def close(self, tokens: Iterable[DeviceToken]) -> None:
        """Let these expire."""
        for token in tokens:
            try:
                await self._ask(partial(_expire, token.hmac))
            except KafkaError as error:
                log.warning("the delegation token of User:%s is left to expire: %s", token.user, error)

    async def _ask(self, action: Callable[[DelegationTokens], T]) -> T:
        def ask(cluster: Cluster) -> T:
            return action(DelegationTokens(ClusterAdmin(cluster, TIMEOUT_MS)))

        return await ask_cluster(self._bootstrap, self._properties, ask)


def _expire(hmac: bytes, tokens: DelegationTokens) -> None:
    tokens.expire(hmac)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
