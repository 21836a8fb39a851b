"""The users of the cluster who send and read through the gateway. The brokers check each of them: the gateway knows no
password of its own accord, and forgets those of users who are quiet."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final
from weakref import WeakSet

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.channel import Security
from moldau.client.cluster import addresses_of
from moldau.client.properties import security
from moldau.gateway.kafka.account import KafkaAccount
from moldau.gateway.kafka.brokers import Brokers, Reach
from moldau.gateway.kafka.client_settings import claims, client_settings
from moldau.gateway.kafka.device_tokens import RULES, DeviceToken, DeviceTokens
from moldau.gateway.kafka.own_cluster import create_compacted
from moldau.gateway.kafka.partition_queue import BACKOFF_S_FIRST
from moldau.gateway.kafka.room import Room
from moldau.gateway.ports import Certificate, Credentials, Password, Token
from moldau.security.principals import ANONYMOUS
from moldau.security.sasl.client import ClientLogin
from moldau.security.sasl.mechanism import OAUTHBEARER, PLAIN, SCRAM_MECHANISMS

log = logging.getLogger("moldau.gateway")

ACCOUNT_BYTES: Final = 16 << 20
ALL_BYTES: Final = 256 << 20
"""How much may be under way to the brokers, of one account and of all."""
ACCOUNTS_MAX: Final = 10_000
IDLE_S: Final = 300.0
"""The connections of an account that is quiet for so long are closed."""
CHECK_S: Final = 300.0
"""So often whoever comes with a password must be let in by a broker again: it may have been changed."""
REFUSED_S: Final = 5.0
"""So long a refusal is remembered: who guesses passwords does not ask the brokers each time."""
SWEEP_S: Final = 30.0
TOKEN_ATTEMPTS: Final = 6
"""A broker may know a new delegation token a moment later than the one that has made it."""
DEFAULT_MECHANISM: Final = "SCRAM-SHA-256"
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]{1,16384}=*")


@dataclass(slots=True)
class _Known:
    account: KafkaAccount
    checked_at: float
    used_at: float
    token: DeviceToken | None = None


class KafkaAccounts:
    def __init__(self, bootstrap: str, properties: Mapping[str, str], anonymous: bool = False) -> None:
        """`properties` are those of a Kafka client: how the cluster is reached, and the user of the gateway itself,
        which those without credentials are if `anonymous`. Raise UnusableProperty or ValueError if they are wrong."""
        self._loop = asyncio.get_running_loop()
        self._bootstrap, self._properties = bootstrap, properties
        self._security: Security = security(properties)
        tls, login = self._security.tls, self._security.login
        self._reach = Reach(tuple(addresses_of(bootstrap)), None if tls is None else lambda: tls)
        self._anonymous = anonymous or login is None
        self._tokens = DeviceTokens(bootstrap, properties, "" if login is None else login.user)
        self._room = Room(ALL_BYTES)
        self._accounts: WeakSet[KafkaAccount] = WeakSet()
        """All: a device that is connected keeps its account when it is quiet and forgotten here."""
        self._is_closed = False
        self.own = self._account(ANONYMOUS.name if login is None else login.user, login)
        self._known: dict[Credentials, _Known] = {}
        self._coming: dict[Credentials, asyncio.Task[KafkaAccount]] = {}
        self._refused: dict[Credentials, tuple[float, KafkaError]] = {}
        self._sweeping = self._loop.create_task(self._sweep_again_and_again(), name="sweep accounts")

    @property
    def count(self) -> int:
        return len(self._known)

    @property
    def bytes_under_way(self) -> int:
        return self._room.bytes_taken

    async def account(self, credentials: Credentials) -> KafkaAccount:
        if credentials is None:
            if not self._anonymous:
                raise _refused("a user and a password, a token or a certificate is needed")
            return self.own
        if self._is_closed:
            raise _closed()
        now = self._loop.time()
        known = self._known_with_fresh_token(credentials)
        if known is not None and now - known.checked_at < CHECK_S:
            known.used_at = now
            return known.account
        until, error = self._refused.get(credentials, (0.0, None))
        if error is not None and now < until:
            raise KafkaError(error.code, error.message)  # another one: each `raise` adds its frames to an error
        coming = self._coming.get(credentials)
        if coming is None:
            coming = self._coming[credentials] = self._loop.create_task(self._come(credentials, known))
            coming.add_done_callback(lambda _: self._coming.pop(credentials))
        try:
            return await asyncio.shield(coming)
        except asyncio.CancelledError:
            if coming.cancelled():
                raise _closed() from None
            raise

    async def create_topics(self, names: Iterable[str]) -> None:
        """Create those of these topics of the gateway that are not there, compacted. KafkaError if that fails."""
        properties = {name: value for name, value in self._properties.items() if name != RULES}
        await create_compacted(self._bootstrap, properties, names)

    async def close(self) -> None:
        self._is_closed = True
        self._sweeping.cancel()
        coming = list(self._coming.values())
        for each in coming:
            each.cancel()
        await asyncio.gather(*coming, self._sweeping, return_exceptions=True)
        for account in list(self._accounts):
            account.close()
        for brokers in list(self._reach.connected):
            brokers.close()
        await self._tokens.close()

    def _known_with_fresh_token(self, credentials: Credentials) -> _Known | None:
        """Forget an account whose token nears its end: those who have it keep it until then."""
        known = self._known.get(credentials)
        if known is not None and known.token is not None and not known.token.is_fresh:
            del self._known[credentials]
            return None
        return known

    async def _come(self, credentials: Password | Token | Certificate, known: _Known | None) -> KafkaAccount:
        """Let a broker say whether these credentials are right."""
        if len(self._known) >= ACCOUNTS_MAX and known is None:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"there are {ACCOUNTS_MAX} users already")
        try:
            if known is None:
                known = await self._new(credentials)
            await _log_in(known.account, 1 if known.token is None else TOKEN_ATTEMPTS)
        except KafkaError as error:
            if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                self._remember_refusal(credentials, error)
            raise
        known.checked_at = known.used_at = self._loop.time()
        self._known[credentials] = known
        return known.account

    async def _new(self, credentials: Password | Token | Certificate) -> _Known:
        if self._security.login is None:
            raise _refused("the cluster knows no users on this listener: come without a password")
        token = None
        if isinstance(credentials, Certificate):
            token = await self._tokens.of(credentials.subject)
            user, login = token.user, token.login
        elif isinstance(credentials, Token):
            user, login = _of_token(credentials)
        else:
            user, login = credentials.user, self._of_password(credentials)
        now = self._loop.time()
        return _Known(self._account(user, login), now, now, token)

    def _of_password(self, credentials: Password) -> ClientLogin:
        user, password = credentials
        if not user or not password or "\0" in user + password:
            raise _refused("a user and a password are needed, without zeros")
        own = "" if self._security.login is None else self._security.login.mechanism
        mechanism = own if own == PLAIN or own in SCRAM_MECHANISMS else DEFAULT_MECHANISM
        return ClientLogin(mechanism, user, password)

    def _account(self, user: str, login: ClientLogin | None) -> KafkaAccount:
        settings = partial(client_settings, self._bootstrap, self._properties, login)
        account = KafkaAccount(user, Brokers(self._reach, login), Room(ACCOUNT_BYTES, self._room), settings)
        self._accounts.add(account)
        return account

    def _remember_refusal(self, credentials: Credentials, error: KafkaError) -> None:
        known = self._known.pop(credentials, None)
        if known is not None:
            known.account.rest()
        if len(self._refused) >= ACCOUNTS_MAX:
            self._refused.pop(next(iter(self._refused)))
        self._refused[credentials] = self._loop.time() + REFUSED_S, error

    # --- what is old ------------------------------------------------------------------------------------------------

    async def _sweep_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.sweep(self._loop.time())

    async def sweep(self, now: float) -> None:
        """Forget refusals and accounts that are old; renew the tokens of those with certificates."""
        for credentials in [each for each, (until, _) in self._refused.items() if until < now]:
            del self._refused[credentials]
        since = now - IDLE_S
        for brokers in [each for each in self._reach.connected if each.asked_at < since]:
            brokers.rest()
        for credentials in [each for each, known in self._known.items() if known.used_at < since]:
            if self._known[credentials].account.rest_if_idle(since):
                del self._known[credentials]
        await self._tokens.renew_in_time()


async def _log_in(account: KafkaAccount, attempts: int) -> None:
    for attempt in range(1, attempts):
        try:
            await account.log_in()
            return
        except KafkaError as error:
            if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise
        await asyncio.sleep(BACKOFF_S_FIRST * 2**attempt)
    await account.log_in()


def _of_token(credentials: Token) -> tuple[str, ClientLogin]:
    text = credentials.text
    if not _TOKEN.fullmatch(text):
        raise _refused("this is no token of OAuth")
    user = _subject_of(text)
    return user, ClientLogin(OAUTHBEARER, user, token=lambda: text)


def _subject_of(token: str) -> str:
    """Return whose token it says it is: a broker verifies it before anything is done with it. A token that does not say
    it is a user of its own."""
    subject = claims(token).get("sub")
    if isinstance(subject, str) and subject:
        return subject
    return "bearer of " + hashlib.sha256(token.encode()).hexdigest()[:32]


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, why)


def _closed() -> KafkaError:
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, "the gateway stops")
