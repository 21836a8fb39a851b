"""ListGroups v0–5 (by state from v4, by type from v5), DescribeGroups v0–6, DeleteGroups v0–2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from moldau.base.acl_operations import OPERATIONS_OMITTED
from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import LOOKUP_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems
from moldau.base.turns import CHANGES_A_TURN, LISTED_A_TURN
from moldau.coordinator.group import listing
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.share.offsets import Deletion
from moldau.coordinator.machine import Outcome
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.runtime.coordinators.share_group_states import Codes
from moldau.security.acls.access import Access
from moldau.security.acls.allowed_operations import allowed_bits
from moldau.security.acls.bindings import ResourceType
from moldau.security.acls.requirements import CLUSTER_DESCRIBE, GROUP_DELETE, GROUP_DESCRIBE
from moldau.server.admin_actions import AdminAction
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import combine_replies, reply_or_error, run_steps, uneven_in_turns, when_decided
from moldau.wire.apis import ApiKey
from moldau.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from moldau.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from moldau.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


class ListGroups(Handler):
    api = ApiKey.LIST_GROUPS
    versions = (0, 5)
    needs = (CLUSTER_DESCRIBE, GROUP_DESCRIBE)
    request_bytes_max = LOOKUP_REQUEST_BYTES_MAX

    def __init__(self, groups: GroupCoordinator, timers: Timers) -> None:
        self._coordinator = groups
        self._timers = timers

    def answer(self, request: ListGroupsRequest, caller: Caller) -> ListGroupsResponse | Promise[ListGroupsResponse]:
        states = frozenset(map(str.lower, request.states_filter))
        types = frozenset(map(str.lower, request.types_filter))
        return run_steps(self._timers, self._steps(listing.GroupFilter(states, types, _may_see(caller.access))))

    def _steps(self, wanted: listing.GroupFilter) -> Steps[ListGroupsResponse | Promise[ListGroupsResponse]]:
        turn = TurnItems(LISTED_A_TURN)
        try:
            parts = yield from self._coordinator.shards.read_all(
                lambda groups: listing.list_groups(groups.state, wanted, turn)
            )
        except KafkaError as error:
            return ListGroupsResponse(error_code=error.code)
        return combine_replies(parts, _list_response)


def _may_see(access: Access) -> Callable[[str], bool]:
    """Who may not describe the cluster sees only the groups that it may describe."""
    if access.allows_quietly(CLUSTER_DESCRIBE):
        return lambda group_id: True
    return partial(access.allows_quietly, GROUP_DESCRIBE)


def _list_response(parts: list[Any]) -> ListGroupsResponse:
    groups: list[ListedGroup] = []
    for part in parts:
        if not isinstance(part, KafkaError):
            groups += part
        elif part.code is not ErrorCode.NOT_COORDINATOR:  # the groups of that shard are on another node now
            return ListGroupsResponse(error_code=part.code)
    return ListGroupsResponse(groups=groups)


class DescribeGroups(Handler):
    api = ApiKey.DESCRIBE_GROUPS
    versions = (0, 6)
    needs = (GROUP_DESCRIBE,)
    request_bytes_max = LOOKUP_REQUEST_BYTES_MAX

    def __init__(self, groups: GroupCoordinator, timers: Timers) -> None:
        self._coordinator = groups
        self._timers = timers

    def answer(
        self, request: DescribeGroupsRequest, caller: Caller
    ) -> DescribeGroupsResponse | Promise[DescribeGroupsResponse]:
        return uneven_in_turns(
            self._timers,
            list(dict.fromkeys(request.groups)),
            lambda group_id: self._describe_group(group_id, request, caller),
            lambda groups: DescribeGroupsResponse(groups=groups),
            CHANGES_A_TURN,
        )

    def _describe_group(self, group_id: str, request: DescribeGroupsRequest, caller: Caller) -> tuple[Any, int]:
        """Return the group, or a promise of it, and how many members it has."""
        if not caller.access.allows(GROUP_DESCRIBE, group_id):
            return DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id), 1
        operations = OPERATIONS_OMITTED
        if request.include_authorized_operations:
            operations = allowed_bits(caller.access, ResourceType.GROUP, group_id)
        members = 0

        def describe(groups: Groups) -> Outcome[DescribedGroup]:
            nonlocal members
            described = listing.describe(groups.state, group_id, caller.version, operations)
            members = len(described.members)
            return Outcome(described)

        reply = reply_or_error(
            lambda: self._coordinator.submit(group_id, describe, allows_empty_group_id=True),
            lambda error: DescribedGroup(error_code=error.code, group_id=group_id),
        )
        return reply, members


class DeleteGroups(Handler):
    api = ApiKey.DELETE_GROUPS
    versions = (0, 2)
    needs = (GROUP_DELETE,)
    request_bytes_max = LOOKUP_REQUEST_BYTES_MAX

    def __init__(self, groups: GroupCoordinator, timers: Timers) -> None:
        self._coordinator = groups
        self._timers = timers

    def answer(
        self, request: DeleteGroupsRequest, caller: Caller
    ) -> DeleteGroupsResponse | Promise[DeleteGroupsResponse]:
        return uneven_in_turns(
            self._timers,
            list(dict.fromkeys(request.groups_names)),
            lambda group_id: self._delete(group_id, caller.access),
            lambda results: DeleteGroupsResponse(results=results),
            CHANGES_A_TURN,
        )

    def _delete(self, group_id: str, access: Access) -> tuple[Any, int]:
        """Return the result, or a promise of it, and how many records that takes."""
        if not access.allows(GROUP_DELETE, group_id):
            return DeletableGroupResult(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED), 1
        records = 1

        def begin(groups: Groups) -> Outcome[Any]:
            nonlocal records
            outcome = listing.begin_deletion(groups.state, group_id)
            records = len(outcome.records)
            return outcome

        def delete() -> Any:
            begun = self._coordinator.submit(group_id, begin, allows_empty_group_id=True)
            return when_decided(begun, self._delete_states)

        reply = reply_or_error(delete, lambda error: DeletableGroupResult(group_id, error.code))
        return reply, records

    def _delete_states(self, begun: Any) -> Any:
        """Delete a share group once its states are deleted. Pass on the result for any other group."""
        if not isinstance(begun, Deletion):
            return begun

        def finish(codes: Codes) -> DeletableGroupResult | Promise[DeletableGroupResult]:
            for code in filter(None, codes.values()):
                return DeletableGroupResult(begun.group_id, code)
            return self._coordinator.submit(
                begun.group_id, lambda groups: listing.delete(groups.state, begun.group_id), allows_empty_group_id=True
            )

        return self._coordinator.share_states.delete(begun).and_then(finish)

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        for result in response.results:
            yield AdminAction(f"group:{result.group_id}", result.error_code)
