"""Reads live pages of a console as a browser holds them, in a process of its own. Prints "ready" when all have sent
something; ends when its input ends.

    python -m bench.page_reader PORT PATH...
"""

from __future__ import annotations

import selectors
import socket
import sys
from collections.abc import Sequence

PIECE_BYTES = 65_536


def main(port: int, paths: Sequence[str]) -> None:
    ready = selectors.DefaultSelector()
    ready.register(sys.stdin, selectors.EVENT_READ)
    silent: set[socket.socket] = set()
    for path in paths:
        page = socket.create_connection(("127.0.0.1", port))
        page.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nAccept: text/event-stream\r\n\r\n".encode())
        ready.register(page, selectors.EVENT_READ)
        silent.add(page)
    while True:
        for key, _ in ready.select():
            if key.fileobj is sys.stdin:
                return
            page = key.fileobj  # type: ignore[assignment]
            piece = page.recv(PIECE_BYTES)
            if not piece:
                sys.exit("a page was closed")
            if page in silent:
                if not piece.startswith(b"HTTP/1.1 200"):
                    sys.exit(piece[:200].decode(errors="replace"))
                silent.discard(page)
                if not silent:
                    print("ready", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
