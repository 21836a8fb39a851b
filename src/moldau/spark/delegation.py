"""Delegation tokens for tasks: executors log in with a token of the driver's user and never get its password.

The driver has a token ready for each batch that it plans (`client/token_login`). Later batches may have another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client import token_login
from moldau.client.admin.delegation_tokens import TokenWithHmac
from moldau.spark.options import KAFKA, ReadOptions, WriteOptions

_tokens: dict[tuple[str, tuple[tuple[str, str], ...]], TokenWithHmac] = {}
"""The tokens of this process, by cluster and login."""


@dataclass(frozen=True, slots=True)
class TaskLogin:
    """The client properties of a task. They are not in its repr: Spark shows the fields of what it sends to tasks."""

    properties: Mapping[str, str] = field(repr=False)


def task_login(options: ReadOptions) -> TaskLogin | None:
    """Return the login of the tasks of a batch; None if tasks use the driver's own."""
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
    if not options.delegation_token:
        return options
    return replace(options, properties=token_login.without_login(options.properties))


def is_login(option: str) -> bool:
    """Return whether an option of the connector is part of a user's login."""
    return option.lower().startswith(KAFKA + token_login.LOGIN)


def _task_properties(bootstrap: str, properties: Mapping[str, str]) -> dict[str, str]:
    key = bootstrap, tuple(sorted(properties.items()))
    token = _tokens.get(key)
    if token is None or not token_login.is_fresh(token.token, token_login.now_ms()):
        token = _tokens[key] = _fresh_token(bootstrap, properties)
    return token_login.with_token(properties, token)


def _fresh_token(bootstrap: str, properties: Mapping[str, str]) -> TokenWithHmac:
    try:
        return token_login.fresh_token(bootstrap, properties)
    except KafkaError as error:
        if error.code is not ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED:
            raise
        raise ValueError(
            "delegationToken=true: the brokers have no delegation tokens; set delegation.token.secret.key"
        ) from None
