"""Which alterations of a broker's listeners reach the controller: those that the broker itself has checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import cast

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.persistent_map import PersistentMap
from moldau.base.promise import Promise, resolved
from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.runtime.listener_configs import ListenerConfigs
from moldau.security.acls.access import UNRESTRICTED
from moldau.security.principals import Principal
from moldau.server.handlers.authorized_requests.authorized import Authorize, Authorized
from moldau.server.handlers.authorized_requests.configs import AlterRequest, AlterResponse, authorize_alter_configs
from moldau.server.handlers.authorized_requests.listener_configs import (
    checking_listener_configs,
    refusing_listener_configs,
)
from moldau.wire.messages import alter_configs, incremental_alter_configs
from moldau.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from moldau.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

BROKER, TOPIC = 4, 2
SET, DELETE = 0, 1
KEY = "listener.name.a.ssl.keystore.location"
TYPE = "listener.name.a.ssl.keystore.type"
STORED = {KEY: "/old", "log.retention.ms": "5"}


class Checker:
    """Records what it has to check, and refuses what is at /bad."""

    def __init__(self) -> None:
        self.checked: list[tuple[set[str], dict[str, str]]] = []

    def check(
        self, names: Collection[str], old: Mapping[str, str], new: Mapping[str, str], requester: Principal
    ) -> None:
        assert (old, requester) == (STORED, UNRESTRICTED.principal)
        self.checked.append((set(names), dict(new)))
        if new.get(KEY) == "/bad":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "cannot be read")


def run_at_once(work: Callable[[], None]) -> Promise[None]:
    work()
    return resolved(None)


def current() -> CurrentImage:
    image = CurrentImage()
    configs = PersistentMap({(BROKER, "1"): PersistentMap(STORED)})
    image.publish(MetadataImage(configs=configs), Changes())  # type: ignore[arg-type]
    return image


def checked_by(checker: Checker) -> Authorize:
    configs = cast(ListenerConfigs, checker)
    return checking_listener_configs(authorize_alter_configs, 1, current(), {}, configs, run_at_once)


def authorized(authorize: Authorize, request: AlterRequest) -> Authorized:
    steps = authorize(request, UNRESTRICTED)
    try:
        while True:
            next(steps)
    except StopIteration as done:
        return cast(Authorized, done.value)


def incremental(*changes: tuple[str, int, str | None], broker: str = "1") -> IncrementalAlterConfigsRequest:
    configs = [incremental_alter_configs.AlterableConfig(*change) for change in changes]
    return IncrementalAlterConfigsRequest([incremental_alter_configs.AlterConfigsResource(BROKER, broker, configs)])


def replacing(**texts: str) -> AlterConfigsRequest:
    configs = [alter_configs.AlterableConfig(*item) for item in texts.items()]
    return AlterConfigsRequest([alter_configs.AlterConfigsResource(BROKER, "1", configs)])


@pytest.mark.parametrize(
    ("request_", "names", "new"),
    [
        (incremental((KEY, SET, "/new")), {KEY}, {**STORED, KEY: "/new"}),
        (incremental((KEY, SET, "/old")), {KEY}, STORED),
        (incremental((KEY, DELETE, None)), {KEY}, {"log.retention.ms": "5"}),
        (
            incremental((TYPE, SET, "PEM"), ("log.roll.ms", SET, "7")),
            {TYPE},
            {**STORED, TYPE: "PEM", "log.roll.ms": "7"},
        ),
        (replacing(**{TYPE: "PEM"}), {KEY, TYPE}, {TYPE: "PEM"}),
        (replacing(), {KEY}, {}),
    ],
)
def test_the_broker_checks_what_its_configs_would_be(
    request_: AlterRequest, names: set[str], new: dict[str, str]
) -> None:
    checker = Checker()
    assert authorized(checked_by(checker), request_).request is request_
    assert checker.checked == [(names, new)]


@pytest.mark.parametrize(
    "request_",
    [
        incremental(("log.retention.ms", SET, "6")),
        incremental((KEY, SET, "/x"), broker=""),  # the controller refuses it
        IncrementalAlterConfigsRequest(
            [
                incremental_alter_configs.AlterConfigsResource(
                    TOPIC, "1", incremental((KEY, SET, "x")).resources[0].configs
                )
            ]
        ),
        IncrementalAlterConfigsRequest([*incremental((KEY, SET, "/x")).resources * 2]),  # the controller refuses it
    ],
)
def test_other_requests_are_forwarded_unchecked(request_: AlterRequest) -> None:
    checker = Checker()
    assert authorized(checked_by(checker), request_).request is request_
    assert checker.checked == []


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (incremental((KEY, SET, "/bad")), "cannot be read"),
        (incremental((KEY, SET, None)), f"Null value not supported for : {KEY}"),
        (incremental((KEY, 7, "/x")), "Unknown operation type 7."),
        (
            incremental((KEY, SET, "/x"), ("ssl.keystore.type", SET, "PEM")),
            "These security configs can be dynamically updated only per-listener using the listener prefix:"
            " [ssl.keystore.type]",
        ),
        (
            incremental((KEY, SET, "/x"), broker="2"),
            "Unexpected broker id, expected 1, but received 2: only the broker itself can check these configs",
        ),
    ],
)
def test_a_refused_resource_is_not_forwarded_and_the_others_are(request_: AlterRequest, message: str) -> None:
    checker = Checker()
    whole = authorized(checked_by(checker), request_)
    assert whole.request is None
    (refused,) = responses(whole, IncrementalAlterConfigsResponse())
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, message)
    topic = incremental_alter_configs.AlterConfigsResource(TOPIC, "t")
    both = authorized(checked_by(checker), IncrementalAlterConfigsRequest([*request_.resources, topic], True))
    assert both.request == IncrementalAlterConfigsRequest([topic], True)
    done = incremental_alter_configs.AlterConfigsResourceResponse(0, None, TOPIC, "t")
    assert responses(both, IncrementalAlterConfigsResponse(5, [done])) == [done, refused]


def test_a_controller_refuses_them_all() -> None:
    for request in (incremental((KEY, SET, "/new")), replacing(**{KEY: "/new"})):
        left = authorized(refusing_listener_configs(authorize_alter_configs, current()), request)
        assert left.request is None
        empty: AlterResponse = (
            AlterConfigsResponse() if isinstance(request, AlterConfigsRequest) else (IncrementalAlterConfigsResponse())
        )
        (refused,) = responses(left, empty)
        assert (refused.error_code, refused.resource_name) == (ErrorCode.INVALID_REQUEST, "1")
        assert refused.error_message == f"Only broker 1 can check these configs, ask it: [{KEY}]"


def responses(
    left: Authorized, response: AlterResponse
) -> list[incremental_alter_configs.AlterConfigsResourceResponse]:
    steps = left.with_refused(response)
    try:
        while True:
            next(steps)
    except StopIteration as done:
        return list(done.value.responses)
