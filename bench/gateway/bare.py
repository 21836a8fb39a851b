"""The limit for HTTP: the same server, with an application that reads a body and answers at once.

python -m bench.gateway.bare PORT
"""

from __future__ import annotations

import sys
from typing import Any

from moldau.web.server import Server, ServerSettings, bind

ANSWER = b'{"offsets":[{"partition":0,"offset":0}]}'


async def answer(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": ANSWER})


if __name__ == "__main__":
    settings = ServerSettings(10_000, 1, 60, 64 << 10, http="httptools", head_seconds_max=15, slow_seconds_max=30)
    Server(answer, settings, lambda: None).run(sockets=[bind("localhost", int(sys.argv[1]))])
