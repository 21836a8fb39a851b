"""Messages as JSON, as Kafka's tools print them.

Names in JSON are Kafka's: the field names in camel case, UUIDs and bytes in base64, tagged fields only where they
differ from their default.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Final

from moldau.base.ids import uuid_text
from moldau.wire.schema import Field, Message, fields_of

_ESCAPED: Final = re.compile(r"\\(?:u([0-9a-f]{4})|.)")


def to_json(message: Message, version: int) -> str:
    """Return a message as Kafka's tools print it: no blanks, fields in their order on the wire."""
    return json_text(message_fields(message, version))


def json_text(value: Any) -> str:
    """Return JSON with escapes spelled as in Kafka's library: hexadecimal digits in upper case."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _ESCAPED.sub(lambda match: "\\u" + match[1].upper() if match[1] else match[0], text)


def message_fields(message: Message, version: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for field in fields_of(message.__class__):
        value = getattr(message, field.name)
        if version in field.versions and (field.tag is None or value != field.default):
            fields[_camel_case(field.name)] = _field(value, field, version)
    return fields


def _field(value: Any, field: Field, version: int) -> Any:
    if field.is_array and value is not None:
        return [_element(item, field, version) for item in value]
    return _element(value, field, version)


def _element(value: Any, field: Field, version: int) -> Any:
    if isinstance(value, Message):
        return message_fields(value, version)
    if not isinstance(value, bytes):
        return value
    return uuid_text(value) if field.type_name == "uuid" else base64.b64encode(value).decode()


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return ("kRaft" if first == "kraft" else first) + "".join(word.capitalize() for word in rest)
