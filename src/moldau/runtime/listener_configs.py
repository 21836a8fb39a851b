"""The dynamic configs of a broker's listeners, for TLS and SASL. They are checked before the controller writes them,
and used for new connections once they are committed. Connections that are open keep what they began with.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from moldau.base.broker_configs import is_dynamic_of_listener, listener_of
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.setting_sources import SettingsError
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.runtime.node_tls import NodeTls
from moldau.security.dynamic_listeners import StaticListeners
from moldau.security.sasl.use import SaslListenerSettings

log = logging.getLogger("moldau.listeners")


class ListenerConfigs:
    def __init__(
        self,
        node_id: int,
        static: StaticListeners,
        tls: NodeTls,
        use_sasl: Callable[[str, SaslListenerSettings], None],
    ) -> None:
        """`use_sasl` is called with a listener and what its next connections use."""
        self._resource = ConfigResource.BROKER, str(node_id)
        self._static = static
        self._tls = tls
        self._use_sasl = use_sasl
        self._in_use: Mapping[str, str] = {}
        self._sasl = {name: static.sasl.listeners[name] for name in static.with_sasl}
        self._is_started = False

    def check(self, names: Collection[str], old: Mapping[str, str], new: Mapping[str, str]) -> None:
        """Raise KafkaError if the configs that a request names, of which some may be as they were, cannot be used with
        the other `new` ones. Waits for the disk: a thread calls it."""
        try:
            self._static.refuse_without_effect([name for name in names if name in new and new[name] != old.get(name)])
            for listener in sorted({listener_of(name) or "" for name in names}):
                self._check_listener(listener, new)
        except SettingsError as wrong:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(wrong)) from None

    def _check_listener(self, listener: str, configs: Mapping[str, str]) -> None:
        try:
            if listener in self._static.tls:
                self._tls.check(listener, self._static.tls_of(listener, configs))
            if listener in self._sasl:
                self._static.sasl_of(listener, configs)
        except SettingsError as wrong:
            raise SettingsError(f"listener {listener}: {wrong}") from None

    async def start(self, image: MetadataImage) -> None:
        """Use the configs of the image, and follow changes from now on."""
        self._is_started = True
        if self._take(image):
            await asyncio.get_running_loop().run_in_executor(None, self._tls.reload)

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        if self._is_started and self._resource in changes.configs and self._take(image):
            self._tls.reload_soon()

    def _take(self, image: MetadataImage) -> bool:
        """Use the configs of the image; return whether they differ from those in use. The files of TLS are read by the
        next reload."""
        configs = {name: v for name, v in image.configs_of(*self._resource).items() if is_dynamic_of_listener(name)}
        if configs == self._in_use:
            return False
        self._in_use = configs
        for listener in self._static.tls:
            try:
                self._tls.want(listener, self._static.tls_of(listener, configs))
            except SettingsError as wrong:
                log.error("listener %s: TLS stays as it was, its dynamic configs cannot be used: %s", listener, wrong)
        for listener, in_use in self._sasl.items():
            try:
                changed = self._static.sasl_of(listener, configs)
            except SettingsError as wrong:
                log.error("listener %s: SASL stays as it was, its dynamic configs cannot be used: %s", listener, wrong)
                continue
            if changed != in_use:
                self._sasl[listener] = changed
                self._use_sasl(listener, changed)
                log.info("listener %s: changed configs of SASL are in use for new connections", listener)
        return True
