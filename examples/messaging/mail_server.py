"""A mail server for trying things out: takes everything over SMTP, sends nothing on, puts it into a Maildir.

python mail_server.py --listen localhost:1025 --maildir ./mail
"""

from __future__ import annotations

import argparse
import mailbox
import socketserver
import threading
from pathlib import Path


class Conversation(socketserver.StreamRequestHandler):
    """One client: a greeting, then commands, each with its answer."""

    server: MailServer

    def handle(self) -> None:
        self._say("220 a mail server for trying things out")
        while line := self.rfile.readline():
            verb = line[:4].upper().strip()
            if verb == b"DATA":
                self._say("354 end with a dot on a line by itself")
                self.server.keep(self._data())
            self._say("221 bye" if verb == b"QUIT" else "250 yes")
            if verb == b"QUIT":
                return

    def _data(self) -> bytes:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b"."))  # a dot at the beginning of a line comes doubled
        return b"".join(lines)

    def _say(self, answer: str) -> None:
        self.wfile.write(f"{answer}\r\n".encode())


class MailServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, host: str, port: int, maildir: Path) -> None:
        self._box, self._lock = mailbox.Maildir(maildir), threading.Lock()
        super().__init__((host, port), Conversation)

    def keep(self, mail: bytes) -> None:
        with self._lock:
            self._box.add(mail)


def main() -> None:
    parser = argparse.ArgumentParser(description="Takes mails over SMTP and keeps them.")
    parser.add_argument("--listen", default="localhost:1025", metavar="HOST:PORT")
    parser.add_argument("--maildir", type=Path, default=Path("mail"))
    args = parser.parse_args()
    host, _, port = args.listen.rpartition(":")
    with MailServer(host, int(port), args.maildir) as server:
        print(f"mails to {args.listen} go to {args.maildir}/new")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped")


if __name__ == "__main__":
    main()
