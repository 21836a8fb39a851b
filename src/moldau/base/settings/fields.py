"""Dataclasses of settings whose fields hold the values of rows: `max_size: int = setting(groups.GROUP_MAX_SIZE)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, field, fields
from typing import Any, Final, TypeVar

from moldau.base.config_def import ConfigDef, ConfigType, ConfigValue

T = TypeVar("T")
ValueOf = Callable[[ConfigDef], ConfigValue]
"""Returns the value of a row's key, or its default."""

_ROW: Final = "row"
_CONVERT: Final = "convert"


def setting(row: ConfigDef, convert: Callable[[Any], object] | None = None, *, shown: bool = True) -> Any:
    """Return a field that holds the value of this row, after `convert`, and has the row's default. The value of a
    string that is not set, or empty, is None, that of such a list is (). Fields that are not `shown` hold secrets."""
    default = _converted(row, row.default, convert)
    return field(default=default, repr=shown, metadata={_ROW: row, _CONVERT: convert})


def times(factor: int) -> Callable[[int], int]:
    """Return a conversion to a smaller unit."""
    return lambda value: value * factor


def row_of(each: Field[Any]) -> ConfigDef | None:
    """Return the row whose value a field of a dataclass holds."""
    return each.metadata.get(_ROW)


def setting_values(cls: Any, value_of: ValueOf) -> dict[str, Any]:
    """Return the values of the fields of a dataclass that hold those of rows."""
    return {
        each.name: _converted(row, value_of(row), each.metadata[_CONVERT])
        for each in fields(cls)
        if (row := row_of(each)) is not None
    }


def read_settings(cls: type[T], value_of: ValueOf) -> T:
    """Return an instance of a dataclass all of whose fields hold values of rows."""
    return cls(**setting_values(cls, value_of))


def _converted(row: ConfigDef, value: ConfigValue, convert: Callable[[Any], object] | None) -> object:
    if row.type is ConfigType.LIST:
        value = value or ()
    elif row.type in (ConfigType.STRING, ConfigType.CLASS, ConfigType.PASSWORD):
        value = value or None
    return value if convert is None else convert(value)
