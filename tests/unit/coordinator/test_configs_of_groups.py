"""What holds for a group: its own configs within the bounds of the broker, or those of the broker."""

from __future__ import annotations

from moldau.coordinator.group.configs import GroupConfigs, MemberTimes, may_assign
from moldau.metadata.apply import apply
from moldau.metadata.current import CurrentImage
from moldau.metadata.records import ConfigResource
from moldau.share.limits import ShareLimits
from moldau.wire.log_records.metadata import ConfigRecord

ALL_BROKERS = ""


def set_config(current: CurrentImage, kind: int, name: str, key: str, value: str | None) -> None:
    image = current.image
    current.publish(*apply(image, [ConfigRecord(kind, name, key, value)], image.offset + 1, 1))


def test_without_configs_the_defaults_hold() -> None:
    configs = GroupConfigs(CurrentImage())
    assert configs.share_limits_of("g") == ShareLimits()
    assert configs.times_of("g") == configs.share_times_of("g") == MemberTimes(45_000, 5_000, 0)


def test_a_group_has_its_own_configs() -> None:
    current = CurrentImage()
    configs = GroupConfigs(current, 1, {"group.share.delivery.count.limit": "7"})
    assert configs.share_limits_of("g").delivery_count_limit == 7
    for key, value in (
        ("share.record.lock.duration.ms", "20000"),
        ("share.delivery.count.limit", "9"),
        ("share.partition.max.record.locks", "200"),
        ("share.auto.offset.reset", "by_duration:PT1H"),
        ("share.isolation.level", "read_committed"),
        ("share.renew.acknowledge.enable", "false"),
        ("share.session.timeout.ms", "50000"),
    ):
        set_config(current, ConfigResource.GROUP, "g", key, value)
    assert configs.share_limits_of("g") == ShareLimits(20_000, 9, 200, "by_duration:PT1H", True, False)
    assert configs.share_times_of("g").session_timeout_ms == 50_000
    assert configs.share_limits_of("other") == ShareLimits(delivery_count_limit=7)
    assert configs.times_of("g").session_timeout_ms == 45_000


def test_a_config_out_of_the_bounds_of_the_broker_counts_as_far_as_they_allow_it() -> None:
    current = CurrentImage()
    bounds = {"group.share.max.delivery.count.limit": "6", "group.share.min.record.lock.duration.ms": "25000"}
    set_config(current, ConfigResource.GROUP, "g", "share.delivery.count.limit", "9")
    set_config(current, ConfigResource.GROUP, "g", "share.record.lock.duration.ms", "15000")
    limits = GroupConfigs(current, 1, bounds).share_limits_of("g")
    assert (limits.delivery_count_limit, limits.record_lock_duration_ms) == (6, 25_000)


def test_the_assignment_interval_of_the_brokers_can_change() -> None:
    current = CurrentImage()
    configs = GroupConfigs(current, 1, {"group.share.assignment.interval.ms": "100"})
    assert configs.share_times_of("g").assignment_interval_ms == 100
    set_config(current, ConfigResource.BROKER, ALL_BROKERS, "group.share.assignment.interval.ms", "0")
    assert configs.share_times_of("g").assignment_interval_ms == 0
    set_config(current, ConfigResource.BROKER, "1", "group.share.assignment.interval.ms", "300")
    assert configs.share_times_of("g").assignment_interval_ms == 300


def test_assignments_are_some_time_apart() -> None:
    times = MemberTimes(45_000, 5_000, 1_000)
    assert may_assign(0, times, 10**12), "there was none"
    assert not may_assign(5_000, times, 5_000)
    assert not may_assign(5_000, times, 5_999)
    assert may_assign(5_000, times, 6_000)
    assert may_assign(5_000, times, 4_999), "the clock went back"
    assert may_assign(5_000, MemberTimes(45_000, 5_000, 0), 5_000)
