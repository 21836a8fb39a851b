"""Mails against aiosmtpd, a real SMTP server, and against one that goes away; what cannot be a mail."""

from __future__ import annotations

import gc
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
import trustme

pytest.importorskip("aiosmtpd")

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP as Server
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword, Session

from moldau.backends.catalog import KINDS
from moldau.backends.interface import Away, Misconfigured, Refused, Retry, Row
from moldau.backends.mail import MailBackend, MailSettings, addresses, mail_of, message_id
from moldau.backends.options import Options
from moldau.backends.sending import retry_of

pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning")
NOW = datetime(2026, 1, 31, 8, 0, 0, tzinfo=UTC)
MAIL = {"to": "Ann <ann@example.org>", "subject": "Žluťoučký", "body": "Milá Ann,\n.\nyours"}


@dataclass
class Box:
    """Keeps mails, and gives each recipient the answers that a test wants, one after the other."""

    answers: dict[str, list[str]] = field(default_factory=dict)
    on_data: list[str] = field(default_factory=list)
    mails: list[Envelope] = field(default_factory=list)

    async def handle_RCPT(
        self, server: Server, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        answer = self.answers.get(address, [])
        code = answer.pop(0) if answer else "250 OK"
        if code.startswith("250"):
            envelope.rcpt_tos.append(address)
        return code

    async def handle_DATA(self, server: Server, session: Session, envelope: Envelope) -> str:
        answer = self.on_data.pop(0) if self.on_data else "250 OK"
        if answer.startswith("250"):
            self.mails.append(envelope)
        return answer


@pytest.fixture
def box() -> Box:
    return Box()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return int(unused.getsockname()[1])


@pytest.fixture
def server(box: Box) -> Iterator[Controller]:
    controller = Controller(box, hostname="127.0.0.1", port=free_port())
    controller.start()
    yield controller
    controller.stop()


opened: list[MailBackend] = []


@pytest.fixture(autouse=True)
def close_connections() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()
    gc.collect()  # aiosmtpd leaves transports open when it stops; they belong to this test


def backend(port: int, scheme: str = "smtp", **options: str) -> MailBackend:
    given = {"from": "Shop <shop@example.org>", "starttls": "off"} | options
    one = MailBackend(MailSettings.read(f"{scheme}://127.0.0.1:{port}", Options(given), 20.0), lambda: NOW)
    opened.append(one)
    return one


def row(key: str = "k-1", **values: str | None) -> Row:
    return Row(key, MAIL | values)


def test_mails_arrive_as_they_were_meant(server: Controller, box: Box) -> None:
    one = backend(server.port)
    one.write([Row("k-1", MAIL | {"cc": "bob@example.org", "bcc": "eve@example.org"}, {"X-Order": "7"})])
    one.write([Row("odd key\n", MAIL | {"html": "<p>ahoj</p>", "sender": "info@example.org"})])
    first, second = box.mails
    assert isinstance(first.content, bytes)
    assert first.content.isascii()
    assert first.mail_from == "shop@example.org"
    assert first.rcpt_tos == ["ann@example.org", "bob@example.org", "eve@example.org"]
    assert isinstance(first.content, bytes)
    mail = message_from_bytes(first.content, policy=default)
    assert mail["From"] == "Shop <shop@example.org>"
    assert mail["To"] == "Ann <ann@example.org>"
    assert mail["Subject"] == "Žluťoučký"
    assert mail["Message-ID"] == "<k-1@example.org>"
    assert mail["X-Order"] == "7"
    assert mail["Bcc"] is None
    assert mail.get_content().splitlines() == ["Milá Ann,", ".", "yours"]
    assert isinstance(second.content, bytes)
    both = message_from_bytes(second.content, policy=default)
    assert both["From"] == "info@example.org"
    assert both["Message-ID"] == message_id("odd key\n", "example.org")
    assert [part.get_content_type() for part in both.iter_parts()] == ["text/plain", "text/html"]


def test_a_recipient_that_is_refused_for_good_is_named(server: Controller, box: Box) -> None:
    box.answers["no@example.org"] = ["550 no such user"]
    with pytest.raises(Refused, match=r"refused: no@example\.org: 550 no such user"):
        backend(server.port).write([row(to="ann@example.org, no@example.org")])
    assert [mail.rcpt_tos for mail in box.mails] == [["ann@example.org"]], "the other one has it"


def test_a_recipient_who_is_to_wait_gets_the_mail_later_and_the_others_once(server: Controller, box: Box) -> None:
    box.answers["grey@example.org"] = ["451 try again later"]
    one, sent = backend(server.port), row(to="ann@example.org, grey@example.org")
    with pytest.raises(Retry, match="451 try again later") as raised:
        one.write([sent])
    assert not isinstance(raised.value, Away)
    one.write([sent])
    assert [mail.rcpt_tos for mail in box.mails] == [["ann@example.org"], ["grey@example.org"]]


@pytest.mark.parametrize("first", ["250 OK", "550 no such user"])
def test_a_server_that_closes_among_the_recipients_has_no_mail(server: Controller, box: Box, first: str) -> None:
    box.answers = {"ann@example.org": [first], "bob@example.org": ["421 closing"]}
    one, sent = backend(server.port), row(to="ann@example.org, bob@example.org, eve@example.org")
    with pytest.raises(Away, match="421 closing"):
        one.write([sent])
    assert box.mails == []
    one.write([sent])
    assert [mail.rcpt_tos for mail in box.mails] == [["ann@example.org", "bob@example.org", "eve@example.org"]]


def test_all_recipients_are_refused(server: Controller, box: Box) -> None:
    box.answers["ann@example.org"] = ["550 no such user"]
    one = backend(server.port)
    with pytest.raises(Refused, match="550"):
        one.write([row()])
    one.write([row()])
    assert len(box.mails) == 1


@pytest.mark.parametrize(
    ("answer", "error"), [("451 later", Retry), ("552 too big", Refused), ("554 spam", Refused), ("421 closing", Away)]
)
def test_a_mail_is_refused_or_to_be_sent_later(
    server: Controller, box: Box, answer: str, error: type[Exception]
) -> None:
    box.on_data.append(answer)
    one = backend(server.port)
    with pytest.raises(error) as raised:
        one.write([row()])
    assert type(raised.value) is error
    one.write([row()])
    assert len(box.mails) == 1


def test_a_server_that_is_away_is_found_again(box: Box) -> None:
    port = free_port()
    one = backend(port)
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError) as raised:
            one.write([row()])
        assert isinstance(retry_of(raised.value), Away)
        controller = Controller(box, hostname="127.0.0.1", port=port)
        controller.start()
        one.write([row()])
        controller.stop()
    assert len(box.mails) == 2


def test_a_server_that_does_not_answer_a_connect_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*given: object) -> socket.socket:
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(Away, match="no connection"):
        backend(25).write([row()])


def test_tls_and_login(box: Box, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    login = {"user": "shop", "password": "planted-secret", "ca": str(tmp_path / "ca.pem"), "starttls": "required"}

    def authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        return AuthResult(success=(data.login, data.password) == (b"shop", b"planted-secret"), handled=False)

    controller = Controller(
        box, hostname="127.0.0.1", port=free_port(), tls_context=context, require_starttls=True,
        authenticator=authenticate, auth_required=True,
    )  # fmt: skip
    controller.start()
    try:
        backend(controller.port, **login).write([row()])
        with pytest.raises(Misconfigured) as refused:
            backend(controller.port, **login | {"password": "wrong-secret"}).write([row()])
        assert "secret" not in str(refused.value)
        with pytest.raises(ssl.SSLCertVerificationError):
            backend(controller.port, **{name: login[name] for name in ("user", "password", "starttls")}).write([row()])
    finally:
        controller.stop()
    assert len(box.mails) == 1


def answer_commands(listener: socket.socket, answers: dict[str, str]) -> None:
    """Serve one connection: answer each command by its first word, and close after one without an answer."""
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as lines:
        connection.sendall(b"220 ready\r\n")
        for line in lines:
            if (answer := answers.get(line.split()[0].decode().upper())) is None:
                return
            connection.sendall(f"{answer}\r\n".encode())


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({"EHLO": "550 no", "HELO": "550 no"}, Away),
        ({"EHLO": "250-host\r\n250 STARTTLS", "STARTTLS": "554 no TLS now"}, Away),
        ({"EHLO": "250-host\r\n250 STARTTLS", "STARTTLS": "454 no TLS now"}, Away),
        ({"EHLO": "250-host\r\n250 AUTH PLAIN", "AUTH": "454 try later"}, Away),
        ({"EHLO": "250-host\r\n250 AUTH PLAIN"}, Away),
        ({"EHLO": "250-host\r\n250 AUTH PLAIN", "AUTH": "535 wrong"}, Misconfigured),
        ({"EHLO": "250-host\r\n250 AUTH PLAIN", "AUTH": "550 account is locked"}, Misconfigured),
        ({"EHLO": "250-host\r\n250 AUTH ODD"}, Away),
    ],
)
def test_a_server_that_lets_nobody_in_refuses_no_mail(answers: dict[str, str], error: type[Exception]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_commands, args=(listener, answers), daemon=True)
        thread.start()
        one = backend(listener.getsockname()[1], starttls="if-offered")
        if "AUTH" in answers["EHLO"]:
            one._settings = replace(one._settings, user="shop", password="planted-secret")
        with pytest.raises(error) as raised:
            one.write([row()])
        assert type(raised.value) is error
        assert "secret" not in str(raised.value)
        thread.join()


def test_a_server_without_starttls_is_not_used_in_the_clear(server: Controller) -> None:
    with pytest.raises(Misconfigured, match="STARTTLS"):
        backend(server.port, starttls="required").write([row()])


@pytest.mark.parametrize(
    "values",
    [
        {"subject": "a\r\nBcc: eve@example.org"},
        {"subject": "a\nb"},
        {"to": "ann@example.org\r\nBcc: eve@example.org"},
        {"to": "ann"},
        {"to": "ann@example.org> RCPT TO:<eve@example.org"},
        {"to": ""},
        {"to": None},
        {"to": ", ".join(f"a{number}@example.org" for number in range(101))},
        {"sender": "nobody"},
        {"reply_to": "a@b\r\nX: y"},
        {"to": "žluť@example.org"},
    ],
)
def test_what_cannot_be_a_mail_is_refused(values: dict[str, str | None]) -> None:
    with pytest.raises(Refused) as refusal:
        mail_of(row(**values), "shop@example.org", NOW)
    assert "\n" not in str(refusal.value)


def test_headers_of_a_mail_are_one_line() -> None:
    with pytest.raises(Refused):
        mail_of(Row("k", MAIL, {"X-A": "b\r\nBcc: eve@example.org"}), "shop@example.org", NOW)


def test_an_international_domain_is_written_in_ascii() -> None:
    assert addresses("ann@knihkupectví.example")[0].domain == "xn--knihkupectv-ycb.example"


@pytest.mark.parametrize(
    ("url", "options", "problem"),
    [
        ("http://host", {"from": "a@b"}, "smtp://"),
        ("smtp://", {"from": "a@b"}, "smtp://"),
        ("smtp://ann:secret@host", {"from": "a@b"}, "not given in the URL"),
        ("smtp://host", {}, "'from' is missing"),
        ("smtp://host", {"from": "nobody"}, "'from'"),
        ("smtp://host", {"from": "a@b", "user": "u", "password": "secret", "starttls": "off"}, "in the clear"),
    ],
)
def test_settings_that_cannot_work_are_refused(url: str, options: dict[str, str], problem: str) -> None:
    kind = KINDS["mail"]
    with pytest.raises(ValueError, match=problem) as refusal:
        kind.prepare(url, Options(options), kind.defaults)
    assert "secret" not in str(refusal.value)
