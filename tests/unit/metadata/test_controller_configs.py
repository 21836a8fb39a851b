"""IncrementalAlterConfigs (set, delete, append, subtract) and AlterConfigs (replace all): results and each error."""

from __future__ import annotations

import pytest
from clusters import NODE_ID, applied, cluster, layers, topic, with_topics
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.errors import ErrorCode
from moldau.base.ids import uuid_text
from moldau.base.steps import finish
from moldau.metadata.broker_configs import broker_layers
from moldau.metadata.controller.configs import (
    Operation,
    decide_alter_configs,
    decide_incremental_alter_configs,
)
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.wire.log_records.metadata import ConfigRecord
from moldau.wire.messages import alter_configs, incremental_alter_configs

E = ErrorCode
SET, DELETE, APPEND, SUBTRACT = Operation
TOPIC = (ConfigResource.TOPIC, "a")
BROKER = (ConfigResource.BROKER, str(NODE_ID))
ALL_BROKERS = (ConfigResource.BROKER, "")
Change = tuple[str, int, str | None]
START = with_topics(
    cluster([NODE_ID, 2]), topic("a", configs={"retention.ms": "5", "max.message.bytes": "100"}), topic("b")
)


def alter_incrementally(
    image: MetadataImage, *resources: tuple[tuple[int, str], list[Change]], validate_only: bool = False
) -> tuple[MetadataImage, list[int], list[str | None]]:
    """Apply one IncrementalAlterConfigs; return the image after it, the codes and the messages."""
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        [
            incremental_alter_configs.AlterConfigsResource(
                *key, [incremental_alter_configs.AlterableConfig(*change) for change in changes]
            )
            for key, changes in resources
        ],
        validate_only,
    )
    decision = finish(decide_incremental_alter_configs(image, request, layers(image)))
    responses = decision.response.responses
    assert [(each.resource_type, each.resource_name) for each in responses] == [key for key, _ in resources]
    return (
        applied(image, decision.records),
        [each.error_code for each in responses],
        [each.error_message for each in responses],
    )


def replace_all(
    image: MetadataImage, *resources: tuple[tuple[int, str], dict[str, str | None]], validate_only: bool = False
) -> tuple[MetadataImage, list[int]]:
    """Apply one AlterConfigs; return the image after it and the codes."""
    request = alter_configs.AlterConfigsRequest(
        [
            alter_configs.AlterConfigsResource(
                *key, [alter_configs.AlterableConfig(name, value) for name, value in configs.items()]
            )
            for key, configs in resources
        ],
        validate_only,
    )
    decision = finish(decide_alter_configs(image, request, layers(image)))
    return applied(image, decision.records), [each.error_code for each in decision.response.responses]


# --- IncrementalAlterConfigs


def test_configs_are_set_and_deleted() -> None:
    image, codes, _ = alter_incrementally(
        START, (TOPIC, [("retention.ms", SET, "7"), ("max.message.bytes", DELETE, None)])
    )
    assert codes == [0]
    assert image.configs_of(*TOPIC) == {"retention.ms": "7"}
    image, codes, _ = alter_incrementally(
        image, (TOPIC, [("retention.ms", DELETE, "whatever"), ("segment.ms", DELETE, None)])
    )
    assert (codes, image.configs_of(*TOPIC)) == ([0], {})


def test_an_unchanged_value_writes_no_record() -> None:
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        [
            incremental_alter_configs.AlterConfigsResource(
                *TOPIC, [incremental_alter_configs.AlterableConfig("retention.ms", SET, "5")]
            )
        ]
    )
    assert finish(decide_incremental_alter_configs(START, request, layers())).records == ()


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        (None, APPEND, "compact", "delete,compact"),  # the value is appended to the default
        ("delete", APPEND, "compact", "delete,compact"),
        ("delete,compact", APPEND, "compact", "delete,compact"),
        ("compact", APPEND, "delete,compact", "compact,delete"),
        ("delete,compact", SUBTRACT, "delete", "compact"),
        ("delete,compact", SUBTRACT, "compact,delete", ""),
        ("delete", SUBTRACT, "compact", "delete"),
        ("delete , compact", SUBTRACT, "delete", "compact"),
    ],
)
def test_append_and_subtract_change_lists(before: str | None, operation: int, value: str, after: str) -> None:
    image = START if before is None else alter_incrementally(START, (TOPIC, [("cleanup.policy", SET, before)]))[0]
    image, codes, messages = alter_incrementally(image, (TOPIC, [("cleanup.policy", operation, value)]))
    assert codes == [0], messages
    value_after = image.configs_of(*TOPIC).get("cleanup.policy")
    assert value_after == after


def test_append_does_not_make_a_list_longer_than_its_limit() -> None:
    """Repeated items do not count."""
    name, replicas = "leader.replication.throttled.replicas", [f"{index}:1" for index in range(5_000)]
    image, codes, _ = alter_incrementally(START, (TOPIC, [(name, SET, ",".join(replicas[:4_000]))]))
    assert codes == [0]
    image, codes, _ = alter_incrementally(image, (TOPIC, [(name, APPEND, ",".join(["7:1"] * 6_000))]))
    assert codes == [0]
    assert image.configs_of(*TOPIC)[name] == ",".join(replicas[:4_000])
    _, codes, messages = alter_incrementally(image, (TOPIC, [(name, APPEND, ",".join(replicas))]))
    assert codes == [ErrorCode.INVALID_CONFIG]
    assert messages == [f"The value of {name} would be longer than 32,767 bytes."]


@given(
    st.lists(
        st.tuples(st.sampled_from([SET, DELETE, APPEND, SUBTRACT]), st.sets(st.sampled_from(["compact", "delete"])))
    )
)
def test_append_and_subtract_treat_lists_as_ordered_sets(changes: list[tuple[Operation, set[str]]]) -> None:
    image, model = START, {"delete"}
    for operation, words in changes:
        if operation is SET and not words:
            continue
        image, codes, messages = alter_incrementally(
            image, (TOPIC, [("cleanup.policy", operation, ",".join(sorted(words)))])
        )
        assert codes == [0], messages
        model = {SET: words, DELETE: {"delete"}, APPEND: model | words, SUBTRACT: model - words}[operation]
        value = image.configs_of(*TOPIC).get("cleanup.policy", "delete")
        assert {word for word in value.split(",") if word} == model
        assert len(value.split(",")) == max(1, len(model))


@pytest.mark.parametrize(
    ("change", "code", "reason"),
    [
        (
            ("retention.ms", APPEND, "5"),
            E.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (("retention.ms", SUBTRACT, "5"), E.INVALID_CONFIG, "Can't SUBTRACT"),
        (("no.such", APPEND, "5"), E.INVALID_CONFIG, "no.such"),
        (("no.such", SET, "5"), E.INVALID_CONFIG, "no.such"),
        (("retention.ms", SET, "soon"), E.INVALID_CONFIG, "soon"),
        (("retention.ms", SET, None), E.INVALID_REQUEST, "Null value"),
        (("cleanup.policy", APPEND, None), E.INVALID_REQUEST, "Null value"),
        (("cleanup.policy", APPEND, "burn"), E.INVALID_CONFIG, "burn"),
        (("retention.ms", 4, "5"), E.INVALID_REQUEST, "Unknown operation"),
        (("retention.ms", -1, "5"), E.INVALID_REQUEST, "Unknown operation"),
    ],
)
def test_a_refused_change_leaves_its_resource_unchanged_and_others_succeed(
    change: Change, code: ErrorCode, reason: str
) -> None:
    other = (ConfigResource.TOPIC, "b")
    image, codes, messages = alter_incrementally(
        START, (TOPIC, [("segment.ms", SET, "9"), change]), (other, [("segment.ms", SET, "8")])
    )
    assert codes == [code, 0]
    assert reason in (messages[0] or "")
    assert image.configs_of(*TOPIC) == START.configs_of(*TOPIC)
    assert image.configs_of(*other) == {"segment.ms": "8"}


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ((ConfigResource.TOPIC, "nowhere"), E.UNKNOWN_TOPIC_OR_PARTITION),
        ((ConfigResource.TOPIC, ""), E.UNKNOWN_TOPIC_OR_PARTITION),
        ((ConfigResource.BROKER, "77"), E.INVALID_REQUEST),
        ((ConfigResource.BROKER, "one"), E.INVALID_REQUEST),
        ((ConfigResource.BROKER, "-1"), E.INVALID_REQUEST),
        ((99, "x"), E.INVALID_REQUEST),
        ((0, ""), E.INVALID_REQUEST),
    ],
)
def test_unknown_resources_are_refused(key: tuple[int, str], code: ErrorCode) -> None:
    assert alter_incrementally(START, (key, [("retention.ms", SET, "1")]))[:2] == (START, [code])
    assert replace_all(START, (key, {"retention.ms": "1"})) == (START, [code])


def test_duplicate_resources_and_keys_are_refused() -> None:
    changes: list[Change] = [("retention.ms", SET, "1")]
    image, codes, _ = alter_incrementally(START, (TOPIC, changes), (TOPIC, changes))
    assert (image, codes) == (START, [E.INVALID_REQUEST] * 2)
    image, codes, _ = alter_incrementally(START, (TOPIC, [*changes, ("retention.ms", DELETE, None)]))
    assert (image, codes) == (START, [E.INVALID_REQUEST])


def test_validate_only_changes_nothing() -> None:
    image, codes, _ = alter_incrementally(
        START, (TOPIC, [("retention.ms", SET, "9")]), (BROKER, [("log.retention.ms", SET, "no")]), validate_only=True
    )
    assert (image, codes) == (START, [0, E.INVALID_REQUEST])
    assert replace_all(START, (TOPIC, {}), validate_only=True) == (START, [0])


# --- brokers


def test_configs_of_one_broker_and_of_all_brokers() -> None:
    image, codes, messages = alter_incrementally(
        START, (BROKER, [("log.retention.ms", SET, "8")]), (ALL_BROKERS, [("log.retention.ms", SET, "9")])
    )
    assert codes == [0, 0], messages
    broker = broker_layers(image, NODE_ID, {"log.retention.ms": "10"})
    assert (broker.dynamic, broker.dynamic_default) == ({"log.retention.ms": "8"}, {"log.retention.ms": "9"})
    assert broker_layers(image, 2, {}).dynamic == {}


def test_a_broker_config_named_like_a_view_config_creates_no_view() -> None:
    """Brokers accept unknown keys. As a config of a topic, this key names the source of a view."""
    for value in ("not an id", uuid_text(START.topics["a"].id)):
        image, codes, messages = alter_incrementally(START, (ALL_BROKERS, [("moldau.view.source.id", SET, value)]))
        assert codes == [0], messages
        assert (image.topics, image.views) == (START.topics, START.views)


def test_a_static_key_cannot_be_set_dynamically() -> None:
    image, codes, messages = alter_incrementally(START, (BROKER, [("broker.id", SET, "8")]))
    assert (image, codes) == (START, [E.INVALID_REQUEST])
    assert "Cannot update these configs dynamically" in (messages[0] or "")


def test_a_key_for_one_broker_cannot_be_set_for_all() -> None:
    _, codes, messages = alter_incrementally(START, (ALL_BROKERS, [("cordoned.log.dirs", SET, "/a")]))
    assert codes == [E.INVALID_REQUEST]
    assert "broker id must be specified" in (messages[0] or "")


def test_tls_of_a_listener_can_be_changed_for_one_broker() -> None:
    name = "listener.name.external.ssl.keystore.location"
    image, codes, _ = alter_incrementally(START, (BROKER, [(name, SET, "/x")]))
    assert (image.configs_of(*BROKER), codes) == ({name: "/x"}, [0])
    image, codes, messages = alter_incrementally(START, (ALL_BROKERS, [(name, SET, "/x")]))
    assert (image, codes) == (START, [E.INVALID_REQUEST])
    assert messages == [f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]"]


# --- AlterConfigs


def test_alter_configs_removes_configs_that_it_does_not_name() -> None:
    image, codes = replace_all(START, (TOPIC, {"segment.ms": "9"}))
    assert (codes, image.configs_of(*TOPIC)) == ([0], {"segment.ms": "9"})
    image, codes = replace_all(image, (TOPIC, {}))
    assert (codes, image.configs_of(*TOPIC)) == ([0], {})


def test_alter_configs_changes_all_configs_of_a_resource_or_none() -> None:
    assert replace_all(START, (TOPIC, {"segment.ms": "9", "no.such": "1"})) == (START, [E.INVALID_CONFIG])
    assert replace_all(START, (TOPIC, {"segment.ms": None})) == (START, [E.INVALID_REQUEST])


def test_alter_configs_writes_only_changes() -> None:
    request = alter_configs.AlterConfigsRequest(
        [alter_configs.AlterConfigsResource(*TOPIC, [alter_configs.AlterableConfig("retention.ms", "5")])]
    )
    records = finish(decide_alter_configs(START, request, layers())).records
    assert [isinstance(each, ConfigRecord) and (each.name, each.value) for each in records] == [
        ("max.message.bytes", None)
    ]
