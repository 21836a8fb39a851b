"""URLs of identity providers: `https:`, `http:` and `file:`, as Kafka allows them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

SCHEMES: Final = ("https", "http", "file")
_ALLOWED: Final = re.compile(r"-Dorg\.apache\.kafka\.sasl\.oauthbearer\.allowed\.urls=(\S*)")
_LOOPBACK: Final = re.compile(r"localhost|127(\.\d+){3}|::1")


class Endpoint(NamedTuple):
    scheme: str
    host: str
    """Empty for a file."""
    port: int
    path: str
    """Of a file on this machine, or the path and query for the server."""

    @property
    def is_file(self) -> bool:
        return self.scheme == "file"


def parse_endpoint(url: str) -> Endpoint:
    """Raise ValueError with the reason if the URL cannot be used; the caller says which URL it is."""
    if re.search(r"[\x00-\x20\x7f-\U0010ffff]", url):
        raise ValueError("expected a URL without spaces, in ASCII")
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ValueError("expected a URL that begins with https:, http: or file:")
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise ValueError("expected an absolute path, such as file:///etc/kafka/jwks.json")
        return Endpoint("file", "", 0, unquote(parts.path))
    if "@" in parts.netloc:
        raise ValueError("expected a URL without user and password")
    port = parts.port  # raises ValueError
    if not parts.hostname:
        raise ValueError("expected the name of a host")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Endpoint(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), path)


def is_exposed(url: str) -> bool:
    """Whether others can read and change what is sent to that URL and received from it."""
    try:
        endpoint = parse_endpoint(url)
    except ValueError:
        return False
    return endpoint.scheme == "http" and not _LOOPBACK.fullmatch(endpoint.host)


def allowed_urls(kafka_opts: str) -> frozenset[str] | None:
    """Return the URLs that the Java property in KAFKA_OPTS allows; None if it is not there: then all are."""
    found = _ALLOWED.search(kafka_opts)
    return None if found is None else frozenset(filter(None, found[1].split(",")))
