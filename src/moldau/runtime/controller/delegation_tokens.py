"""The delegation tokens of the active controller: requests to change them, and the removal of those that expired."""

from __future__ import annotations

import logging
from random import Random
from typing import Any, Final

from moldau.base.clock import Clock, Timer, Timers
from moldau.base.ids import uuid_text
from moldau.base.promise import Promise
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.delegation_tokens import (
    TokenContext,
    decide_create_token,
    decide_expire_token,
    decide_remove_expired_tokens,
    decide_renew_token,
)
from moldau.metadata.controller.topics import new_uuid
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller.active import Controller
from moldau.security.delegation_tokens import TokenHmacs
from moldau.security.principals import ANONYMOUS, Client
from moldau.security.token_settings import TokenSettings
from moldau.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from moldau.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from moldau.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

log = logging.getLogger("moldau.controller")


class ControllerTokens:
    def __init__(
        self, controller: Controller, settings: TokenSettings, clock: Clock, timers: Timers, rng: Random
    ) -> None:
        self._controller = controller
        self._settings = settings
        self._hmacs: Final = TokenHmacs(settings.secret_key)
        self._clock = clock
        self._timers = timers
        self._removal_timer: Timer | None = None
        self._rng = rng

    # Each returns a promise of the response, or of KafkaError NOT_CONTROLLER if this node is not the leader.

    def create(self, request: CreateDelegationTokenRequest, client: Client | None) -> Promise[Any]:
        context = self._context(client)
        return self._controller.submit(
            lambda image: decide_create_token(image, request, context, uuid_text(new_uuid(self._rng)))
        )

    def renew(self, request: RenewDelegationTokenRequest, client: Client | None) -> Promise[Any]:
        context = self._context(client)
        return self._controller.submit(lambda image: decide_renew_token(image, request, context))

    def expire(self, request: ExpireDelegationTokenRequest, client: Client | None) -> Promise[Any]:
        context = self._context(client)
        return self._controller.submit(lambda image: decide_expire_token(image, request, context))

    def _context(self, client: Client | None) -> TokenContext:
        requester = ANONYMOUS if client is None else client.principal
        return TokenContext(self._settings, self._hmacs, requester, self._clock.now_ms())

    # --- the removal of expired tokens, while this controller is active -------------------------------------------

    def take_over(self) -> None:
        if self._settings.is_enabled:
            self._removal_timer = self._timers.after_ms(self._settings.check_interval_ms, self._remove_expired)

    def lay_down(self) -> None:
        if self._removal_timer is not None:
            self._removal_timer.cancel()
            self._removal_timer = None

    def _remove_expired(self) -> None:
        now_ms = self._clock.now_ms()
        self._removal_timer = self._timers.after_ms(self._settings.check_interval_ms, self._remove_expired)
        self._controller.submit_own(lambda image: self._decide_removal(image, now_ms)).then(self._after_removal)

    def _decide_removal(self, image: MetadataImage, now_ms: int) -> Decision[bool]:
        decision = decide_remove_expired_tokens(image, now_ms)
        if decision.records:
            log.info("delegation tokens: %d have expired and are removed", len(decision.records))
        return decision

    def _after_removal(self, has_more: object) -> None:
        if has_more is True and self._removal_timer is not None:
            self._removal_timer.cancel()
            self._removal_timer = self._timers.after_ms(1, self._remove_expired)
