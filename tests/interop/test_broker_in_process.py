"""`moldau.testing.broker()` as another test suite uses it: settings as values, and errors for mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S

from moldau.settings import SettingsError
from moldau.testing import TestBroker, broker

pytestmark = pytest.mark.moldau_only


def test_settings_may_be_numbers_and_booleans() -> None:
    with broker(num_partitions=3, auto_create_topics_enable=False) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic("orders")])["orders"].result(PATIENCE_S)
        known = admin.list_topics(timeout=PATIENCE_S).topics
        assert len(known["orders"].partitions) == 3
        assert admin.list_topics("missing", timeout=PATIENCE_S).topics["missing"].error is not None


def test_a_misspelt_setting_is_reported(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"unknown setting num\.partition is ignored; did you mean num\.partitions"):
        TestBroker(tmp_path, {"num.partition": 3})


def test_a_wrong_value_is_rejected_before_the_broker_starts(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"Invalid value none for configuration num\.partitions"):
        TestBroker(tmp_path, {"num.partitions": "none"})
