"""The dynamic configs of a broker's listeners, for TLS and SASL. They are checked before the controller writes them,
and used for new connections once they are committed. Connections that are open keep what they began with.

A listener whose dynamic configs cannot be used at a start lets nobody in: the properties file may protect it less.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from moldau.base.broker_configs import is_dynamic_of_listener, listener_of
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.setting_sources import SettingsError
from moldau.base.settings.own import MOLDAU_IGNORE_DYNAMIC_LISTENER_CONFIGS
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.runtime.node_tls import NodeTls
from moldau.security.dynamic_listeners import StaticListeners, is_of_tls, refuse_short_sessions
from moldau.security.principals import USER, Principal
from moldau.security.sasl.use import SaslListenerSettings

log = logging.getLogger("moldau.listeners")


class ListenerConfigs:
    def __init__(
        self,
        node_id: int,
        static: StaticListeners,
        tls: NodeTls,
        use_sasl: Callable[[str, SaslListenerSettings], None],
        is_ignored: bool = False,
    ) -> None:
        """`use_sasl` is called with a listener and what its next connections use. If the configs are ignored, they are
        checked, but not used."""
        self._resource = ConfigResource.BROKER, str(node_id)
        self._static = static
        self._tls = tls
        self._use_sasl = use_sasl
        self._in_use: Mapping[str, str] = {}
        self._sasl = {name: static.sasl.listeners[name] for name in static.with_sasl}
        self._is_ignored = is_ignored
        self._is_started = False

    def check(
        self, names: Collection[str], old: Mapping[str, str], new: Mapping[str, str], requester: Principal
    ) -> None:
        """Raise KafkaError if the configs that a request names, of which some may be as they were, cannot be used with
        the other `new` ones. Waits for the disk: a thread calls it."""
        try:
            changes = {name: new[name] for name in names if name in new and new[name] != old.get(name)}
            self._static.refuse_without_effect(changes)
            refuse_short_sessions(changes)
            changed = [name for name in names if new.get(name) != old.get(name)] or names
            for listener, is_tls in sorted({(listener_of(name) or "", is_of_tls(name)) for name in changed}):
                self._check_listener(listener, is_tls, new)
            self._refuse_removal_of(requester, changes, new)
        except SettingsError as wrong:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(wrong)) from None

    def _check_listener(self, listener: str, is_tls: bool, configs: Mapping[str, str]) -> None:
        try:
            if is_tls and listener in self._static.tls:
                self._tls.check(listener, self._static.tls_of(listener, configs))
            if not is_tls and listener in self._sasl:
                self._static.sasl_of(listener, configs)
        except SettingsError as wrong:
            raise SettingsError(f"listener {listener}: {wrong}") from None

    def _refuse_removal_of(self, requester: Principal, changes: Collection[str], configs: Mapping[str, str]) -> None:
        """Raise SettingsError if a config that is set removes the user of PLAIN who sets it: perhaps nobody else could
        set it right. A deletion returns to the properties file, whatever users that has."""
        for listener in sorted({listener_of(name) or "" for name in changes if not is_of_tls(name)}):
            if requester.type != USER or requester.name not in self._sasl[listener].passwords:
                continue
            if requester.name not in self._static.sasl_of(listener, configs).passwords:
                raise SettingsError(
                    f"listener {listener}: {requester.name} would not be a user of PLAIN any more, but requests this;"
                    " only another user can"
                )

    async def start(self, image: MetadataImage) -> None:
        """Use the configs of the image, and follow changes from now on."""
        if self._is_ignored:
            log.warning("the dynamic configs of listeners are ignored: %s=true", MOLDAU_IGNORE_DYNAMIC_LISTENER_CONFIGS)
            return
        is_used = self._take(image)
        self._is_started = True
        if is_used:
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
            self._take_tls(listener, configs)
        for listener in self._sasl:
            self._take_sasl(listener, configs)
        return True

    def _take_tls(self, listener: str, configs: Mapping[str, str]) -> None:
        use = self._tls.want if self._is_started else self._tls.begin
        try:
            use(listener, self._static.tls_of(listener, configs))
        except SettingsError as wrong:
            if self._is_started:
                log.error("listener %s: TLS stays as it was, its dynamic configs cannot be used: %s", listener, wrong)
            else:
                self._tls.begin(listener, None)
                log.error("%s", self._tls.closed_line(listener, wrong))

    def _take_sasl(self, listener: str, configs: Mapping[str, str]) -> None:
        in_use = self._sasl[listener]
        try:
            changed = self._static.sasl_of(listener, configs)
        except SettingsError as wrong:
            if self._is_started:
                log.error("listener %s: SASL stays as it was, its dynamic configs cannot be used: %s", listener, wrong)
                return
            log.error("listener %s: nobody can log in until its dynamic configs can be used: %s", listener, wrong)
            self._use_changed(listener, replace(in_use, lifetimes_ms={}))
            return
        if changed != in_use:
            self._use_changed(listener, changed)
            log.info("listener %s: changed configs of SASL are in use for new connections", listener)

    def _use_changed(self, listener: str, changed: SaslListenerSettings) -> None:
        self._sasl[listener] = changed
        self._use_sasl(listener, changed)
