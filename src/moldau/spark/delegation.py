"""Delegation tokens for tasks: executors log in with a token of the driver's user and never get its password.

A token is not renewed. When half of its life is over, another one takes its place, and the tasks of later batches get
that; the old one expires by itself. Spark plans some batches in processes of their own, so a process first looks for
a token that an earlier one made: brokers tell users their own tokens.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.cluster import RETRIABLE, Cluster
from moldau.client.cluster_admin import ClusterAdmin
from moldau.client.delegation_tokens import DelegationTokens, TokenWithHmac
from moldau.client.properties import security
from moldau.security.delegation_tokens import DelegationToken
from moldau.security.principals import Principal
from moldau.security.sasl.jaas import SCRAM_MODULE
from moldau.spark.options import KAFKA, ReadOptions, WriteOptions

LOGIN: Final = "sasl."
"""The beginning of all client properties of a user's login, Java's and librdkafka's."""
TIMEOUT_MS: Final = 30_000
NEW_MS: Final = 10_000
"""A token of this age may not be known to all brokers yet."""
DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"
"""Of tokens, if the user does not log in with SCRAM; Spark's own connector has the same."""

_tokens: dict[tuple[str, tuple[tuple[str, str], ...]], TokenWithHmac] = {}
"""The tokens of this process, by cluster and login."""


@dataclass(frozen=True, slots=True)
class TaskLogin:
    """The client properties of a task: Spark shows the fields of what it sends to tasks."""

    properties: Mapping[str, str] = field(repr=False)


def task_login(options: ReadOptions) -> TaskLogin | None:
    """Return the login of the tasks of a batch; None if they have the driver's."""
    return TaskLogin(_task_properties(options.bootstrap, options.properties)) if options.delegation_token else None


def in_task(options: ReadOptions, login: TaskLogin | None) -> ReadOptions:
    return options if login is None else replace(options, properties=login.properties)


def delegated(options: WriteOptions) -> WriteOptions:
    """Return the options of a write's tasks and of its commit."""
    if not options.delegation_token:
        return options
    return replace(options, properties=_task_properties(options.bootstrap, options.properties))


def without_login(options: ReadOptions) -> ReadOptions:
    """Return the options that may leave the driver."""
    return replace(options, properties=_without_login(options.properties)) if options.delegation_token else options


def is_login(option: str) -> bool:
    """Return whether an option of the connector is part of a user's login."""
    return option.lower().startswith(KAFKA + LOGIN)


def _without_login(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if not name.startswith(LOGIN)}


def _task_properties(bootstrap: str, properties: Mapping[str, str]) -> dict[str, str]:
    key = bootstrap, tuple(sorted(properties.items()))
    token = _tokens.get(key)
    if token is None or not is_fresh(token.token, _now_ms()):
        token = _tokens[key] = _find_or_create(bootstrap, properties)
    return with_token(properties, token)


def with_token(properties: Mapping[str, str], token: TokenWithHmac) -> dict[str, str]:
    """Return the properties with a token instead of the user's login. TLS stays as it is."""
    login = security(properties).login
    assert login is not None, "checked with the options"
    hmac = b64encode(token.hmac).decode()
    return {
        **_without_login(properties),
        "sasl.mechanism": login.mechanism if login.mechanism.startswith("SCRAM") else DEFAULT_MECHANISM,
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="{token.token.id}" password="{hmac}" tokenauth="true";',
    }


def is_fresh(token: DelegationToken, now_ms: int) -> bool:
    """Return whether at least half of the token's life is left."""
    return token.lifetime_ms(now_ms) > token.lifetime_ms(token.issued_ms) / 2


def is_own(token: DelegationToken, user: Principal) -> bool:
    """Return whether the user made the token for itself, and for nobody else to renew."""
    return token.owner == token.requester == user and not token.renewers


def _find_or_create(bootstrap: str, properties: Mapping[str, str]) -> TokenWithHmac:
    login = security(properties).login
    assert login is not None, "checked with the options"
    user = Principal("User", login.user)
    with ClusterAdmin(Cluster(bootstrap, properties), TIMEOUT_MS) as admin:
        tokens = DelegationTokens(admin)
        try:
            own = [each for each in tokens.describe([user]) if is_own(each.token, user)]
            fresh = [each for each in own if is_fresh(each.token, _now_ms())]
            token = max(fresh, key=lambda each: each.token.expires_ms) if fresh else tokens.create()
        except KafkaError as error:
            if error.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED:
                raise ValueError(
                    "delegationToken=true: the brokers have no delegation tokens; set delegation.token.secret.key"
                ) from None
            raise
    if _now_ms() - token.token.issued_ms < NEW_MS:
        _wait_until_known(bootstrap, with_token(properties, token))
    return token


def _wait_until_known(bootstrap: str, properties: Mapping[str, str]) -> None:
    """Log in on every broker with the token: a broker learns of it a little after the controller."""
    retriable = RETRIABLE | {ErrorCode.SASL_AUTHENTICATION_FAILED}
    with closing(Cluster(bootstrap, properties)) as cluster:

        def log_in() -> None:
            for node in list(cluster.nodes()):
                cluster.channel(node)

        cluster.retry(log_in, TIMEOUT_MS, retriable)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
