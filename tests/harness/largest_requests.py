"""The largest requests that an API accepts: one of its arrays is filled with the smallest elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple

from harness.depth import sample
from harness.random_messages import INTEGERS, Filling, least_element, random_message
from moldau.wire.apis import ApiKey, request_class
from moldau.wire.decoder_source import REQUEST_ELEMENTS_MAX
from moldau.wire.frames import request_frame
from moldau.wire.schema import Field, Message, fields_of
from moldau.wire.source_writer import FIXED


class LargestRequest(NamedTuple):
    name: str
    frame: bytes


def largest_requests(api: ApiKey, version: int, bytes_max: int, elements_max: int) -> Iterator[LargestRequest]:
    """For each array of the request: as many elements as allowed, once all alike and once all different. Without more
    depth one of both: they alternate over arrays and APIs."""
    cls = request_class(api)
    for number, path in enumerate(_array_paths(cls, version)):
        for kind in sample(("alike", "different"), 2, first=api // 2 + number):
            name = f"{'.'.join(field.name for field in path)} {kind}"
            is_limited = path[-1].struct is not None or path[-1].type_name not in FIXED
            count = elements_max if is_limited else REQUEST_ELEMENTS_MAX
            yield LargestRequest(name, _fitting(api, version, path, bytes_max, count, kind == "different"))


def _array_paths(cls: type[Message], version: int) -> Iterator[tuple[Field, ...]]:
    for field in fields_of(cls):
        if version not in field.versions:
            continue
        if field.is_array:
            yield (field,)
        if field.struct is not None:
            for inner in _array_paths(field.struct, version):
                yield (field, *inner)


def _fitting(
    api: ApiKey, version: int, path: Sequence[Field], bytes_max: int, count: int, are_different: bool
) -> bytes:
    while True:
        message = random_message(request_class(api), version, Filling.LEAST, 0)
        _fill(message, path, version, count, are_different)
        frame = request_frame(api, version, 7, "client", message)
        if len(frame) - 4 <= bytes_max:
            return frame
        count = min(count - 1, int(count * 0.99 * bytes_max / len(frame)))


def _fill(message: Message, path: Sequence[Field], version: int, count: int, are_different: bool) -> None:
    field, *rest = path
    if rest:
        inner = least_element(field, version)
        _fill(inner, rest, version, count, are_different)
        setattr(message, field.name, [inner] if field.is_array else inner)
        return
    if are_different:
        elements = _different(field, version, count)
    else:
        elements = [least_element(field, version)] * count
    setattr(message, field.name, elements)


def _different(field: Field, version: int, count: int) -> list[Any]:
    least = least_element(field, version)
    if field.struct is None:
        return [_value(field.type_name, number, least) for number in range(count)]
    key = next((each for each in fields_of(field.struct) if version in each.versions and _is_key(each)), None)
    if key is None:
        return [least] * count
    elements = [copy(least) for _ in range(count)]
    for number, element in enumerate(elements):
        setattr(element, key.name, _value(key.type_name, number, getattr(least, key.name)))
    return elements


def _is_key(field: Field) -> bool:
    """Whether elements are told apart by this field."""
    if field.is_array or field.struct is not None:
        return False
    is_number = "partition" in field.name or field.name.endswith(("_id", "index"))
    return field.type_name in ("string", "uuid") or is_number


def _value(type_name: str, number: int, otherwise: Any) -> Any:
    if type_name == "string":
        return f"{number:x}"
    if type_name == "uuid":
        return (number + 1).to_bytes(16, "big")
    if type_name in INTEGERS:
        return number % (INTEGERS[type_name][1] + 1)
    return otherwise
