"""Java's properties format: edge cases as in java.util.Properties, and a round trip."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.errors import MalformedData
from moldau.base.properties import parse, render


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\t=\tb", {"a": "b"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("a==b", {"a": "=b"}),
        ("  # no\n! no\n\n \t\na=b", {"a": "b"}),
        ("a=b#c!d", {"a": "b#c!d"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\nc", {"a": "b\\c"}),
        ("a=b\\\n# part of it", {"a": "b# part of it"}),
        ("# ends here\\\na=b", {"a": "b"}),
        ("a=b\\", {"a": "b"}),
        ("\\\na=b", {"a": "b"}),
        ("\\\n\na=b", {"a": "b"}),
        ("\\\n# no\na=b", {"a": "b"}),
        (" \\\n\\\r\n  ! no\\\na=b", {"a": "b"}),
        ("\\\n", {}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a=\\t\\n\\r\\f\\q", {"a": "\t\n\r\fq"}),
        ("a=\\u00e9\\u2713", {"a": "é✓"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=1\na=2", {"a": "2"}),
        ("", {}),
    ],
)
def test_parse(text: str, expected: dict[str, str]) -> None:
    assert {each.key: each.value for each in parse(text)} == expected


def test_each_property_has_its_line_number() -> None:
    text = "# one\na=1\\\n  more\n\nb=2\n\\\n# three\nc=3"
    assert [(each.key, each.line) for each in parse(text)] == [("a", 2), ("b", 5), ("c", 8)]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uzzzz", "\\u=1", "a=\\ud83d"])
def test_a_broken_escape_is_malformed(text: str) -> None:
    with pytest.raises(MalformedData, match="line 1"):
        parse(text)


characters = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(characters.filter(bool), characters))
def test_rendered_properties_are_parsed_to_the_same(properties: dict[str, str]) -> None:
    rendered = render(properties)
    assert rendered.isascii()
    assert {each.key: each.value for each in parse(rendered)} == properties


def test_rendered_characters_are_escaped_as_java_stores_them() -> None:
    assert render({"clé": "ü€😀\x7f"}) == "cl\\u00E9=\\u00FC\\u20AC\\uD83D\\uDE00\\u007F\n"


@given(st.text(max_size=200))
def test_any_text_parses_or_is_malformed(text: str) -> None:
    with suppress(MalformedData):
        parse(text)
