"""What a request has: body, names in the path, query. All of it is bounded and checked here."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import HTTPConnection, Request

from moldau.web.failures import ApiError, bad_request

NAME_LENGTH_MAX: Final = 1000
DIGITS_MAX: Final = 18
"""Of a length. Python makes no int of thousands of them."""


async def read_body(request: Request, bytes_max: int) -> bytearray:
    declared = request.headers.get("content-length", "0")
    too_large = ApiError(413, "TOO_LARGE", f"the body has more than {bytes_max} bytes")
    if not declared.isdecimal() or len(declared) > DIGITS_MAX or int(declared) > bytes_max:
        raise too_large
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > bytes_max:
            raise too_large
    return data


async def read_json(request: Request, bytes_max: int) -> Any:
    """Return the JSON of the body, None without a body."""
    data = await read_body(request, bytes_max)
    if not data:
        return None
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise bad_request("the body must be application/json")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise bad_request("the body is not JSON") from None


def path_names(request: HTTPConnection) -> dict[str, str]:
    names = {}
    for name, raw in request.path_params.items():
        text = unquote(raw, errors="replace")
        if len(text) > NAME_LENGTH_MAX or "\0" in text:
            raise bad_request(f"{name} is not a name: it has more than {NAME_LENGTH_MAX} characters or a zero")
        names[name] = text
    return names


def query_of(request: Request, allowed: tuple[str, ...]) -> dict[str, str]:
    query = dict(request.query_params)
    unknown = [name for name in query if name not in allowed]
    if unknown:
        known = f"known are {', '.join(allowed)}" if allowed else "there are none"
        raise bad_request(f"unknown parameter {unknown[0][:40]!r}; {known}")
    return query
