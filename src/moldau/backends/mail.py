"""Mails over SMTP: one mail for each row, over connections that are kept open.

The server's answer decides, for each recipient: 2xx is taken, 4xx is tried again, 5xx is refused for good. Recipients
that have the mail do not get it again when others are tried again in the same process. The Message-ID is made of the
row's key, so a receiver can recognise a repetition.
"""

from __future__ import annotations

import re
import smtplib
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.errors import HeaderParseError, MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, getaddresses
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from moldau.backends.http import tls_context
from moldau.backends.interface import Away, Misconfigured, Refused, Retry, Row
from moldau.backends.options import Options

PORTS: Final = {"smtp": 587, "smtps": 465}
STARTTLS: Final = ("required", "if-offered", "off")
ASCII: Final = SMTP.clone(cte_type="7bit")
"""Encodes other characters: a server need not take 8 bits."""
RECIPIENTS_MAX: Final = 100
"""RFC 5321 asks servers to accept so many."""
CLOSING: Final = 421
REASON_LENGTH_MAX: Final = 150
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_KEY: Final = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,200}")
_ADDRESS: Final = re.compile(r"[^\s@<>()\[\],;:\\\"]+@[^\s@<>()\[\],;:\\\"]+")


@dataclass(frozen=True, slots=True)
class MailSettings:
    host: str
    port: int
    is_tls: bool
    starttls: str
    sender: str
    user: str | None
    password: str = field(repr=False)
    ca: str | None
    timeout_s: float

    @staticmethod
    def read(url: str, options: Options, timeout_s: float) -> MailSettings:
        """Raises ValueError for what cannot work."""
        parts = urlsplit(url)
        if parts.scheme not in PORTS or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError(
                "the URL of a mail server is smtp://HOST:PORT, or smtps://HOST:PORT for TLS from the start"
            )
        if parts.username is not None:
            raise ValueError("a user and password are not given in the URL but as options")
        sender = options.text("from")
        if sender is None:
            raise ValueError("the option 'from' is missing: the sender's address")
        try:
            addresses(sender)
        except Refused as error:
            raise ValueError(f"the option 'from': {error}") from error
        user = options.text("user")
        starttls = options.choice("starttls", STARTTLS, "required")
        if user is not None and starttls != "required" and parts.scheme != "smtps":
            raise ValueError("with a user, the password must not go over the network in the clear: starttls: required")
        return MailSettings(
            parts.hostname,
            parts.port or PORTS[parts.scheme],
            parts.scheme == "smtps",
            starttls,
            sender,
            user,
            options.text("password", ""),
            options.text("ca"),
            timeout_s,
        )


def addresses(text: str) -> list[Address]:
    """Return the addresses of a list such as `Ann <ann@example.org>, bob@example.org`. Raises Refused for any other."""
    if _CONTROL.search(text):
        raise Refused("an address has a line end or another control character")
    found = []
    for name, address in getaddresses([text]):
        if not _ADDRESS.fullmatch(address):
            raise Refused(f"{address or text!r} is not an address")
        found.append(Address(name, addr_spec=address) if address.isascii() else _international(name, address))
    if not found:
        raise Refused("there is no address")
    return found


def _international(name: str, address: str) -> Address:
    """Return an address beyond ASCII: its domain may be written in ASCII, what is before the @ may not."""
    user, _, domain = address.rpartition("@")
    try:
        return Address(name, username=user.encode("ascii").decode(), domain=domain.encode("idna").decode())
    except UnicodeError:
        raise Refused(f"{address!r} has characters beyond ASCII before the @, which few servers take") from None


@dataclass(frozen=True, slots=True)
class Mail:
    message: EmailMessage
    sender: str
    recipients: Sequence[str]


def mail_of(row: Row, sender: str, now: datetime) -> Mail:
    """Return the mail of a row. Raises Refused if its values cannot be one."""
    parts = row.values
    message = EmailMessage(policy=ASCII)
    try:
        [sent_by, *_] = addresses(str(parts.get("sender") or sender))
        message["From"] = sent_by
        recipients = []
        for name in ("to", "cc", "bcc"):
            if parts.get(name):
                listed = addresses(parts[name])
                recipients += [address.addr_spec for address in listed]
                if name != "bcc":
                    message[name.capitalize()] = listed
        if parts.get("reply_to"):
            message["Reply-To"] = addresses(parts["reply_to"])
        message["Subject"] = one_header_line("subject", parts.get("subject") or "")
        message["Date"] = format_datetime(now)
        message["Message-ID"] = message_id(row.key, sent_by.domain)
        for name, value in (row.headers or {}).items():
            message[one_header_line("header", name)] = one_header_line(name, value)
        message.set_content(str(parts.get("body") or ""))
        if parts.get("html"):
            message.add_alternative(parts["html"], subtype="html")
        if not recipients:
            raise Refused("the mail has no recipient")
        if len(recipients) > RECIPIENTS_MAX:
            raise Refused(f"the mail has {len(recipients)} recipients, and at most {RECIPIENTS_MAX} are possible")
        message.as_bytes()  # encodes all headers, which may fail
    except Refused:
        raise
    except (MessageError, HeaderParseError, ValueError, LookupError) as error:
        raise Refused(f"not a mail: {error}") from error
    return Mail(message, sent_by.addr_spec, list(dict.fromkeys(recipients)))


def one_header_line(name: str, value: str) -> str:
    """Return the value. Raises Refused if it would begin another header."""
    if _CONTROL.search(value):
        raise Refused(f"{name} has a line end or another control character")
    return value


def message_id(key: str, domain: str) -> str:
    """Return the Message-ID of a key; of one that is not legal there, that of its digest."""
    local = key if _KEY.fullmatch(key) else sha256(key.encode()).hexdigest()
    return f"<{local}@{domain}>"


class MailBackend:
    def __init__(self, settings: MailSettings, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._settings, self._now = settings, now
        self._connection: smtplib.SMTP | None = None

    def open(self) -> None:
        """The first mail connects."""

    def write(self, rows: Sequence[Row]) -> None:
        (row,) = rows
        mail = mail_of(row, self._settings.sender, self._now())
        progress: _Progress = row.memory or _Progress(list(mail.recipients))
        row.memory = progress
        try:
            refused = self._connected().send_message(mail.message, mail.sender, progress.left)
        except smtplib.SMTPRecipientsRefused as error:
            refused = error.recipients
            if not refused.keys() >= set(progress.left):  # 421: the others were not asked, and nobody has the mail
                self._drop()
                code, answer = list(refused.values())[-1]
                raise Away(f"SMTP {code} {_text(answer)}") from error
            self._reset()
        except smtplib.SMTPResponseException as error:
            self._drop()
            raise _error_of(error.smtp_code, _text(error.smtp_error)) from error
        except (smtplib.SMTPException, OSError) as error:
            self._drop()
            if isinstance(error, OSError) and not isinstance(error, smtplib.SMTPException):
                raise
            raise Retry(str(error)) from error
        progress.note(refused)

    def close(self) -> None:
        if self._connection is not None:
            try:
                self._connection.quit()
            except (smtplib.SMTPException, OSError):
                self._drop()

    def _connected(self) -> smtplib.SMTP:
        if self._connection is not None and self._is_alive():
            return self._connection
        self._drop()
        self._connection = self._connect()
        return self._connection

    def _is_alive(self) -> bool:
        """Return whether the server still answers: many close a connection that is idle for some minutes."""
        assert self._connection is not None
        try:
            code, _ = self._connection.rset()
        except (smtplib.SMTPException, OSError):
            return False
        return code == 250

    def _connect(self) -> smtplib.SMTP:
        settings = self._settings
        tls = tls_context(settings.ca)
        try:
            if settings.is_tls:
                connection: smtplib.SMTP = smtplib.SMTP_SSL(
                    settings.host, settings.port, timeout=settings.timeout_s, context=tls
                )
            else:
                connection = smtplib.SMTP(settings.host, settings.port, timeout=settings.timeout_s)
        except smtplib.SMTPException as error:
            raise _closed_to_all(error) from error
        except TimeoutError as error:
            raise Away(f"no connection to {settings.host} in {settings.timeout_s:g} s") from error
        try:
            self._log_in(connection, tls)
        except smtplib.SMTPException as error:
            connection.close()
            raise _closed_to_all(error) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _log_in(self, connection: smtplib.SMTP, tls: ssl.SSLContext) -> None:
        settings = self._settings
        connection.ehlo_or_helo_if_needed()
        if not settings.is_tls and settings.starttls != "off":
            if connection.has_extn("starttls"):
                connection.starttls(context=tls)
                connection.ehlo()
            elif settings.starttls == "required":
                raise Misconfigured(f"the mail server {settings.host} offers no STARTTLS (option starttls)")
        if settings.user is not None:
            try:
                connection.login(settings.user, settings.password)
            except smtplib.SMTPAuthenticationError as error:
                if error.smtp_code >= 500:
                    raise Misconfigured(f"the mail server refuses the user and password ({error.smtp_code})") from None
                raise
            except smtplib.SMTPNotSupportedError:
                raise Misconfigured(f"the mail server {settings.host} offers no login") from None

    def _reset(self) -> None:
        """Keep the connection after a mail that nobody gets."""
        if self._connection is not None and not self._is_alive():
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@dataclass(slots=True)
class _Progress:
    """The recipients of one mail over several attempts."""

    left: list[str]
    refused: list[str] = field(default_factory=list)
    """With the server's answers."""

    def note(self, answers: Mapping[str, tuple[int, bytes]]) -> None:
        """Note which recipients were refused. Raises Retry if some are to be tried again, Refused if that is over and
        some were refused for good."""
        later = [recipient for recipient in self.left if recipient in answers and answers[recipient][0] < 500]
        self.refused += [
            f"{recipient}: {code} {_text(answer)}" for recipient, (code, answer) in answers.items() if code >= 500
        ]
        self.left = later
        if later:
            code, answer = answers[later[0]]
            raise _error_of(code, f"{_text(answer)} (for {later[0]})")
        if self.refused:
            raise Refused(f"refused: {'; '.join(self.refused)}")


def _closed_to_all(error: smtplib.SMTPException) -> Away:
    """Return what an error says that comes before the first mail."""
    if isinstance(error, smtplib.SMTPResponseException):
        return Away(f"the mail server says {error.smtp_code} {_text(error.smtp_error)}")
    return Away(str(error))


def _error_of(code: int, text: str) -> Refused | Retry:
    if code == CLOSING:
        return Away(f"SMTP {code} {text}")
    return Refused(f"SMTP {code} {text}") if 500 <= code < 600 else Retry(f"SMTP {code} {text}")


def _text(answer: bytes | str) -> str:
    text = answer.decode("utf-8", errors="replace") if isinstance(answer, bytes) else answer
    return " ".join(text.split())[:REASON_LENGTH_MAX]
