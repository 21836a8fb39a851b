"""Every field of the answers to ordinary requests, in every version, at Apache Kafka and at Moldau: null or empty, -1
or 0, which error, which authorized operations. It needs MOLDAU_TEST_KAFKA_LIBS.

Intended differences are in `EXPECTED`, and in docs/compatibility.md.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from apache_node import Login, Side, await_coordinators, needs_apache, side_by_side
from harness.patience import wait_until
from ordinary_requests import TOPIC, Context, Ordinary, all_requests, ordinary_request

from moldau.wire.apis import APIS, ApiKey
from moldau.wire.messages.api_versions import ApiVersionsRequest
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.schema import Message

pytestmark = [pytest.mark.moldau_only, needs_apache]

TEXTS = ("message", "documentation")
"""Fields whose texts may differ; both sides must set them, or neither."""
BROKER_SPECIFIC = re.compile(
    r"(_id|port|host|path|_ms|timestamp|bytes|size|offset|_epoch|records|salt|watermark|log_dir)$|^leader$"
)
"""Fields whose numbers and ids may differ; both sides must set them, or neither."""
EXPECTED = {
    r"configs\[min.insync.replicas\].config_source: 3, ours 5": "set for the cluster by eligible leader replicas",
}
"""Intended differences: regular expressions for the lines of `differences`, and the reasons."""


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with side_by_side(tmp_path_factory.mktemp("beside-apache"), []) as both:
        yield both


def prepare(admin: Login) -> bytes:
    """Create what the requests assume; return the id of the topic."""
    admin.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)], timeout_ms=10_000), 7)
    wanted = MetadataRequest([MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    return bytes(
        wait_until(
            lambda: next(
                (topic.topic_id for topic in admin.ask(ApiKey.METADATA, wanted, 12).topics if not topic.error_code),
                None,
            ),
            "the topic is there",
        )
    )


def comparable(name: str, value: Any) -> Any:
    """Return the value as it is compared."""
    if isinstance(value, str) and name.endswith(TEXTS):
        return "a text" if value else repr(value)
    if BROKER_SPECIFIC.search(name) and not name.endswith("error_code"):
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int):
            return "positive" if value > 0 else value
        return "set" if any(value) else repr(value)
    return value


def fields(value: Any, path: str = "", name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each field; elements of lists go by their names, if they have one."""
    if isinstance(value, Message):
        for each in value.__slots__:
            yield from fields(getattr(value, each), f"{path}.{each}" if path else each, each)
    elif isinstance(value, list | tuple) and any(isinstance(each, Message) for each in value):
        for index, each in enumerate(sorted(value, key=_order)):
            yield from fields(each, f"{path}[{_label(each, index)}]")
    else:
        yield path, comparable(name, list(value) if isinstance(value, tuple) else value)


NAMES = (
    "name",
    "topic",
    "user",
    "group_id",
    "group",
    "feature",
    "api_key",
    "resource_name",
    "transactional_id",
    "topic_name",
)


def _order(element: Any) -> str:
    """Return what elements are sorted by: the order of topics by their ids is each broker's own."""
    codes = [value for path, value in fields(element) if path.endswith("error_code")]
    return f"{[getattr(element, name) for name in NAMES if hasattr(element, name)]} {codes}"


def _label(element: Any, index: int) -> str:
    found = next((str(getattr(element, name)) for name in NAMES if getattr(element, name, None)), None)
    return found or str(index)


def differences(theirs: Any, ours: Any) -> Iterator[str]:
    if isinstance(theirs, str) or isinstance(ours, str):
        if theirs != ours:
            yield f"{theirs!r:.80}, ours {ours!r:.80}"
        return
    expected, found = dict(fields(theirs)), dict(fields(ours))
    for path in sorted(expected.keys() | found.keys()):
        if expected.get(path, "absent") != found.get(path, "absent"):
            yield f"{path}: {expected.get(path, 'absent')!r:.80}, ours {found.get(path, 'absent')!r:.80}"


def answers(side: Side, versions: dict[int, tuple[int, int]]) -> dict[tuple[str, int], Any]:
    """Return the answers to all requests in all versions, by the request's name and the version."""
    found: dict[tuple[str, int], Any] = {}
    with side.connect() as admin:
        topic_id = prepare(admin)
    await_coordinators(side, "prepared")
    for each in all_requests():
        low, high = versions[each.api]
        for version in range(max(low, each.versions[0]), min(high, each.versions[1]) + 1):
            found[f"{APIS[each.api].name} {each.name}", version] = _answer(side, each, version, topic_id)
    return found


def _answer(side: Side, each: Ordinary, version: int, topic_id: bytes) -> Any:
    context = Context(topic_id, version, int(time.time() * 1000))
    with side.connect() as client:
        try:
            return client.ask(each.api, ordinary_request(each, context), version)
        except ConnectionError:
            return "closed"
        except TimeoutError:
            return "no answer"


def supported_versions(side: Side) -> dict[int, tuple[int, int]]:
    with side.connect() as admin:
        response = admin.ask(ApiKey.API_VERSIONS, ApiVersionsRequest("compared", "1"), 4)
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


def test_every_response_field_equals_apache_kafkas(sides: tuple[Side, Side]) -> None:
    apache, moldau = sides
    versions = supported_versions(moldau)
    theirs, ours = answers(apache, versions), answers(moldau, versions)
    found: dict[str, list[int]] = {}
    for (name, version), expected in theirs.items():
        for line in differences(expected, ours[name, version]):
            found.setdefault(f"{name}: {line}", []).append(version)
    unexpected = {
        f"{line} (v{versions[0]}-{versions[-1]})"
        for line, versions in found.items()
        if not any(re.search(pattern, line) for pattern in EXPECTED)
    }
    assert unexpected == set(), "\n" + "\n".join(sorted(unexpected))
