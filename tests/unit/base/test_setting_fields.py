"""Dataclasses whose fields hold the values of rows."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.base.config_def import ConfigDef, ConfigValue
from moldau.base.settings import groups, log, node, own, security
from moldau.base.settings.fields import read_settings, setting, setting_values, times


@dataclass(frozen=True, slots=True)
class Some:
    max_size: int = setting(groups.GROUP_MAX_SIZE)
    retention_ms: int = setting(groups.OFFSETS_RETENTION_MINUTES, times(60_000))
    policy: frozenset[str] = setting(log.LOG_CLEANUP_POLICY, frozenset)
    rack: str | None = setting(node.BROKER_RACK)
    directories: tuple[str, ...] = setting(log.LOG_DIRS)
    secret: str | None = setting(security.DELEGATION_TOKEN_SECRET_KEY, shown=False)
    name: str = "not from a row"


def test_defaults_are_those_of_the_rows() -> None:
    assert Some() == Some(2**31 - 1, 604_800_000, frozenset({"delete"}), None, (), None)


def test_values_are_converted_and_others_stay() -> None:
    texts = {groups.OFFSETS_RETENTION_MINUTES: "2", log.LOG_CLEANUP_POLICY: "compact", node.BROKER_RACK: ""}

    def value_of(row: ConfigDef) -> ConfigValue:
        return row.parse(texts[row]) if row in texts else row.default

    assert read_settings(Some, value_of) == Some(retention_ms=120_000, policy=frozenset({"compact"}))
    assert "name" not in setting_values(Some, lambda row: row.default)


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(Some(secret="hunter2"))


def test_a_row_is_shown_as_its_key() -> None:
    assert f"{own.MOLDAU_RESERVE_BYTES}=0" == "moldau.reserve.bytes=0"
