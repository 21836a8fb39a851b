"""The part of kafka-configs for users, clients and addresses: quotas, and users' SCRAM credentials.

A password is hashed here and only the hash is sent (KIP-554); it is never printed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from moldau.base.errors import ErrorCode
from moldau.base.limits import SALT_BYTES
from moldau.cli.kafka.connection import clients
from moldau.cli.kafka.java.numbers import double_text
from moldau.cli.kafka.tool import ToolFailed
from moldau.security.quotas.entities import CLIENT_KEYS, IP_KEYS
from moldau.wire.apis import ApiKey

if TYPE_CHECKING:
    from moldau.client.channel import Channel
    from moldau.wire.messages.alter_user_scram_credentials import ScramCredentialUpsertion

EntityNames = Sequence[tuple[str, str | None]]
"""Types and names of entities: an empty name is the default of its type, None stands for all."""

QUOTA_ENTITIES: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
"""The entity types of the quota requests by the entity types of the flags."""
TITLES: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
"""What is printed for the entity types of the quota requests, in the order in which a line names them."""

CLIENT_QUOTAS: Final = frozenset(CLIENT_KEYS)
IP_QUOTAS: Final = frozenset(IP_KEYS)
MECHANISMS: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
"""The SCRAM mechanisms: their numbers in requests and the names of their hashes in hashlib."""
SCRAM_ITERATIONS: Final = 4096
"""Kafka's default and minimum."""


def describe(channel: Channel, entities: EntityNames) -> None:
    entity_types = {entity_type for entity_type, _ in entities}
    # A broker without quotas still has users.
    if channel.offers(ApiKey.DESCRIBE_CLIENT_QUOTAS) or entity_types != {"users"}:
        for line in _quota_lines(channel, entities):
            print(line)
    names = [name for _, name in entities]
    if entity_types == {"users"} and "" not in names:
        _describe_credentials(channel, [name for name in names if name is not None])


def _quota_lines(channel: Channel, entities: EntityNames) -> list[str]:
    from moldau.client.admin.quotas import ANY_NAME, Quotas

    names = [(QUOTA_ENTITIES[kind], ANY_NAME if name is None else name or None) for kind, name in entities]
    with clients.response_errors():
        found = Quotas(channel.ask).of(names)
    lines = []
    for entity, limits in found.items():
        parts = dict(entity)
        title = ", ".join(_title(entity_type, parts[entity_type]) for entity_type in TITLES if entity_type in parts)
        values = ", ".join(f"{key}={double_text(value)}" for key, value in limits.items())
        lines.append(f"Quota configs for {title} are {values}")
    return lines


def _title(entity_type: str, name: str | None) -> str:
    return f"the default {TITLES[entity_type]}" if name is None else f"{TITLES[entity_type]} '{name}'"


def _describe_credentials(channel: Channel, users: Sequence[str]) -> None:
    from moldau.client.requests.scram import describe_credentials

    with clients.response_errors():
        results = describe_credentials(channel.ask, users)
    names = {number: name for name, (number, _) in MECHANISMS.items()}
    for result in results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        clients.raise_for_error(result.error_code, result.error_message)
        infos = ", ".join(f"{names[info.mechanism]}=iterations={info.iterations}" for info in result.credential_infos)
        print(f"SCRAM credential configs for user-principal '{result.user}' are {infos}")


def alter(
    channel: Channel, entities: Sequence[tuple[str, str]], added: Mapping[str, str], removed: Sequence[str]
) -> None:
    _check_config_names([entity_type for entity_type, _ in entities], added, removed)
    names = {*added, *removed}
    if names.isdisjoint(MECHANISMS):
        _alter_quotas(channel, entities, added, removed)
        return
    ((_, user),) = entities  # _check_config_names: only a user alone has credentials.
    if not user:
        raise ToolFailed(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials"
            " using --bootstrap-server."
        )
    if not names <= MECHANISMS.keys():
        raise ToolFailed(
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using --bootstrap-server."
        )
    _alter_credentials(channel, user, added, removed)


def _check_config_names(entity_types: Sequence[str], added: Iterable[str], removed: Iterable[str]) -> None:
    """Raise ToolFailed with Kafka's message if entities of these types cannot have one of the configs."""
    if "ips" in entity_types:
        # Kafka says "added" about the configs to delete too.
        _check_known([*added, *removed], IP_QUOTAS, "Only connection quota configs can be added for 'ips'")
        return
    if "clients" in entity_types:  # a client, or a user together with a client
        known, kinds, entity_type = CLIENT_QUOTAS, "quota", "clients"
    else:
        known, kinds, entity_type = CLIENT_QUOTAS | MECHANISMS.keys(), "quota and SCRAM credential", "users"
    _check_known(added, known, f"Only {kinds} configs can be added for '{entity_type}'")
    _check_known(removed, known, f"Only {kinds} configs can be deleted for '{entity_type}'")


def _check_known(names: Iterable[str], known: frozenset[str], rule: str) -> None:
    unknown = sorted(set(names) - known)
    if unknown:
        raise ToolFailed(f"{rule} using --bootstrap-server. Unexpected config names: {','.join(unknown)}")


def _alter_quotas(
    channel: Channel, entities: Sequence[tuple[str, str]], added: Mapping[str, str], removed: Sequence[str]
) -> None:
    from moldau.client.admin.quotas import Quotas

    limits = {key: _quota_value(key, value) for key, value in added.items()}
    with clients.response_errors():
        Quotas(channel.ask).alter([(QUOTA_ENTITIES[kind], name or None) for kind, name in entities], limits, removed)


def _quota_value(key: str, value: str) -> float:
    try:
        if "_" in value:  # float() ignores it, Java refuses it
            raise ValueError
        return float(value)
    except ValueError:
        raise ToolFailed(f"Cannot parse quota configuration value for {key}: {value}") from None


def _alter_credentials(channel: Channel, user: str, added: Mapping[str, str], removed: Sequence[str]) -> None:
    from moldau.client.requests.scram import alter_credentials
    from moldau.wire.messages.alter_user_scram_credentials import ScramCredentialDeletion

    deletions = [ScramCredentialDeletion(name=user, mechanism=MECHANISMS[name][0]) for name in removed]
    upsertions = [salted_credential(user, name, text) for name, text in added.items()]
    with clients.response_errors():
        alter_credentials(channel.ask, upsertions, deletions)


def salted_credential(user: str, mechanism: str, text: str) -> ScramCredentialUpsertion:
    """Parse `[iterations=8192,]password=secret`; return the salted hash to send."""
    from moldau.wire.messages.alter_user_scram_credentials import ScramCredentialUpsertion

    match = re.fullmatch(r"(?:iterations=(-?[0-9]{1,9})?,)?password=(.*)", text, re.DOTALL)
    if match is None:
        raise ToolFailed(f"Invalid credential property {mechanism}; write {mechanism}=[iterations=4096,password=...]")
    iterations = SCRAM_ITERATIONS if match[1] in (None, "-1") else int(match[1])
    if iterations < SCRAM_ITERATIONS:
        raise ToolFailed(
            f"Iterations {iterations} is less than the minimum {SCRAM_ITERATIONS} required for {mechanism}"
        )
    number, digest = MECHANISMS[mechanism]
    salt = os.urandom(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(digest, match[2].encode(), salt, iterations)
    return ScramCredentialUpsertion(
        name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
    )
