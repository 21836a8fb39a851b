"""Delegation tokens for devices with certificates: the gateway has no key of theirs, so it lets the cluster make a
token of which the device's user is the owner (KIP-373), and logs in with that."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.settings.security import SSL_PRINCIPAL_MAPPING_RULES
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.delegation_tokens import DelegationTokens, TokenWithHmac
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
    expires_at_ms: int
    renew_at_ms: int
    """After half of the time that is left."""
    fresh_until_ms: int
    """Until half of the time is over for which it can be renewed at all: whoever comes later gets another one."""

    @property
    def is_fresh(self) -> bool:
        return _now_ms() < min(self.fresh_until_ms, self.expires_at_ms)

    def renewed(self, expires_at_ms: int) -> None:
        self.expires_at_ms = expires_at_ms
        self.renew_at_ms = (_now_ms() + expires_at_ms) // 2


class DeviceTokens:
    def __init__(self, bootstrap: str, properties: Mapping[str, str], own: str) -> None:
        """`own` is the gateway's user, who may renew the tokens."""
        self._bootstrap = bootstrap
        self._renewers = (Principal("User", own),)
        self._rules = MappingRules(properties.get(RULES, DEFAULT_RULES))
        self._properties = {name: value for name, value in properties.items() if name != RULES}
        self._latest: dict[str, DeviceToken] = {}
        """By user: devices come and go, and the cluster keeps each token for a day or longer."""
        self._tokens: list[DeviceToken] = []
        """All that have not expired: a device may be connected for days."""

    async def of(self, subject: str) -> DeviceToken:
        """Return a token of the user with this distinguished name, perhaps the same as before."""
        try:
            user = self._rules.user(subject)
        except NoRuleApplies:
            text = f"no rule of {RULES} applies to the certificate of {subject}"
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, text) from None
        latest = self._latest.get(user)
        if latest is not None and latest.is_fresh:
            return latest
        try:
            made = await self._ask(lambda tokens: tokens.create(self._renewers, owner=Principal("User", user)))
        except KafkaError as error:
            log.warning("no delegation token for User:%s, who has a certificate: %s", user, error)
            raise KafkaError(error.code, f"no delegation token for User:{user}: {error}") from None
        token = _device_token(user, made)
        self._latest[user] = token
        self._tokens.append(token)
        return token

    async def renew_in_time(self) -> None:
        """Renew tokens after half of their time, and forget those that have expired."""
        now_ms = _now_ms()
        self._tokens = [token for token in self._tokens if token.expires_at_ms > now_ms]
        self._latest = {user: token for user, token in self._latest.items() if token.expires_at_ms > now_ms}
        due = [token for token in self._tokens if token.renew_at_ms <= now_ms]
        await self._ask_for_each(due, _renew, "is not renewed")

    async def close(self) -> None:
        """Let all expire."""
        await self._ask_for_each(self._tokens, _expire, "is left to expire")

    async def _ask_for_each(
        self, due: Sequence[DeviceToken], action: Callable[[DelegationTokens, DeviceToken], None], failed: str
    ) -> None:
        """Do something for these tokens on one connection."""

        def ask(tokens: DelegationTokens) -> None:
            for token in due:
                try:
                    action(tokens, token)
                except KafkaError as error:
                    log.warning("the delegation token of User:%s %s: %s", token.user, failed, error)

        if not due:
            return
        try:
            await self._ask(ask)
        except KafkaError as error:
            log.warning("the delegation tokens of %d users: each %s: %s", len(due), failed, error)

    async def _ask(self, action: Callable[[DelegationTokens], T]) -> T:
        def ask(cluster: Cluster) -> T:
            return action(DelegationTokens(ClusterAdmin(cluster, TIMEOUT_MS)))

        return await ask_cluster(self._bootstrap, self._properties, ask)


def _device_token(user: str, made: TokenWithHmac) -> DeviceToken:
    token = made.token
    login = ClientLogin(MECHANISM, token.id, base64.b64encode(made.hmac).decode(), by_token=True)
    renew_at_ms, fresh_until_ms = ((_now_ms() + end_ms) // 2 for end_ms in (token.expires_ms, token.max_ms))
    return DeviceToken(user, login, made.hmac, token.expires_ms, renew_at_ms, fresh_until_ms)


def _renew(tokens: DelegationTokens, token: DeviceToken) -> None:
    token.renewed(tokens.renew(token.hmac))


def _expire(tokens: DelegationTokens, token: DeviceToken) -> None:
    tokens.expire(token.hmac)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
