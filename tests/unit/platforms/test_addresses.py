"""Host names and addresses: which ones are this machine, and which name it advertises."""

from __future__ import annotations

import socket

import pytest

from moldau.platforms import addresses
from moldau.platforms.addresses import is_own_host, own_host


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3"])
def test_the_loopback_is_this_machine(host: str) -> None:
    assert is_own_host(host)


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid", "broker..local", "a" * 64])
def test_other_hosts_are_not_this_machine(host: str) -> None:
    assert not is_own_host(host)


@pytest.mark.parametrize("name", ["nowhere.invalid", "a" * 64, "broker..local"])
def test_a_name_that_cannot_be_resolved_is_not_advertised(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert own_host() == addresses.FALLBACK_HOST
