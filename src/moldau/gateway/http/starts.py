"""Where a reader of a topic begins: what its request says, and which offsets that are now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from moldau.gateway.http.positions import looks_like_positions, positions_of
from moldau.gateway.http.query import parameters, partition_number, timestamp_ms
from moldau.gateway.ports import Account
from moldau.gateway.steady_reader import within
from moldau.web.failures import ApiError, bad_request, not_found
from moldau.web.requests import NAME_LENGTH_MAX

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
PARAMETERS: Final = ("from", "group", "partition")


class Start(NamedTuple):
    origin: str
    """EARLIEST, LATEST, a time, or positions."""
    group: str | None = None
    """Begins where this group is; partitions without an offset of it as `origin` says."""
    partition: int | None = None
    """Only this one; None: all."""
    resumed: Mapping[int, int] | None = None
    """Where the same reader was, as `Last-Event-ID` has it. It counts more than all others."""


def start_of(
    query: bytes, origin: str, last_event_id: str | None = None, others: tuple[str, ...] = ()
) -> tuple[Start, dict[str, str]]:
    """Return where a request begins, at this origin if it does not say it, and those of its parameters that are among
    the others. ApiError if it is wrong."""
    given = parameters(query, (*PARAMETERS, *others))
    group = given.get("group")
    if group is not None and not 0 < len(group) <= NAME_LENGTH_MAX:
        raise bad_request(f"group is a name of 1 to {NAME_LENGTH_MAX} characters")
    resumed = positions_of(last_event_id) if last_event_id else None
    start = Start(given.get("from", origin), group, partition_number(given.get("partition")), resumed)
    return start, {name: value for name, value in given.items() if name in others}


async def positions_at(account: Account, topic: str, start: Start) -> dict[int, int]:
    """Return the offset of each partition at which to begin. ApiError or KafkaError if that cannot be."""
    await account.check_read(topic)
    bounds = await account.bounds(topic)
    if start.partition is not None and start.partition not in bounds:
        raise not_found(f"{topic} has the partitions 0 to {len(bounds) - 1}, not {start.partition}")
    resumed = start.resumed
    if resumed is not None:  # a partition that is not in it has been added since
        begun = {partition: resumed.get(partition, first) for partition, (first, _) in bounds.items()}
    else:
        begun = await _origin(account, topic, start.origin, bounds)
        if start.group is not None:
            begun |= await account.committed(start.group, topic)
    if start.partition is not None:
        begun = {start.partition: begun[start.partition]}
    return within(begun, bounds)


async def _origin(account: Account, topic: str, origin: str, bounds: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    if origin in (EARLIEST, LATEST):
        return {partition: each[origin == LATEST] for partition, each in bounds.items()}
    if looks_like_positions(origin):
        given = positions_of(origin)
        if unknown := given.keys() - bounds.keys():
            raise not_found(f"{topic} has the partitions 0 to {len(bounds) - 1}, not {min(unknown)}")
        return {**{partition: end for partition, (_, end) in bounds.items()}, **given}
    return dict(await account.offsets_at(topic, _time(origin)))


def _time(origin: str) -> int:
    try:
        return timestamp_ms(origin)
    except ApiError as error:
        known = f"{EARLIEST}, {LATEST}, a time or offsets such as 0:13,1:40"
        raise bad_request(f"from: {error.message}; known are {known}") from None
