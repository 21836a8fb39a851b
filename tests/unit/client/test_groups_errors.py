"""`Groups`: errors of single groups are returned by `each_described` and `each_committed`, raised by other methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.admin.group_coordinators import NotAnswered
from moldau.client.admin.group_values import DescribedGroup
from moldau.client.admin.groups import Groups
from moldau.client.cluster import Cluster
from moldau.wire.apis import ApiKey
from moldau.wire.messages import describe_groups
from moldau.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from moldau.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


class Coordinators(Cluster):
    """Answers for groups: those in `unplaced` have no coordinator, those in `failing` have errors of their own."""

    def __init__(self, unplaced: Mapping[str, ErrorCode], failing: Mapping[str, ErrorCode]) -> None:
        super().__init__("localhost:1", {})
        self.unplaced, self.failing = dict(unplaced), dict(failing)
        self.asked: list[list[str]] = []

    def nodes(self) -> Mapping[int, tuple[str, int]]:
        return {1: ("host", 9092)}

    def channel(self, node_id: int) -> Any:
        return self

    def offers(self, key: ApiKey) -> bool:
        return False

    def ask_any(self, key: ApiKey, request: Any, response_type: Any, versions: Any = None) -> Any:
        coordinators = [
            Coordinator(each, 1, "host", 9092, int(self.unplaced.get(each, 0)), None)
            for each in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=coordinators)

    def ask(self, key: ApiKey, request: Any, response_type: Any, versions: Any = None) -> Any:
        if key is ApiKey.DESCRIBE_GROUPS:
            self.asked.append(list(request.groups))
            return describe_groups.DescribeGroupsResponse(
                groups=[
                    describe_groups.DescribedGroup(
                        error_code=int(self.failing.get(each, 0)), group_id=each, group_state="Empty"
                    )
                    for each in request.groups
                ]
            )
        self.asked.append([each.group_id for each in request.groups])
        partitions = [OffsetFetchResponsePartitions(partition_index=0, committed_offset=7)]
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id=each.group_id,
                    topics=[OffsetFetchResponseTopics(name="orders", partitions=partitions)],
                    error_code=int(self.failing.get(each.group_id, 0)),
                )
                for each in request.groups
            ]
        )


AUTHORIZATION = ErrorCode.GROUP_AUTHORIZATION_FAILED
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE


def codes(results: Mapping[str, Any]) -> dict[str, ErrorCode]:
    return {each: result.code for each, result in results.items() if isinstance(result, KafkaError)}


def test_an_error_of_one_group_does_not_hide_others() -> None:
    cluster = Coordinators({"away": AWAY, "hidden": AUTHORIZATION}, {"secret": AUTHORIZATION, "loading": LOADING})
    groups = Groups(cluster, 0)
    ids = ["away", "fine", "hidden", "loading", "secret"]
    wanted = {"away": AWAY, "hidden": AUTHORIZATION, "loading": LOADING, "secret": AUTHORIZATION}
    committed = groups.each_committed(ids)
    assert codes(committed) == wanted
    fine = committed["fine"]
    assert not isinstance(fine, KafkaError)
    assert fine[TopicPartition("orders", 0)].offset == 7
    described = groups.each_described(ids)
    assert codes(described) == wanted
    assert isinstance(described["fine"], DescribedGroup)


def test_only_groups_with_a_retriable_error_are_requested_again() -> None:
    class Recovering(Coordinators):
        def ask(self, key: ApiKey, request: Any, response_type: Any, versions: Any = None) -> Any:
            answer = super().ask(key, request, response_type, versions)
            self.failing.pop("loading", None)
            return answer

    cluster = Recovering({}, {"secret": AUTHORIZATION, "loading": LOADING})
    committed = Groups(cluster, 60_000).each_committed(["fine", "loading", "secret"])
    assert codes(committed) == {"secret": AUTHORIZATION}
    assert cluster.asked == [["fine", "loading", "secret"], ["loading"]]


@pytest.mark.parametrize("code", [AWAY, AUTHORIZATION])
def test_described_and_committed_raise_the_error_of_a_coordinator(code: ErrorCode) -> None:
    groups = Groups(Coordinators({"a": code}, {}), 0)
    for ask in (groups.described, groups.committed):
        with pytest.raises(NotAnswered) as raised:
            ask(["a", "b"])
        assert raised.value.code is code
    assert groups.delete(["a"]) == {"a": code}
    secret = Groups(Coordinators({}, {"a": AUTHORIZATION}), 0)
    assert codes(secret.described(["a"])) == {"a": AUTHORIZATION}
    with pytest.raises(KafkaError):
        secret.committed(["a"])
