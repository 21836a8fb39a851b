"""Key files in memory, and settings that name them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from moldau.base.broker_configs import BROKER_CONFIGS
from moldau.base.config_def import ConfigValue
from moldau.base.setting_sources import SettingsError
from moldau.platforms.key_files import DiskKeyFiles
from moldau.security.tls.settings import TlsSettings, read_tls


class MemoryKeyFiles:
    def __init__(self, files: Mapping[str, bytes | str]) -> None:
        self._files: dict[str, bytes] = {}
        self._versions: dict[str, int] = {}
        for path, data in files.items():
            self.write(path, data)

    def write(self, path: str, data: bytes | str) -> None:
        self._files[path] = data.encode() if isinstance(data, str) else data
        self._versions[path] = self._versions.get(path, 0) + 1

    def read(self, path: str, bytes_max: int) -> bytes:
        if path not in self._files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self._files[path][:bytes_max]

    def version(self, path: str) -> object:
        return self._versions.get(path)

    def named(self, data: bytes) -> AbstractContextManager[str]:
        return DiskKeyFiles().named(data)


def tls_settings(is_server: bool = True, **texts: str) -> TlsSettings:
    """Return settings; `keystore_type="PEM"` sets ssl.keystore.type."""
    given = {f"ssl.{name.replace('_', '.')}": text for name, text in texts.items()}

    def value_of(key: str) -> ConfigValue:
        definition = BROKER_CONFIGS[key]
        return definition.parse(given[key]) if key in given else definition.default

    return read_tls(value_of, lambda key, reason: SettingsError(f"{key}: {reason}"), is_server=is_server)


def pem_settings(is_server: bool = True, **texts: str) -> TlsSettings:
    stores = {"keystore_type": "PEM", "keystore_location": "node.pem"}
    trust = {"truststore_type": "PEM", "truststore_location": "ca.pem"}
    return tls_settings(is_server, **(stores | trust | texts))
