"""JAAS: the notation of Java for the users and passwords of a login.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="secret";

The grammar is that of Kafka's parser, which uses Java's StreamTokenizer. A JAAS file names several such entries:
`KafkaServer { ... };`. No error quotes a part of the text: it may be a piece of a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

_NO_WORD_START: Final = r"\x00-\x23\x25-\x40\x5b-\x5e\x60\x7b-\x9f"
_NO_WORD: Final = r"\x00-\x23\x25-\x2c\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x9f"
"""Words are of letters, `$`, `_` and all above U+009F, then also of digits, `.` and `-`. These are the others, because
Python takes milliseconds to compile a set up to U+10FFFF."""
_TOKEN: Final = re.compile(
    rf"""
      (?P<space>[\x00-\x20]+ | //[^\r\n]* | /\*.*?(?:\*/|\Z) | /[^\r\n]*)
    | (?P<word>[^{_NO_WORD_START}][^{_NO_WORD}]*)
    | (?P<number>-?(?:[0-9]+\.?[0-9]*|\.[0-9]+))
    | "(?P<double>(?:\\[^\r\n]|[^"\\\r\n])*)(?:"|\\?(?=[\r\n])|\\?\Z)
    | '(?P<single>(?:\\[^\r\n]|[^'\\\r\n])*)(?:'|\\?(?=[\r\n])|\\?\Z)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_NAMED_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = frozenset(("required", "requisite", "sufficient", "optional"))


class JaasError(ValueError):
    """A text that is no JAAS configuration, in one line that does not quote it."""


class LoginModule(NamedTuple):
    class_name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        """Leave the options out: they have passwords."""
        return f"LoginModule({self.class_name})"

    def users(self) -> dict[str, str]:
        """Return the passwords of the users that a server of PLAIN knows, from the options `user_NAME`."""
        return {name[len("user_") :]: value for name, value in self.options.items() if name.startswith("user_")}


def parse_line(text: str) -> LoginModule:
    """Parse the value of sasl.jaas.config, which has one login module. Raise JaasError for anything else."""
    tokens = _Tokens(text)
    modules = []
    while not tokens.at_end():
        modules.append(_parse_module(tokens))
    if not modules:
        raise JaasError("Login module not specified in JAAS config")
    if len(modules) > 1:
        raise JaasError(f"JAAS config property contains {len(modules)} login modules, should be 1 module")
    return modules[0]


def parse_file(text: str) -> dict[str, tuple[LoginModule, ...]]:
    """Parse a JAAS file: the login modules by the name of their context. Raise JaasError for anything else."""
    tokens = _Tokens(text)
    contexts: dict[str, tuple[LoginModule, ...]] = {}
    while not tokens.at_end():
        name = tokens.word("the name of a context")
        tokens.expect("{", "after the name of a context")
        modules = []
        while not tokens.skip("}"):
            modules.append(_parse_module(tokens))
        tokens.expect(";", "after the } of a context")
        contexts[name] = tuple(modules)
    return contexts


def _parse_module(tokens: _Tokens) -> LoginModule:
    class_name = tokens.word("a login module")
    if tokens.at_end():
        raise JaasError("Login module control flag not specified in JAAS config")
    if tokens.word("a control flag").lower() not in _FLAGS:
        raise JaasError("Invalid login module control flag in JAAS config; expected required or optional")
    options: dict[str, str] = {}
    while not tokens.skip(";"):
        if tokens.at_end():
            raise JaasError("JAAS config entry not terminated by semi-colon")
        key = tokens.next()
        if not tokens.skip("=") or (value := tokens.next()).text is None:
            raise JaasError(
                f"Value not specified for option {len(options) + 1} in JAAS config; values that are not words need"
                " quotes"
            )
        options[key.text or ""] = value.text
    return LoginModule(class_name, options)


class _Token(NamedTuple):
    text: str | None
    """Of a word or a quoted text; None for anything else."""
    sign: str = ""


_END: Final = _Token(None)


class _Tokens:
    """The tokens of a text, with the next one in view."""

    def __init__(self, text: str) -> None:
        self._rest = _tokens(text)
        self._next = next(self._rest, _END)

    def at_end(self) -> bool:
        return self._next is _END

    def next(self) -> _Token:
        token, self._next = self._next, next(self._rest, _END)
        return token

    def skip(self, sign: str) -> bool:
        """Whether the next token is this sign; if so, go on after it."""
        if self._next.sign != sign:
            return False
        self.next()
        return True

    def expect(self, sign: str, where: str) -> None:
        if not self.skip(sign):
            raise JaasError(f"expected {sign} {where} in the JAAS file")

    def word(self, what: str) -> str:
        text = self.next().text
        if text is None:
            raise JaasError(f"expected {what} in JAAS config")
        return text


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "word":
            yield _Token(match[kind])
        elif kind in ("double", "single"):
            yield _Token(_ESCAPE.sub(_unescaped, match[kind]))
        elif kind != "space":
            yield _Token(None, match[0])


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape, 8)) if escape[0] in "01234567" else _NAMED_ESCAPES.get(escape, escape)
