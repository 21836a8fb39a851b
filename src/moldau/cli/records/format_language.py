r"""How a record is printed: the language of `moldau consume -f`, and the JSON envelope of `--json`.

    %t topic          %p partition      %o offset       %e leader epoch      %i number of the record in this run, from 1
    %k key            %v value          %K %V their lengths in bytes (-1: null)
    %T timestamp in milliseconds        %d the same; %d{strftime[%F %T]} in UTC; %d{iso}
    %h headers as k=v,k=v               %h{%k=%v;} each header by a format of its own; %H their number
    %% a percent sign                   \n \t \r \0 \\ \xHH as in C

%k and %v, also inside %h{...}, may be followed by {hex} or {base64}. For a null key or value nothing is printed.
A format is compiled once into a list of small functions; this module uses neither brokers nor click.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Protocol


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
_TIMESTAMP_NOT_AVAILABLE: Final = 0
TIMESTAMP_TYPES: Final = {0: None, 1: "CreateTime", 2: "LogAppendTime"}


def compile_format(text: str) -> Formatter:
    """Return the function that prints a record in this format; raise BadFormat if it is wrong."""
    pieces: list[Piece] = [_piece(token) for token in _parse_tokens(text)]
    if len(pieces) == 1:
        return pieces[0]
    return lambda record, number: b"".join([piece(record, number) for piece in pieces])


Token = bytes | tuple[str, str]
"""Literal bytes, or the letter after % with the text in braces after it."""


def _parse_tokens(text: str) -> list[Token]:
    """Return the tokens of a format. An empty format is one empty token, so that there is always a piece to print."""
    tokens: list[Token] = []
    literal = bytearray()
    position = 0
    while position < len(text):
        letter = text[position]
        if letter == "\\":
            raw, position = _parse_escape(text, position)
            literal += raw
        elif letter == "%" and text[position + 1 : position + 2] == "%":
            literal += b"%"
            position += 2
        elif letter == "%":
            if literal:
                tokens.append(bytes(literal))
                literal.clear()
            token, position = _parse_verb(text, position)
            tokens.append(token)
        else:
            literal += letter.encode("utf-8", "surrogateescape")
            position += 1
    return [*tokens, bytes(literal)] if literal or not tokens else tokens


def _parse_escape(text: str, position: int) -> tuple[bytes, int]:
    """Return the byte of the escape that begins at `position`, and the position after it."""
    escaped = text[position + 1 : position + 2]
    if escaped == "x":
        try:
            return bytes.fromhex(text[position + 2 : position + 4]), position + 4
        except ValueError as error:
            raise BadFormat(f"\\x at column {position + 1} needs two hexadecimal digits") from error
    if escaped not in _ESCAPES:
        raise BadFormat(f"\\{escaped} at column {position + 1} is not an escape; use \\n \\t \\r \\0 \\\\ or \\xHH")
    return _ESCAPES[escaped], position + 2


def _parse_verb(text: str, position: int) -> tuple[tuple[str, str], int]:
    """Return the letter and the option of the % that begins at `position`, and the position after them."""
    letter = text[position + 1 : position + 2]
    if not letter:
        raise BadFormat("the format ends in a single %; write %% for a percent sign")
    if letter not in "tpoeikvKVTdhH":
        raise BadFormat(
            f"%{letter} at column {position + 1} is unknown; use %t %p %o %e %i %k %v %K %V %T %d %h %H or %%"
        )
    if letter not in "kvdh" or text[position + 2 : position + 3] != "{":
        return (letter, ""), position + 2
    depth = 0
    for end in range(position + 2, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            return (letter, text[position + 3 : end]), end + 1
    raise BadFormat(f"the brace after %{letter} at column {position + 1} is never closed")


def _piece(token: Token) -> Piece:
    if isinstance(token, bytes):
        return lambda record, number: token
    letter, option = token
    match letter:
        case "k":
            return _payload(lambda record: record.key(), letter, option)
        case "v":
            return _payload(lambda record: record.value(), letter, option)
        case "d":
            return _time(option)
        case "h":
            return _headers(option)
        case _:
            return _PIECES_WITHOUT_OPTION[letter]


def _payload(read: Callable[[Record], bytes | None], letter: str, option: str) -> Piece:
    encode = _encoding(letter, option)
    return lambda record, number: b"" if (raw := read(record)) is None else encode(raw)


def _encoding(letter: str, option: str) -> Callable[[bytes], bytes]:
    if option not in ENCODINGS:
        raise BadFormat(f"%{letter}{{{option}}} is unknown; use {{hex}} or {{base64}}")
    return ENCODINGS[option]


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


def _time(option: str) -> Piece:
    if not option:
        return _PIECES_WITHOUT_OPTION["T"]
    if option == "iso":
        return lambda record, number: _utc(record).isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()
    if option.startswith("strftime[") and option.endswith("]"):
        pattern = option[len("strftime[") : -1]
        return lambda record, number: _utc(record).strftime(pattern).encode()
    raise BadFormat(f"%d{{{option}}} is unknown; use %d, %d{{iso}} or %d{{strftime[%F %T]}}")


def _utc(record: Record) -> datetime:
    return datetime.fromtimestamp(record.timestamp()[1] / 1000, UTC)


def _headers(option: str) -> Piece:
    pieces = [_header_piece(token) for token in _parse_tokens(option or "%k=%v")]
    separator = b"" if option else b","

    def render(record: Record, number: int) -> bytes:
        return separator.join(b"".join(piece(header) for piece in pieces) for header in record.headers() or ())

    return render


def _header_piece(token: Token) -> HeaderPiece:
    if isinstance(token, bytes):
        return lambda header: token
    letter, option = token
    if letter not in "kvKV":
        raise BadFormat(f"%{letter} inside %h{{...}} is unknown; a header has %k %v %K %V")
    field_index = 0 if letter in "kK" else 1

    def part(header: Header) -> bytes | None:
        field = header[field_index]
        return field.encode() if isinstance(field, str) else field

    if letter in "KV":
        return lambda header: _length(part(header))
    encode = _encoding(letter, option)
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
