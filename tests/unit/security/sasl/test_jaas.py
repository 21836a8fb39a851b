"""JAAS lines and files, in the grammar that Kafka's parser has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.sasl.jaas import JaasError, LoginModule, parse_file, parse_line

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def options(text: str) -> dict[str, str]:
    return dict(parse_line(f"{MODULE} required {text};").options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ('username="ann" password="secret"', {"username": "ann", "password": "secret"}),
        ("username='ann' password='it\"s'", {"username": "ann", "password": 'it"s'}),
        ("username=ann password=s-e_c.r$et", {"username": "ann", "password": "s-e_c.r$et"}),
        ('a="x\\"y\\\\z"', {"a": 'x"y\\z'}),
        ('a="\\n\\t\\r\\b\\f\\a\\v\\q"', {"a": "\n\t\r\b\f\a\vq"}),
        ('a="\\101\\0\\777"', {"a": "A\x00?7"}),
        ('"user_a@b"="x"', {"user_a@b": "x"}),
        ("a=b a=c", {"a": "c"}),
        ('a = "b"\n  c\n=\nd', {"a": "b", "c": "d"}),
        ("a=b // a comment\n c=d", {"a": "b", "c": "d"}),
        ("a=b /* a\ncomment */ c=d", {"a": "b", "c": "d"}),
        ("name=žluťoučký", {"name": "žluťoučký"}),
        ('a="b;c"', {"a": "b;c"}),
        ('a=""', {"a": ""}),
        ('a="//no comment"', {"a": "//no comment"}),
    ],
)
def test_options_are_parsed(text: str, expected: dict[str, str]) -> None:
    assert options(text) == expected


def test_flags_have_any_case() -> None:
    for flag in ("required", "Requisite", "SUFFICIENT", "optional"):
        assert parse_line(f"x.Y {flag};") == LoginModule("x.Y", {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Login module not specified"),
        ("// nothing\n", "Login module not specified"),
        (MODULE, "Login module control flag not specified"),
        (f"{MODULE} foo;", "Invalid login module control flag"),
        (f"{MODULE} required", "not terminated by semi-colon"),
        (f"{MODULE} required a=b", "not terminated by semi-colon"),
        (f"{MODULE} required a=a/b;", "not terminated by semi-colon"),
        (f"{MODULE} required a=123;", "Value not specified"),
        (f"{MODULE} required a=-1;", "Value not specified"),
        (f"{MODULE} required a;", "Value not specified"),
        (f"{MODULE} required a=;", "Value not specified"),
        (f"{MODULE} required a=x@y;", "Value not specified"),
        (f"{MODULE} required; {MODULE} required;", "contains 2 login modules, should be 1 module"),
        ("; required;", "expected a login module"),
    ],
)
def test_malformed_lines_are_refused(text: str, message: str) -> None:
    with pytest.raises(JaasError, match=message):
        parse_line(text)


def test_a_newline_ends_a_quoted_text() -> None:
    with pytest.raises(JaasError):
        options('a="b\nc"')


def test_user_options_are_the_users_of_a_server() -> None:
    module = parse_line(f'{MODULE} required username="me" password="p" user_me="p" user_ann="q";')
    assert module.users() == {"me": "p", "ann": "q"}


def test_a_file_has_contexts_with_several_modules() -> None:
    text = f"""
        // brokers
        KafkaServer {{
            {MODULE} required
            user_ann="q";
            x.Scram optional username="me";
        }};
        sasl_plaintext.KafkaServer {{ {MODULE} required; }};
    """
    contexts = parse_file(text)
    assert list(contexts) == ["KafkaServer", "sasl_plaintext.KafkaServer"]
    assert [module.class_name for module in contexts["KafkaServer"]] == [MODULE, "x.Scram"]
    assert contexts["KafkaServer"][0].users() == {"ann": "q"}


@pytest.mark.parametrize("text", ["A", "A {", "A { x required; }", "A { x required }; ", "{ };", "A { }; ;"])
def test_malformed_files_are_refused(text: str) -> None:
    with pytest.raises(JaasError):
        parse_file(text)


def test_no_password_is_shown() -> None:
    planted = "s3cr3t"
    module = parse_line(f'{MODULE} required username="me" password="{planted}";')
    assert planted not in repr(module)
    for broken in (
        f'{MODULE} required username="me" password="a"{planted}";',
        f'{MODULE} required username="me" password="{planted}"',
        f'{MODULE} username="me" {planted}',
        f"{planted} {planted} {planted}",
        f"{MODULE} required password=x@{planted};",
    ):
        with pytest.raises(JaasError) as raised:
            parse_line(broken)
        assert planted not in str(raised.value)


@given(st.text(alphabet=st.sampled_from("ab=;{}\"'\\/*\n 1-.$@č")) | st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for parse in (parse_line, parse_file):
        try:
            parse(text)
        except JaasError:
            continue


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_quoted_options_are_parsed_unchanged(expected: dict[str, str]) -> None:
    def quoted(text: str) -> str:
        return '"' + "".join(f"\\{ord(c):03o}" if ord(c) < 256 else c for c in text) + '"'

    assert options(" ".join(f"{quoted(key)}={quoted(value)}" for key, value in expected.items())) == expected
