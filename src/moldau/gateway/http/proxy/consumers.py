"""The consumers that clients have made, each in a thread of its own, until they are deleted or forgotten."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.http.limits import HttpLimits
from moldau.gateway.http.proxy.consumer_config import TIMEOUT_MS_MAX, ConsumerConfig
from moldau.gateway.http.proxy.failures import TOO_MANY, ProxyError, instance_not_found
from moldau.gateway.ports import Account
from moldau.web.daemon_pool import DaemonPool

if TYPE_CHECKING:
    from moldau.gateway.http.proxy.consumer import RestConsumer

T = TypeVar("T")
log = logging.getLogger("moldau.gateway")

SWEEP_S: Final = 10.0
PENDING_MAX: Final = 20
"""Calls of one consumer that wait for each other."""
CALL_S: Final = TIMEOUT_MS_MAX / 1000 + 30
STOP_S: Final = 5.0


class Place(NamedTuple):
    """Where a consumer is found: each user has the own ones."""

    user: str
    group: str
    name: str


class Instance:
    """A consumer, and what the event loop knows of it."""

    def __init__(self, config: ConsumerConfig, consumer: RestConsumer, now: float) -> None:
        self.config, self.consumer = config, consumer
        self.thread = DaemonPool(1, f"consumer of {config.group[:40]}")
        self.pending = 0
        self.used_at = now


class Consumers:
    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._instances: dict[Place, Instance] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def count(self) -> int:
        return len(self._instances)

    @property
    def pending(self) -> int:
        """Calls that are under way."""
        return sum(instance.pending for instance in self._instances.values())

    async def create(self, account: Account, config: ConsumerConfig) -> None:
        """Make a consumer that logs in as this user. ProxyError if its name is taken, or there are too many."""
        from moldau.gateway.http.proxy.consumer import RestConsumer  # loading librdkafka takes time and memory

        place = Place(account.user, config.group, config.name)
        if place in self._instances:
            text = "Consumer with specified consumer ID already exists in the specified consumer group."
            raise ProxyError(409, 40902, text)
        of_user = sum(each.user == account.user for each in self._instances)
        for count, limit, whose in (
            (of_user, self._limits.consumers_of_user, f"{account.user} has"),
            (self.count, self._limits.consumers, "there are"),
        ):
            if count >= limit:
                raise ProxyError(429, TOO_MANY, f"{whose} {limit} consumers already; delete one, or wait until it ends")
        instance = self._instances[place] = Instance(config, RestConsumer(config), self._loop.time())
        self._sweep_later()
        try:
            await self._in_thread(
                instance, lambda: instance.consumer.open(account.client_settings, self._limits.consumer_idle_s)
            )
        except BaseException:
            if self._instances.get(place) is instance:  # it may have been deleted meanwhile
                self._end(place)
            raise

    async def call(self, account: Account, group: str, name: str, work: Callable[[RestConsumer], T]) -> T:
        """Let a consumer do something in its thread. ProxyError if the user has none with this name."""
        instance = self.found(account, group, name)
        return await self._in_thread(instance, lambda: instance.consumer.call(work))

    def found(self, account: Account, group: str, name: str) -> Instance:
        instance = self._instances.get(Place(account.user, group, name))
        if instance is None:
            raise instance_not_found()
        return instance

    async def delete(self, account: Account, group: str, name: str) -> None:
        """End a consumer: it leaves its group."""
        self.found(account, group, name)
        await asyncio.wait([self._end(Place(account.user, group, name), is_deleted=True)], timeout=CALL_S)

    def end_soon(self) -> None:
        """Calls that wait for records return."""
        for instance in self._instances.values():
            instance.consumer.is_ending = True

    async def close(self) -> None:
        """End all, and wait a while until they have left their groups."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        if ending := [self._end(place) for place in list(self._instances)]:
            await asyncio.wait(ending, timeout=STOP_S)

    def sweep(self, now: float) -> None:
        """End the consumers that nobody has used for long."""
        for place, instance in list(self._instances.items()):
            if not instance.pending and instance.used_at + self._limits.consumer_idle_s <= now:
                self._end(place)

    def _sweep_later(self) -> None:
        if self._sweeping is None and self._instances:
            self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        self.sweep(self._loop.time())
        self._sweep_later()

    async def _in_thread(self, instance: Instance, work: Callable[[], T]) -> T:
        if instance.pending >= PENDING_MAX:
            raise ProxyError(429, TOO_MANY, f"{PENDING_MAX} requests to this consumer wait already")
        instance.pending += 1
        try:
            doing = self._loop.run_in_executor(instance.thread, work)
            done, _ = await asyncio.wait([doing], timeout=CALL_S)
        finally:
            instance.pending -= 1
            instance.used_at = self._loop.time()
        if not done:
            doing.add_done_callback(_forgotten)
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the consumer has not answered for {CALL_S:g} s")
        return doing.result()

    def _end(self, place: Place, is_deleted: bool = False) -> asyncio.Future[None]:
        instance = self._instances.pop(place)
        instance.consumer.is_ending = True
        ending = self._loop.run_in_executor(instance.thread, lambda: instance.consumer.close(is_deleted))
        ending.add_done_callback(_forgotten)
        instance.thread.shutdown(wait=False)
        return ending


def _forgotten(done: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more."""
    if not done.cancelled() and (error := done.exception()) is not None:
        log.warning("a consumer of the REST proxy: %s", error)
