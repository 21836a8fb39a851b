"""Feature levels: all nodes must support the levels of the cluster."""

from __future__ import annotations

import pytest
from harness.controlled_cluster import ControlledCluster

from moldau.base.errors import ErrorCode as E
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.features import decide_bootstrap, decide_update_features
from moldau.wire.log_records.metadata import ControllerFeature, FeatureLevelRecord, RegisterControllerRecord
from moldau.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

UPGRADE, SAFE, UNSAFE = 1, 2, 3


def update(
    cluster: ControlledCluster, *updates: FeatureUpdateKey, validate_only: bool = False
) -> UpdateFeaturesResponse:
    return cluster.do(decide_update_features(cluster.image, UpdateFeaturesRequest(1000, updates, validate_only)))


def test_a_feature_is_switched_off_and_on_again() -> None:
    cluster = ControlledCluster([1])
    assert update(cluster, FeatureUpdateKey("group.version", 0, SAFE)).error_code == 0
    assert cluster.image.features == {"metadata.version": 30, "transaction.version": 2, "share.version": 2}
    assert decide_bootstrap(cluster.image).records == (), "a feature that was switched off stays off"
    assert update(cluster, FeatureUpdateKey("group.version", 1, UPGRADE)).error_code == 0
    others = {"metadata.version": 30, "transaction.version": 2, "share.version": 2}
    assert cluster.image.features == {**others, "group.version": 1}
    response = update(cluster, FeatureUpdateKey("group.version", 1, UPGRADE))
    assert ([each.feature for each in response.results], cluster.records) == (["group.version"], ())


def test_validate_only_changes_nothing() -> None:
    cluster = ControlledCluster([1])
    assert update(cluster, FeatureUpdateKey("group.version", 0, SAFE), validate_only=True).error_code == 0
    assert cluster.image.features["group.version"] == 1


def test_version_0_of_the_request_allows_a_downgrade_by_its_own_field() -> None:
    cluster = ControlledCluster([1])
    assert update(cluster, FeatureUpdateKey("group.version", 0, allow_downgrade=True)).error_code == 0
    assert "group.version" not in cluster.image.features


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (FeatureUpdateKey("group.version", 0, UPGRADE), "without setting the upgrade type"),
        (FeatureUpdateKey("group.version", 2, UPGRADE), "Local controller only supports versions 0-1"),
        (FeatureUpdateKey("metadata.version", 31, UPGRADE), "Local controller only supports versions 30-30"),
        (FeatureUpdateKey("metadata.version", 29, SAFE), "Local controller only supports versions 30-30"),
        (FeatureUpdateKey("no.version", 1, UPGRADE), "Local controller does not support this feature."),
        (FeatureUpdateKey("group.version", -1, SAFE), "less than 0"),
        (FeatureUpdateKey("group.version", 1, 0), "upgrade type"),
    ],
)
def test_one_invalid_update_fails_the_whole_request(refused: FeatureUpdateKey, reason: str) -> None:
    cluster = ControlledCluster([1])
    response = update(cluster, FeatureUpdateKey("metadata.version", 30, UPGRADE), refused)
    assert response.error_code == E.INVALID_UPDATE_VERSION
    assert reason in (response.error_message or "")
    assert (response.results, cluster.records) == ((), ())


def test_a_downgrade_to_a_newer_level_is_refused() -> None:
    cluster = ControlledCluster([1])
    update(cluster, FeatureUpdateKey("group.version", 0, UNSAFE))
    response = update(cluster, FeatureUpdateKey("group.version", 1, SAFE))
    assert "Can't downgrade to a newer version" in (response.error_message or "")


def test_every_broker_and_controller_must_support_the_new_level() -> None:
    cluster = ControlledCluster([1])
    update(cluster, FeatureUpdateKey("group.version", 0, SAFE))
    others = {"metadata.version": (30, 30), "transaction.version": (0, 2), "share.version": (0, 2)}
    cluster.register(2, features=others)
    refused = update(cluster, FeatureUpdateKey("group.version", 1, UPGRADE))
    assert "Broker 2 does not support this feature" in (refused.error_message or "")
    cluster.unregister(2)
    features = [ControllerFeature("group.version", 0, 0)]
    cluster.do(
        Decision(None, (RegisterControllerRecord(controller_id=7, incarnation_id=b"i" * 16, features=features),))
    )
    refused = update(cluster, FeatureUpdateKey("group.version", 1, UPGRADE))
    assert "Controller 7 does not support this feature" in (refused.error_message or "")


def test_the_log_of_an_older_release_gets_the_newer_features() -> None:
    cluster = ControlledCluster()
    older = ControlledCluster()
    older.image = type(older.image)(features={"metadata.version": 30})
    records = decide_bootstrap(older.image).records
    assert [(each.name, each.feature_level) for each in records if isinstance(each, FeatureLevelRecord)] == [
        ("group.version", 1),
        ("transaction.version", 2),
        ("share.version", 2),
    ]
    assert decide_bootstrap(cluster.image).records == ()


@pytest.mark.parametrize("is_broker", [True, False])
@pytest.mark.parametrize(
    ("supported", "level"),
    [((0, 2), 2), ((0, 3), 2), ((0, 1), 1), ((0, 0), None), (None, None)],
    ids=["the same", "more", "less", "only 0", "not known"],
)
def test_a_newer_feature_gets_the_level_that_all_nodes_support(
    is_broker: bool, supported: tuple[int, int] | None, level: int | None
) -> None:
    """During a rolling upgrade the first new controller meets nodes of the older release."""
    cluster = ControlledCluster()
    cluster.image = type(cluster.image)(features={"metadata.version": 30, "group.version": 1})
    if is_broker:
        known = {} if supported is None else {"transaction.version": supported}
        cluster.register(2, features={"metadata.version": (30, 30), "group.version": (0, 1), **known})
    else:
        features = [] if supported is None else [ControllerFeature("transaction.version", *supported)]
        record = RegisterControllerRecord(controller_id=7, incarnation_id=b"i" * 16, features=features)
        cluster.do(Decision(None, (record,)))
    expected = () if level is None else (FeatureLevelRecord("transaction.version", level),)
    assert decide_bootstrap(cluster.image).records == expected
