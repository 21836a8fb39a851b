"""A broker without the packages for views refuses to create one, with an error that names what to install."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.steps import finish
from moldau.base.view_configs import VIEW_FROM
from moldau.runtime.views import ports
from moldau.security.acls.access import UNRESTRICTED
from moldau.server.handlers.authorized_requests.views import refusing_views
from moldau.server.handlers.forwarded.create_topics import authorize_create_topics
from moldau.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

STORED = CreatableTopic("orders", 1, 1)
VIEW = CreatableTopic("big-orders", -1, -1, configs=[CreatableTopicConfig(VIEW_FROM, "orders")])


def test_a_view_is_refused_and_the_other_topics_are_created() -> None:
    authorize = refusing_views(authorize_create_topics, lambda: "Install it.")
    left, with_refused = finish(authorize(CreateTopicsRequest([STORED, VIEW], 5, True), UNRESTRICTED))
    assert left == CreateTopicsRequest([STORED], 5, True)
    response = finish(with_refused(CreateTopicsResponse(topics=[CreatableTopicResult("orders")])))
    assert isinstance(response, CreateTopicsResponse)
    created, refused = response.topics
    assert (created.name, created.error_code) == ("orders", 0)
    assert (refused.name, refused.error_code) == ("big-orders", ErrorCode.POLICY_VIOLATION)
    assert refused.error_message == "Install it."
    assert finish(authorize(CreateTopicsRequest([VIEW]), UNRESTRICTED)).request is None


def test_duplicate_topic_names_are_all_forwarded_to_the_controller() -> None:
    """It refuses all of them. If it saw only one, it would create it."""
    authorize = refusing_views(authorize_create_topics, lambda: "Install it.")
    request = CreateTopicsRequest([STORED, CreatableTopic("orders", -1, -1, configs=VIEW.configs)])
    assert finish(authorize(request, UNRESTRICTED)).request is request


def test_requests_without_a_refused_view_are_forwarded_unchanged() -> None:
    def unexpected_call() -> str:
        raise AssertionError("there is no view")

    request = CreateTopicsRequest([STORED])
    assert finish(refusing_views(authorize_create_topics, unexpected_call)(request, UNRESTRICTED)).request is request
    request = CreateTopicsRequest([STORED, VIEW])
    assert finish(refusing_views(authorize_create_topics, lambda: None)(request, UNRESTRICTED)).request is request


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ports.sys.modules, "duckdb", raising=False)
    monkeypatch.setattr(ports, "find_spec", lambda package: None if package == "duckdb" else package)
    assert ports.missing_for_views() == "Views need DuckDB on the broker: pip install 'moldau[views]'."
    monkeypatch.setattr(ports, "find_spec", lambda package: package)
    assert ports.missing_for_views() is None
