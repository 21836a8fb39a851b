"""A request as the calls see it, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.types import Receive, Scope, Send

from moldau.gateway.http.intake import Intake, Pair
from moldau.gateway.http.limits import QUERY_LENGTH_MAX
from moldau.gateway.http.proxy.failures import ProxyError, partition_not_found, schemas_needed, unprocessable
from moldau.gateway.ports import Account
from moldau.web.requests import NAME_LENGTH_MAX

V2: Final = "application/vnd.kafka.v2+json"
V2_JSON: Final = "application/vnd.kafka.json.v2+json"
V2_BINARY: Final = "application/vnd.kafka.binary.v2+json"
V2_WITH_SCHEMAS: Final = tuple(f"application/vnd.kafka.{name}.v2+json" for name in ("avro", "jsonschema", "protobuf"))
JSON: Final = "application/json"
PARTITION_DIGITS_MAX: Final = 9
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes = b""
    content_type: str = V2
    headers: Sequence[Pair] = ()


NO_CONTENT: Final = Answer(204)


def json_answer(content: object, content_type: str = V2, status: int = 200, headers: Sequence[Pair] = ()) -> Answer:
    return Answer(status, msgspec.json.encode(content), content_type, headers)


@dataclass(frozen=True, slots=True)
class Request:
    scope: Scope
    receive: Receive
    send: Send
    headers: Mapping[bytes, bytes]
    names: Sequence[str]
    """Those in the path, such as a topic."""
    account: Account
    intake: Intake

    @property
    def content_type(self) -> str:
        return _media_type(self.headers.get(b"content-type", b""))

    @property
    def base_url(self) -> str:
        """The address by which the client knows the gateway."""
        host = self.headers.get(b"host", b"localhost").decode("latin-1")
        return f"{self.scope.get('scheme', 'http')}://{host}"

    def accepts(self) -> list[str]:
        """Return what the client takes, with the best first; nothing if it takes anything."""
        types = [_media_type(each) for each in self.headers.get(b"accept", b"").split(b",")]
        return [each for each in types if each and each != "*/*"]

    def query(self) -> Mapping[str, str]:
        text = self.scope["query_string"]
        if len(text) > QUERY_LENGTH_MAX:
            raise ProxyError(414, 414, f"the query has more than {QUERY_LENGTH_MAX} characters")
        try:
            return dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True, max_num_fields=20))
        except ValueError:
            raise ProxyError(400, 400, "the query has too many parameters") from None

    async def body(self) -> bytes:
        return await self.intake.body(self.receive, self.headers)

    def require_type(self, *allowed: str) -> None:
        """ProxyError unless the body has one of these content types, or says none."""
        if self.content_type and self.content_type not in allowed:
            raise unsupported(self.content_type, *allowed)


def unsupported(content_type: str, *allowed: str) -> ProxyError:
    if content_type in V2_WITH_SCHEMAS:
        return schemas_needed(content_type)
    name = content_type[:100] or "no Content-Type"
    return ProxyError(415, 415, f"HTTP 415 Unsupported Media Type: {name}; expected {', '.join(allowed)}")


def _media_type(header: bytes) -> str:
    return header.partition(b";")[0].strip().lower().decode("latin-1")


def parsed(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Return a body of JSON as a value. ProxyError if it is not JSON, or has other fields."""
    try:
        if not body.isascii():
            body.decode()  # a part that is not decoded is not checked below
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise unprocessable(str(error)[:300]) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProxyError(400, 400, f"the body is not JSON: {str(error)[:200]}") from None


def unquoted(name: str) -> str:
    """Return a name as a path has it. ProxyError if it is none."""
    text = unquote(name, errors="replace")
    if len(text) > NAME_LENGTH_MAX or "\0" in text:
        raise ProxyError(400, 400, f"a name has more than {NAME_LENGTH_MAX} characters, or a zero")
    return text


def partition_of_path(text: str) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit():
        raise ProxyError(404, 404, "HTTP 404 Not Found: a partition is a number")
    if text.startswith("-") or len(digits) > PARTITION_DIGITS_MAX:
        raise partition_not_found(text)
    return int(digits)
