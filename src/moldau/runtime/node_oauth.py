"""OAUTHBEARER in a running node: verifies the tokens of all its listeners.

That takes a tenth of a millisecond with most keys; long tokens and slow keys are left to a thread. A token that names
an unknown key waits until the keys were read once more, so that an identity provider can change its keys without a
failed login.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from moldau.base.clock import Clock
from moldau.base.promise import Promise, resolved
from moldau.runtime.internal_errors import INTERNAL_ERRORS
from moldau.runtime.jwks import JwksKeys
from moldau.security.sasl.oauthbearer.keys import VerificationKeys
from moldau.security.sasl.oauthbearer.server import TokenRefused, Verdict, Verify
from moldau.security.sasl.oauthbearer.settings import JwksSettings, OAuthBearerSettings, TokenRules
from moldau.security.sasl.oauthbearer.tokens import UnknownKey, verify_token

log = logging.getLogger("moldau.oauth")
QUICK_BYTES_MAX: Final = 8 << 10
"""A longer token is read in a thread: few are, and strangers can send such ones too."""


class NodeOAuth:
    def __init__(self, listeners: Mapping[str, OAuthBearerSettings], clock: Clock) -> None:
        self._listeners = listeners
        self._clock = clock
        self._keys: dict[JwksSettings, JwksKeys] = {
            each: JwksKeys(each, clock) for each in {settings.jwks for settings in listeners.values()}
        }
        self._threads = ThreadPoolExecutor(1, "verify tokens")

    async def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read all keys. Raise SettingsError if some cannot be read."""
        for keys in self._keys.values():
            await loop.run_in_executor(None, keys.read_first)
        self._loop = loop
        for keys in self._keys.values():
            keys.start(loop)

    def stop(self) -> None:
        for keys in self._keys.values():
            keys.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def verify(self, listener: str) -> Verify | None:
        """Return what verifies the tokens for that listener; None if it does not offer OAUTHBEARER."""
        settings = self._listeners.get(listener)
        if settings is None:
            return None
        return partial(self._verify, settings.rules, self._keys[settings.jwks])

    def _verify(self, rules: TokenRules, keys: JwksKeys, token: str) -> Promise[Verdict]:
        return self._verify_once(rules, keys, token).and_then(partial(self._retry, rules, keys, token))

    def _retry(self, rules: TokenRules, keys: JwksKeys, token: str, verdict: Verdict) -> Verdict | Promise[Verdict]:
        if not isinstance(verdict, UnknownKey) or (reading := keys.read_for_unknown_key()) is None:
            return verdict
        return reading.and_then(lambda _: self._verify_once(rules, keys, token))

    def _verify_once(self, rules: TokenRules, keys: JwksKeys, token: str) -> Promise[Verdict]:
        arguments = token, keys.keys, rules, self._clock.now_ms()
        if len(token) <= QUICK_BYTES_MAX and not keys.keys.has_slow:
            return resolved(_verdict(*arguments))
        promise: Promise[Verdict] = Promise()
        verifying = self._loop.run_in_executor(self._threads, _verdict, *arguments)
        verifying.add_done_callback(lambda done: None if done.cancelled() else promise.complete(done.result()))
        return promise


def _verdict(token: str, keys: VerificationKeys, rules: TokenRules, now_ms: int) -> Verdict:
    """May run in a thread. A fault of ours refuses the token, and disturbs nobody else."""
    try:
        return verify_token(token, keys, rules, now_ms)
    except TokenRefused as refused:
        return refused
    except Exception:
        INTERNAL_ERRORS.log(log, "a token could not be verified: internal error")
        return TokenRefused("internal error")
