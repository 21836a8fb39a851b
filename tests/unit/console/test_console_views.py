"""Views in the console: how they are found among the topics, and that their rows say what they show."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.view_configs import VIEW_FROM, VIEW_SELECT, VIEW_WHERE
from moldau.client.admin.topics import TOPICS_PER_REQUEST
from moldau.console.access import Access
from moldau.console.call import Call
from moldau.console.collector.state import ClusterState, TopicState, Views
from moldau.console.collector.views import read_views
from moldau.console.endpoints.topics import list_topics, topic_row, view_of_topic
from moldau.console.options import ConsoleOptions
from moldau.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)


class ScriptedAdmin:
    """A model of a broker whose topics have these configs. None is a topic that was deleted meanwhile."""

    def __init__(self, configs: dict[str, dict[str, str] | ErrorCode | None]) -> None:
        self.configs = configs
        self.asked: list[list[str]] = []

    def ask(self, _api: Any, request: Any, _response: Any) -> DescribeConfigsResponse:
        names = [resource.resource_name for resource in request.resources]
        self.asked.append(names)
        return DescribeConfigsResponse(results=[self._result(name) for name in names])

    def _result(self, name: str) -> DescribeConfigsResult:
        configs = self.configs[name]
        if configs is None:
            return DescribeConfigsResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "", 2, name, [])
        if isinstance(configs, ErrorCode):
            return DescribeConfigsResult(configs, "", 2, name, [])
        entries = [DescribeConfigsResourceResult(key, value) for key, value in configs.items()]
        return DescribeConfigsResult(0, "", 2, name, entries)


def topics(*names: str, topic_id: bytes = bytes(16), partitions: int = 1) -> dict[str, TopicState]:
    return {
        name: TopicState(name, False, topic_id, array("i", [1] * partitions), [(1,)] * partitions, [(1,)] * partitions)
        for name in names
    }


def read(admin: ScriptedAdmin, those: dict[str, TopicState], before: Views) -> Views:
    return read_views(admin, those, before)  # type: ignore[arg-type]


BIG: dict[str, str] = {VIEW_FROM: "orders", VIEW_WHERE: "amount > 100", VIEW_SELECT: "id, amount"}


def test_views_are_found_and_each_topic_is_asked_about_once() -> None:
    admin = ScriptedAdmin({"orders": {}, "big": BIG, "secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "gone": None})
    views = read(admin, topics("orders", "big", "secret", "gone"), Views())
    assert [(name, view.source, view.where) for name, view in views.by_name.items()] == [
        ("big", "orders", "amount > 100")
    ]
    assert views.of_source("orders") == ["big"]
    views = read(admin, topics("orders", "big", "secret", "gone"), views)
    assert admin.asked == [["orders", "big", "secret", "gone"], ["gone"]]
    assert list(views.by_name) == ["big"]


def test_a_topic_that_was_created_again_is_asked_about_again() -> None:
    admin = ScriptedAdmin({"big": BIG})
    views = read(admin, topics("big"), Views())
    admin.configs = {"big": {}}
    assert not read(admin, topics("big", topic_id=b"\1" * 16), views).by_name
    assert read(admin, {}, views).known == {}, "nothing is kept of deleted topics"


def test_many_topics_are_asked_about_in_several_requests() -> None:
    names = [f"t{number}" for number in range(TOPICS_PER_REQUEST + 1)]
    admin = ScriptedAdmin({name: {} for name in names})
    read(admin, topics(*names), Views())
    assert [len(each) for each in admin.asked] == [TOPICS_PER_REQUEST, 1]


def test_the_row_of_a_view_names_its_source_and_has_no_size() -> None:
    state = ClusterState(topics={**topics("orders"), **topics("big", partitions=0)})
    state.views = read(ScriptedAdmin({"orders": {}, "big": BIG}), state.topics, Views())
    for topic in state.topics.values():
        topic.note_sizes(array("q", [7] * len(topic.leaders)))
    stored, view = (topic_row(state.topics[name], state) for name in ("orders", "big"))
    assert (stored["view"], stored["size_bytes"]) == (None, 7)
    assert view["size_bytes"] is None
    assert view["view"] == {
        "from": "orders", "where": "amount > 100", "select": "id, amount", "format": None, "key": None,
        "headers": None, "on_error": None, "made_by": None, "source_deleted": True,
    }  # fmt: skip


@pytest.mark.parametrize(("name", "source"), [("big", "orders"), ("orders", None), ("missing", None)])
def test_the_pages_of_a_topic_learn_whether_it_is_a_view(name: str, source: str | None) -> None:
    access = Access("localhost:1", {}, None)
    state = access.collector.state
    state.topics = topics("orders", "big")
    state.views = read(ScriptedAdmin({"orders": {}, "big": BIG}), state.topics, Views())
    view = view_of_topic(Call(ConsoleOptions("localhost:1"), access, {"topic": name}))["view"]
    assert (view and view["from"]) == source
    rows = list_topics(Call(ConsoleOptions("localhost:1"), access))["rows"]
    assert [row["name"] for row in rows if row["view"]] == ["big"]
