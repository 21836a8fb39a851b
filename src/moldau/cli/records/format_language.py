r"""How a record is printed: the language of `moldau consume -f`, and the JSON envelope of `--json`.

    %t topic          %p partition      %o offset       %e leader epoch      %i number of the record in this run, from 1
    %k key            %v value          %K %V their lengths in bytes (-1: null)
    %T timestamp in milliseconds        %d the same; %d{strftime[%F %T]} in UTC; %d{iso}; the number if it is no date
    %h headers as k=v,k=v               %h{%k=%v;} this format for each header, without a separator; %H their number
    %% a percent sign                   \n \t \r \0 \\ \xHH as in C

%k and %v, also inside %h{...}, may be followed by {hex} or {base64}. For a null key or value nothing is printed.
A format is compiled once into a list of small functions; this module uses neither brokers nor click.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol


class Record(Protocol):
    """The methods of confluent_kafka's Message that are used."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def leader_epoch(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...


Header = tuple[str, bytes | None]
Piece = Callable[[Record, int], bytes]
HeaderPiece = Callable[[Header], bytes]
Formatter = Callable[[Record, int], bytes]
"""Takes a record and its number in this run; returns the bytes to print."""


class BadFormat(ValueError):
    """The format is wrong. The message says at which column, and what is allowed there."""


ENCODINGS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "": lambda raw: raw,
    "hex": lambda raw: raw.hex().encode(),
    "base64": base64.b64encode,
}
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_HEX_BYTE: Final = re.compile(r"[0-9a-fA-F]{2}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_DATE_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999; Python has no later dates."""
_TIMESTAMP_NOT_AVAILABLE: Final = 0
TIMESTAMP_TYPES: Final = {0: None, 1: "CreateTime", 2: "LogAppendTime"}


def compile_format(text: str) -> Formatter:
    """Return the function that prints a record in this format; raise BadFormat if it is wrong."""
    pieces: list[Piece] = [_piece(token) for token in _parse_tokens(text)]
    if len(pieces) == 1:
        return pieces[0]
    return lambda record, number: b"".join([piece(record, number) for piece in pieces])


class Verb(NamedTuple):
    letter: str
    """The letter after %."""
    option: str
    """The text in braces after the letter."""
    column: int
    """The column of its % in the whole format, counted from one."""


Token = bytes | Verb


def _parse_tokens(text: str, column: int = 1) -> list[Token]:
    """Return the tokens of a format, or of the part of one that begins at `column`. An empty format is one empty token,
    so that there is always a piece to print."""
    tokens: list[Token] = []
    literal = bytearray()
    position = 0
    while position < len(text):
        letter = text[position]
        if letter == "\\":
            raw, position = _parse_escape(text, position, column + position)
            literal += raw
        elif letter == "%" and text[position + 1 : position + 2] == "%":
            literal += b"%"
            position += 2
        elif letter == "%":
            if literal:
                tokens.append(bytes(literal))
                literal.clear()
            token, position = _parse_verb(text, position, column + position)
            tokens.append(token)
        else:
            literal += letter.encode("utf-8", "surrogateescape")
            position += 1
    return [*tokens, bytes(literal)] if literal or not tokens else tokens


def _parse_escape(text: str, position: int, column: int) -> tuple[bytes, int]:
    """Return the byte of the escape that begins at `position`, and the position after it."""
    escaped = text[position + 1 : position + 2]
    if escaped == "x":
        digits = _HEX_BYTE.match(text, position + 2)
        if digits is None:
            raise BadFormat(f"\\x at column {column} needs two hexadecimal digits")
        return bytes.fromhex(digits[0]), digits.end()
    if escaped not in _ESCAPES:
        raise BadFormat(f"\\{escaped} at column {column} is not an escape; use \\n \\t \\r \\0 \\\\ or \\xHH")
    return _ESCAPES[escaped], position + 2


def _parse_verb(text: str, position: int, column: int) -> tuple[Verb, int]:
    """Return the letter and the option of the % that begins at `position`, and the position after them."""
    letter = text[position + 1 : position + 2]
    if not letter:
        raise BadFormat(f"single % at column {column}; write %% for a percent sign")
    if letter not in "tpoeikvKVTdhH":
        raise BadFormat(f"%{letter} at column {column} is unknown; use %t %p %o %e %i %k %v %K %V %T %d %h %H or %%")
    if letter not in "kvdh" or text[position + 2 : position + 3] != "{":
        return Verb(letter, "", column), position + 2
    depth = 0
    for end in range(position + 2, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            return Verb(letter, text[position + 3 : end], column), end + 1
    raise BadFormat(f"the brace after %{letter} at column {column} is never closed")


def _piece(token: Token) -> Piece:
    if isinstance(token, bytes):
        return lambda record, number: token
    match token.letter:
        case "k":
            return _payload(lambda record: record.key(), token)
        case "v":
            return _payload(lambda record: record.value(), token)
        case "d":
            return _time(token)
        case "h":
            return _headers(token)
        case letter:
            return _PIECES_WITHOUT_OPTION[letter]


def _payload(read: Callable[[Record], bytes | None], verb: Verb) -> Piece:
    encode = _encoding(verb)
    return lambda record, number: b"" if (raw := read(record)) is None else encode(raw)


def _encoding(verb: Verb) -> Callable[[bytes], bytes]:
    if verb.option not in ENCODINGS:
        raise BadFormat(
            f"%{verb.letter}{{{verb.option}}} at column {verb.column} is unknown; use {{hex}} or {{base64}}"
        )
    return ENCODINGS[verb.option]


def _length(raw: bytes | None) -> bytes:
    return b"-1" if raw is None else b"%d" % len(raw)


def _number(value: int | None) -> bytes:
    return b"-1" if value is None else b"%d" % value


_PIECES_WITHOUT_OPTION: Final[dict[str, Piece]] = {
    "t": lambda record, number: (record.topic() or "").encode(),
    "p": lambda record, number: _number(record.partition()),
    "o": lambda record, number: _number(record.offset()),
    "e": lambda record, number: _number(record.leader_epoch()),
    "i": lambda record, number: b"%d" % number,
    "K": lambda record, number: _length(record.key()),
    "V": lambda record, number: _length(record.value()),
    "T": lambda record, number: b"%d" % record.timestamp()[1],
    "H": lambda record, number: b"%d" % len(record.headers() or ()),
}


def _time(verb: Verb) -> Piece:
    option = verb.option
    if not option:
        return _PIECES_WITHOUT_OPTION["T"]
    if option == "iso":
        return lambda record, number: iso_time(record.timestamp()[1]).encode()
    if option.startswith("strftime[") and option.endswith("]"):
        pattern = option[len("strftime[") : -1]
        return lambda record, number: _formatted_time(record.timestamp()[1], pattern).encode()
    raise BadFormat(f"%d{{{option}}} at column {verb.column} is unknown; use %d, %d{{iso}} or %d{{strftime[%F %T]}}")


def iso_time(timestamp_ms: int) -> str:
    """Return a timestamp in ISO 8601, or its number if it is no date: clients may send any."""
    if (date := _utc(timestamp_ms)) is None:
        return str(timestamp_ms)
    return date.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _formatted_time(timestamp_ms: int, pattern: str) -> str:
    return str(timestamp_ms) if (date := _utc(timestamp_ms)) is None else date.strftime(pattern)


def _utc(timestamp_ms: int) -> datetime | None:
    if not 0 <= timestamp_ms <= _LAST_DATE_MS:
        return None
    return _EPOCH + timedelta(milliseconds=timestamp_ms)


def _headers(verb: Verb) -> Piece:
    inner_column = verb.column + len("%h{")
    pieces = [_header_piece(token) for token in _parse_tokens(verb.option or "%k=%v", inner_column)]
    separator = b"" if verb.option else b","

    def render(record: Record, number: int) -> bytes:
        return separator.join(b"".join(piece(header) for piece in pieces) for header in record.headers() or ())

    return render


def _header_piece(token: Token) -> HeaderPiece:
    if isinstance(token, bytes):
        return lambda header: token
    letter = token.letter
    if letter not in "kvKV":
        raise BadFormat(f"%{letter} at column {token.column} is unknown inside %h{{...}}; a header has %k %v %K %V")
    field_index = 0 if letter in "kK" else 1

    def part(header: Header) -> bytes | None:
        field = header[field_index]
        return field.encode() if isinstance(field, str) else field

    if letter in "KV":
        return lambda header: _length(part(header))
    encode = _encoding(token)
    return lambda header: b"" if (raw := part(header)) is None else encode(raw)


def json_envelope(record: Record, number: int) -> bytes:
    """Return a record as one line of JSON, from which `moldau produce --json` makes the same record.

    Text is text; bytes that are not UTF-8 have a field of their own, `key_base64` or `value_base64`.
    """
    kind, milliseconds = record.timestamp()
    envelope: dict[str, Any] = {"topic": record.topic(), "partition": record.partition(), "offset": record.offset()}
    if kind != _TIMESTAMP_NOT_AVAILABLE:
        envelope["timestamp"] = milliseconds
        envelope["timestamp_type"] = TIMESTAMP_TYPES.get(kind)
    headers = [{"key": name, **_json_field("value", raw)} for name, raw in record.headers() or ()]
    envelope["headers"] = headers
    envelope |= _json_field("key", record.key()) | _json_field("value", record.value())
    return json.dumps(envelope, ensure_ascii=False).encode() + b"\n"


def _json_field(name: str, raw: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if raw is None else raw.decode()}
    except UnicodeDecodeError:
        return {name + "_base64": base64.b64encode(raw or b"").decode()}
