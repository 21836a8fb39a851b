"""Checks every response of the broker, and everything a client believes, against what happened before.

Responses are checked when the broker sends them, beliefs when a client adopts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from reading_client import SEVERAL_GROUPS_FROM, TOPIC_IDS_FROM, Held, ReadingClient

from moldau.base.errors import ErrorCode
from moldau.base.ids import Uuid
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.wire.apis import ApiKey
from moldau.wire.consumer_protocol import read
from moldau.wire.log_records.consumer_protocol import Assignment

if TYPE_CHECKING:
    from groups.watch import Call
    from groups.world import GroupsWorld

Place = tuple[str, Uuid, int]
"""Group, topic and partition of an offset."""

E = ErrorCode
ELSEWHERE = {E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE}
STATIC = {E.FENCED_INSTANCE_ID, E.UNRELEASED_INSTANCE_ID}
ALLOWED: dict[int, set[ErrorCode]] = {
    ApiKey.JOIN_GROUP: {E.UNKNOWN_MEMBER_ID, E.MEMBER_ID_REQUIRED, E.REBALANCE_IN_PROGRESS, E.FENCED_INSTANCE_ID},
    ApiKey.SYNC_GROUP: {E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS, E.FENCED_INSTANCE_ID},
    ApiKey.HEARTBEAT: {E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS, E.FENCED_INSTANCE_ID},
    ApiKey.LEAVE_GROUP: {E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {
        E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH, E.GROUP_ID_NOT_FOUND, E.FENCED_INSTANCE_ID,
        E.UNRELEASED_INSTANCE_ID,
    },
    ApiKey.OFFSET_COMMIT: {
        E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.STALE_MEMBER_EPOCH, E.REBALANCE_IN_PROGRESS,
        E.FENCED_INSTANCE_ID, E.GROUP_ID_NOT_FOUND, E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION,
    },
    ApiKey.OFFSET_FETCH: {E.UNKNOWN_MEMBER_ID, E.STALE_MEMBER_EPOCH, E.UNKNOWN_TOPIC_ID},
    ApiKey.OFFSET_DELETE: {
        E.GROUP_ID_NOT_FOUND, E.GROUP_SUBSCRIBED_TO_TOPIC, E.UNKNOWN_TOPIC_OR_PARTITION, E.NON_EMPTY_GROUP,
    },
    ApiKey.DELETE_GROUPS: {E.GROUP_ID_NOT_FOUND, E.NON_EMPTY_GROUP},
    ApiKey.LIST_GROUPS: set(),
    ApiKey.DESCRIBE_GROUPS: {E.GROUP_ID_NOT_FOUND},
    ApiKey.CONSUMER_GROUP_DESCRIBE: {E.GROUP_ID_NOT_FOUND},
}  # fmt: skip
"""Errors that a correct client can get, besides those of a coordinator that moved."""


class Ledger:
    def __init__(self, world: GroupsWorld) -> None:
        self._world = world
        self.holders: dict[tuple[str, Held], dict[str, ReadingClient]] = {}
        self.floors: dict[Place, int] = {}
        """Offsets that were acknowledged or returned: no lower one may be returned later."""
        self.ceilings: dict[Place, int] = {}
        self.resets: set[tuple[Place, int]] = set()
        self._generations: dict[tuple[Any, ...], tuple[str, str | None]] = {}
        self._ids: dict[tuple[Any, ...], str] = {}
        self._assignments: dict[tuple[Any, ...], dict[tuple[str, int], str]] = {}
        self._given: dict[tuple[Any, ...], bytes] = {}
        self.unsure: dict[str, int] = {}
        """Groups that are being deleted, or whose offsets are."""
        self._served_by: dict[str, int | None] = {}
        """The coordinator incarnation that clients last talked to, before the current response."""
        self._newest_commit: dict[str, int] = {}
        """The newest connection on which each client has committed."""
        self.answers = 0
        self._judges: dict[int, Callable[[Call, Any], None]] = {
            ApiKey.JOIN_GROUP: self._joined,
            ApiKey.SYNC_GROUP: self._synced,
            ApiKey.OFFSET_COMMIT: self._committed,
            ApiKey.OFFSET_FETCH: self._fetched,
            ApiKey.DELETE_GROUPS: self._deleted,
            ApiKey.OFFSET_DELETE: self._deleted,
        }

    # --- what clients believe -------------------------------------------------------------------------------------

    def took(self, client: ReadingClient, partitions: Iterable[Held]) -> None:
        for held in partitions:
            holders = self.holders.setdefault((client.group_id, held), {})
            holders[client.name] = client
            if len(holders) > 1:
                self._check_holders(client.group_id, held)

    def released(self, client: ReadingClient, partitions: Iterable[Held]) -> None:
        for held in partitions:
            holders = self.holders.get((client.group_id, held), {})
            holders.pop(client.name, None)
            if not holders:
                self.holders.pop((client.group_id, held), None)

    def check_all_holders(self) -> None:
        """Check all members after the coordinator's state was replaced."""
        for (group_id, held), holders in self.holders.items():
            if len(holders) > 1:
                self._check_holders(group_id, held)

    def _check_holders(self, group_id: str, held: Held) -> None:
        valid = [client for client in self.holders[group_id, held].values() if self.is_valid(client)]
        if len(valid) > 1:
            shown = ", ".join(f"{client.name}@{client.epoch}" for client in valid)
            self._world.violated(f"{group_id}: {self._world.shown(held)} has several valid owners: {shown}")

    def is_valid(self, client: ReadingClient) -> bool:
        """Whether the coordinator has the client as a member of the generation that it believes in."""
        group = self._world.group(client.group_id)
        if isinstance(group, ClassicGroup):
            return client.member_id in group.members and client.epoch == group.generation
        if isinstance(group, ConsumerGroup):
            member = group.members.get(client.member_id)
            return member is not None and client.epoch in (member.member_epoch, member.previous_member_epoch)
        return False

    def refused(self, client: ReadingClient, code: ErrorCode) -> None:
        """Check that no member is removed that met all its deadlines."""
        world = self._world
        world.trace(f"{client.name} gets {code.name}")
        if code is E.FENCED_INSTANCE_ID or client.excused_until_ms > world.elapsed_ms:
            return
        if world.population.twins_of(client):
            return
        if code is E.ILLEGAL_GENERATION and world.population.is_mixed(client.group_id):
            return  # a group that becomes classic again continues from its own epoch, not from its members'
        if world.faults.excused_until_ms > world.elapsed_ms or not world.machine.is_serving:
            return
        served_by = self._served_by.get(client.name)
        if served_by is not None and served_by == world.incarnation(client.group_id):
            world.violated(f"{client.name} of {client.group_id} gets {code.name} although it met all its deadlines")

    # --- responses ------------------------------------------------------------------------------------------------

    def delivered(self, call: Call) -> None:
        self._world.audit.catch_up()
        if call.api == ApiKey.OFFSET_COMMIT:
            newest = self._newest_commit.setdefault(call.sender, call.connection)
            call.is_late = call.connection < newest
            self._newest_commit[call.sender] = max(call.connection, newest)
            call.noted = dict(self._places(call, call.request.topics, call.request.group_id))
            for place, partition in call.noted.items():
                offset = partition.committed_offset
                self.ceilings[place] = max(self.ceilings.get(place, -1), offset)
                if _may_decrease(call):
                    self.resets.add((place, offset))
        elif call.api in (ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE):
            for group_id in _deleting(call):
                self.unsure[group_id] = self.unsure.get(group_id, 0) + 1

    def answered(self, call: Call, response: Any) -> None:
        self.answers += 1
        world = self._world
        world.audit.catch_up()
        codes = set(_codes(call.api, response))
        wrong = codes - ALLOWED[call.api] - ELSEWHERE - {E.NONE}
        if wrong:
            names = ", ".join(sorted(code.name for code in wrong))
            world.violated(f"{call.sender}: {ApiKey(call.api).name} gets {names}: {call.request}")
        if (
            codes & STATIC
            and getattr(call.request, "group_instance_id", None) is None
            and (
                getattr(call.request, "instance_id", None) is None
                and not any(each.group_instance_id for each in getattr(call.request, "members", ()))
            )
        ):
            world.violated(f"{call.sender} has no instance id, but gets {codes}")
        world.trace_answer(call, codes, response)
        group_id = getattr(call.request, "group_id", "")
        if group_id and codes <= {E.NONE, E.REBALANCE_IN_PROGRESS}:
            self._served_by[call.sender] = world.incarnation(group_id)
        judge = self._judges.get(call.api)
        if judge is not None:
            judge(call, response)

    def unanswered(self, call: Call) -> None:
        """Note a request without a response. What it asked to delete may be deleted: the log will show it."""
        if call.api == ApiKey.OFFSET_COMMIT and _may_decrease(call):
            for place, partition in call.noted.items():
                if place in self.floors:
                    self.floors[place] = min(self.floors[place], partition.committed_offset)

    def _joined(self, call: Call, response: Any) -> None:
        if response.error_code:
            is_right = call.version >= 4 and not call.request.member_id and call.request.group_instance_id is None
            if response.error_code == E.MEMBER_ID_REQUIRED and not is_right:
                self._world.violated(f"{call.sender} gets MEMBER_ID_REQUIRED although its request needs no member id")
            return
        group_id = call.request.group_id
        if not response.leader:
            return  # in a group with members of both protocols the broker assigns, and no member leads
        key = (
            self._world.incarnation(group_id),
            group_id,
            self._world.audit.deletions(group_id),
            response.generation_id,
        )
        shown = (_identity(response.leader), response.protocol_name)
        known = self._generations.setdefault(key, shown)
        if known != shown:
            self._world.violated(f"{group_id}: generation {key[-1]} has leader and protocol {known} and {shown}")
        owner = self._ids.setdefault((*key, response.member_id), call.sender)
        if owner != call.sender:
            self._world.violated(f"{group_id}: member id {response.member_id} is both {owner}'s and {call.sender}'s")

    def _synced(self, call: Call, response: Any) -> None:
        request = call.request
        if response.error_code or isinstance(self._world.group(request.group_id), ConsumerGroup):
            return
        key = (request.group_id, self._world.audit.deletions(request.group_id), request.generation_id)
        who = request.group_instance_id or request.member_id
        if self._given.setdefault((*key, who), response.assignment) != response.assignment:
            self._world.violated(f"{request.group_id}: {who} has two assignments in generation {request.generation_id}")
        assignments = self._assignments.setdefault(key, {})
        for topic in read(Assignment, response.assignment)[0].assigned_partitions if response.assignment else ():
            for index in topic.partitions:
                owner = assignments.setdefault((topic.topic, index), who)
                if owner != who:
                    self._world.violated(
                        f"{request.group_id}: {topic.topic}-{index} is assigned to {owner} and {who} in "
                        f"generation {request.generation_id}"
                    )

    # --- offsets --------------------------------------------------------------------------------------------------

    def _places(self, call: Call, topics: Iterable[Any], group_id: str) -> Iterator[tuple[Place, Any]]:
        image = self._world.image
        for topic in topics:
            by_id = call.version >= TOPIC_IDS_FROM
            known = image.topic_by_id(topic.topic_id) if by_id else image.topics.get(topic.name)
            if known is not None:
                for each in topic.partitions:
                    yield (group_id, known.id, each.partition_index), each

    def _committed(self, call: Call, response: Any) -> None:
        for place, answer in self._places(call, response.topics, call.request.group_id):
            if answer.error_code or place not in call.noted:
                continue
            offset = call.noted[place].committed_offset
            floor = self.floors.get(place, -1)
            if offset < floor and not _may_decrease(call):
                self._world.violated(
                    f"{call.sender} commits {offset} of {self.shown(place)} below the committed {floor}"
                )
            self.floors[place] = offset

    def _fetched(self, call: Call, response: Any) -> None:
        groups = response.groups if call.version >= SEVERAL_GROUPS_FROM else [response]
        group_id = call.request.groups[0].group_id if call.version >= SEVERAL_GROUPS_FROM else call.request.group_id
        for group in groups:
            if group.error_code:
                continue
            for place, answer in self._places(call, group.topics, group_id):
                if not answer.error_code:
                    self.seen(place, answer.committed_offset, call.sender)

    def seen(self, place: Place, offset: int, by: str) -> None:
        floor, ceiling = self.floors.get(place, -1), self.ceilings.get(place, -1)
        if not floor <= offset <= ceiling:
            self._world.violated(
                f"{by} fetches {offset} for {self.shown(place)}; {floor} was acknowledged, at most {ceiling} was sent"
            )
        if offset >= 0:
            self.floors[place] = offset

    def forget(self, place: Place) -> None:
        """Forget an offset that was rightly deleted."""
        self.floors.pop(place, None)

    def _deleted(self, call: Call, response: Any) -> None:
        for group_id in _deleting(call):
            self.unsure[group_id] -= 1

    def shown(self, place: Place) -> str:
        return f"{place[0]}/{self._world.shown(Held(place[1], place[2]))}"


def _identity(member_id: str) -> str:
    """Return the instance id of static members, whose member ids change within a generation."""
    return member_id[:-37] if member_id.startswith("instance-") else member_id


def _may_decrease(call: Call) -> bool:
    """Whether this commit may set offsets back: that of an administrator, and one that arrives late."""
    return call.is_late or call.request.generation_id_or_member_epoch < 0


def _deleting(call: Call) -> list[str]:
    return list(call.request.groups_names) if call.api == ApiKey.DELETE_GROUPS else [call.request.group_id]


def _codes(api: int, response: Any) -> Iterator[ErrorCode]:
    """Yield all error codes of a response, wherever they are."""
    if hasattr(response, "error_code"):
        yield ErrorCode(response.error_code)
    for field in ("topics", "partitions", "groups", "results", "members"):
        for each in getattr(response, field, None) or ():
            yield from _codes(api, each)
