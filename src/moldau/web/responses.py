"""What a server answers as JSON, errors included."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from moldau.web.failures import ApiError, not_found


def json_bytes(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(errors="replace")


def json_response(content: Any, status: int = 200) -> Response:
    return Response(json_bytes(content), status, media_type="application/json")


def error_response(error: ApiError) -> Response:
    return json_response(error.body(), error.status)


async def no_such_endpoint(request: Request) -> Response:
    """The last route of an API."""
    return error_response(not_found(f"there is no {request.method} {request.url.path[:100]}"))


async def method_not_allowed(request: Request, error: Exception) -> Response:
    """Starlette's handler of status 405."""
    return error_response(ApiError(405, "BAD_REQUEST", "the method is not allowed"))
