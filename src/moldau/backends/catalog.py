"""The backends that come with Moldau: their names, the parts of a row that each uses, their options and defaults.

Whoever adds one writes a module with its class and a row here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from moldau.backends.delivery import Delivery
from moldau.backends.interface import Backend
from moldau.backends.metric_lines import Format
from moldau.backends.object_files import S3_OPTIONS
from moldau.backends.options import Options

BATCH_ROWS_MAX: Final = 10_000
PARALLEL_MAX: Final = 256
TASKS_MAX: Final = 64

Make = Callable[[], Backend]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of backend."""

    title: str
    """For drawings: "HTTP"."""
    prepare: Callable[[str, Options, Delivery], Make]
    """Checks a URL, options and delivery without I/O (ValueError), and returns a function that makes the backend."""
    parts: tuple[str, ...]
    """Each an SQL expression over the columns of the view."""
    required: tuple[str, ...] = ()
    default: str | None = None
    """The part that is the whole row as JSON, if the sink does not name it."""
    takes_headers: bool = False
    takes_batches: bool = True
    url_may_be_path: bool = False
    options: frozenset[str] = frozenset()
    defaults: Delivery

    def is_option(self, name: str) -> bool:
        return name in self.options or (self.takes_fixed_headers and name.startswith("header."))

    @property
    def takes_fixed_headers(self) -> bool:
        return "authorization" in self.options


def _http(url: str, options: Options, delivery: Delivery) -> Make:
    from moldau.backends.http import HttpBackend, HttpSettings

    settings = HttpSettings.read(url, options, delivery.timeout_s, "application/json")
    return lambda: HttpBackend(settings)


def _mail(url: str, options: Options, delivery: Delivery) -> Make:
    from moldau.backends.mail import MailBackend, MailSettings

    settings = MailSettings.read(url, options, delivery.timeout_s)
    return lambda: MailBackend(settings)


def _opensearch(url: str, options: Options, delivery: Delivery) -> Make:
    from moldau.backends.opensearch import OpenSearchBackend, OpenSearchSettings

    settings = OpenSearchSettings.read(url, options, delivery.timeout_s)
    return lambda: OpenSearchBackend(settings)


def _statsd(url: str, options: Options, delivery: Delivery) -> Make:
    return _metrics("statsd", url, options, delivery)


def _graphite(url: str, options: Options, delivery: Delivery) -> Make:
    return _metrics("graphite", url, options, delivery)


def _metrics(format_: Format, url: str, options: Options, delivery: Delivery) -> Make:
    from moldau.backends.metrics import MetricsBackend, MetricsSettings

    settings = MetricsSettings.read(format_, url, options, delivery.timeout_s)
    return lambda: MetricsBackend(settings)


def _files(url: str, options: Options, delivery: Delivery) -> Make:
    from moldau.backends.object_files import FilesBackend, FilesSettings

    settings = FilesSettings.read(url, options)
    return lambda: FilesBackend(settings)


LOGIN: Final = frozenset({"user", "password", "ca"})

KINDS: Final[Mapping[str, Kind]] = {
    "http": Kind(
        title="HTTP",
        prepare=_http,
        parts=("body", "path"),
        default="body",
        takes_headers=True,
        takes_batches=False,
        options=LOGIN | {"method", "content_type", "authorization", "retry_statuses"},
        defaults=Delivery(parallel=16),
    ),
    "mail": Kind(
        title="mail",
        prepare=_mail,
        parts=("to", "cc", "bcc", "subject", "body", "html", "sender", "reply_to"),
        required=("to", "subject"),
        takes_headers=True,
        takes_batches=False,
        options=LOGIN | {"from", "starttls"},
        defaults=Delivery(parallel=2, retries=20),
    ),
    "opensearch": Kind(
        title="OpenSearch",
        prepare=_opensearch,
        parts=("document", "index"),
        default="document",
        options=LOGIN | {"authorization", "index", "op_type", "retry_statuses"},
        defaults=Delivery(batch_rows=500, parallel=2),
    ),
    "statsd": Kind(
        title="StatsD",
        prepare=_statsd,
        parts=("metric", "value", "type"),
        required=("metric", "value"),
        takes_headers=True,
        options=frozenset({"prefix"}),
        defaults=Delivery(batch_rows=100),
    ),
    "graphite": Kind(
        title="Graphite",
        prepare=_graphite,
        parts=("metric", "value", "timestamp"),
        required=("metric", "value"),
        takes_headers=True,
        options=frozenset({"prefix"}),
        defaults=Delivery(batch_rows=500),
    ),
    "files": Kind(
        title="files",
        prepare=_files,
        parts=("line",),
        default="line",
        url_may_be_path=True,
        options=frozenset({"compression", "suffix", *S3_OPTIONS}),
        defaults=Delivery(batch_rows=10_000),
    ),
}

OF_USER: Final = Delivery(batch_rows=100)
"""Defaults for a class of the user."""

SECRET_OPTIONS: Final = ("authorization", "header.", "access_key")
"""Options, and a prefix of options, whose values are secret although their names do not say so."""
SECRET_SEGMENT_LENGTH: Final = 16
"""A part of a URL's path of this length is taken for a secret, as in the webhooks of many chat services."""
_SECRET_ARGUMENT: Final = re.compile(r"password|passphrase|secret|token|key$|credential|authorization", re.IGNORECASE)


def secrets_of(url: str, options: Mapping[str, str], args: Mapping[str, object]) -> frozenset[str]:
    """Return the values that may not be shown, beside those of options whose names say so."""
    secrets = {value for name, value in options.items() if name.lower().startswith(SECRET_OPTIONS)}
    secrets |= {word for value in set(secrets) for word in value.split() if len(word) >= SECRET_SEGMENT_LENGTH}
    parts = urlsplit(url) if "://" in url else urlsplit("")
    secrets |= {segment for segment in parts.path.split("/") if len(segment) >= SECRET_SEGMENT_LENGTH}
    login = parts.netloc.rpartition("@")[0]
    secrets |= {part for part in (parts.query, login, login.partition(":")[2]) if part}
    return frozenset(secrets | set(_secret_arguments(args)))


def _secret_arguments(value: object, is_secret: bool = False) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _secret_arguments(each, is_secret or _SECRET_ARGUMENT.search(str(name)) is not None)
    elif isinstance(value, list):
        for each in value:
            yield from _secret_arguments(each, is_secret)
    elif is_secret and isinstance(value, str):
        yield value
