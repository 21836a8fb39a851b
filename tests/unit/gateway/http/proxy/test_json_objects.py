"""A stream of JSON objects is cut where they end, however its bytes come."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from moldau.gateway.http.proxy.json_objects import STEPS_MAX, JsonObjects

TEXTS = st.text(alphabet='ab"\\{}[]\n\u00e9')
VALUES = st.recursive(
    TEXTS | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=5
)


def cut(*parts: bytes) -> tuple[list[bytes], JsonObjects]:
    objects, found = JsonObjects(), []
    for part in parts:
        objects.feed(part)
        while objects.has_more:
            found += objects.take()
    return found, objects


@given(st.lists(st.dictionaries(TEXTS, VALUES), max_size=4), st.lists(st.integers(0, 400), max_size=5), st.booleans())
def test_objects_are_found_wherever_the_parts_end(sent: list[object], ends: list[int], is_ascii: bool) -> None:
    stream = b" \r\n".join(json.dumps(each, ensure_ascii=is_ascii).encode() for each in sent)
    bounds = sorted({0, *(min(end, len(stream)) for end in ends), len(stream)})
    found, objects = cut(*(stream[start:end] for start, end in pairwise(bounds)))
    assert [json.loads(each) for each in found] == sent
    assert objects.is_empty
    assert not objects.is_broken


def test_a_part_of_an_object_is_kept() -> None:
    found, objects = cut(b'{"a": 1}{"b": "}', b"\\")
    assert found == [b'{"a": 1}']
    assert objects.held_bytes == len(b'{"b": "}\\')
    assert not objects.is_empty
    assert not objects.is_broken
    objects.feed(b'""}')
    assert objects.take() == [b'{"b": "}\\""}']


def test_what_is_no_object_is_noticed() -> None:
    for stream in (b"x", b"[", b'"text', b'{"a": 1} 2', b"null "):
        assert cut(stream)[1].is_broken, stream
    assert cut(b"}")[0] == [b"}"]  # its decoder will see
    assert not cut(b" \r\n")[1].is_broken


def test_a_turn_is_bounded() -> None:
    objects = JsonObjects()
    objects.feed(b"{}" * STEPS_MAX)
    assert len(objects.take()) == STEPS_MAX // 2
    assert objects.has_more
    assert objects.held_bytes == STEPS_MAX
    assert len(objects.take()) == STEPS_MAX // 2
    assert objects.is_empty
