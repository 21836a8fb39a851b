"""Host names and addresses: which ones are this machine, and which name it advertises."""

from __future__ import annotations

import socket

import pytest

from moldau.platforms import addresses
from moldau.platforms.addresses import bind_address, is_own_host, own_host


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


@pytest.mark.parametrize(
    ("found", "family", "host"),
    [
        (["::1"], socket.AF_INET6, "::1"),
        (["::1", "127.0.0.9"], socket.AF_INET, "127.0.0.9"),
        (["127.0.0.9", "::1"], socket.AF_INET, "127.0.0.9"),
    ],
)
def test_a_name_is_bound_to_its_ipv4_address_or_else_to_its_ipv6_address(
    monkeypatch: pytest.MonkeyPatch, found: list[str], family: socket.AddressFamily, host: str
) -> None:
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda _, port, **kind: [each for ip in found for each in resolve(ip, port, **kind)]
    )
    chosen, address = bind_address("broker.test", 9092)
    assert (chosen, address[:2]) == (family, (host, 9092))


def test_addresses_are_bound_as_they_are() -> None:
    assert bind_address("", 9092) == (socket.AF_INET, ("", 9092))
    assert bind_address("0.0.0.0", 9092) == (socket.AF_INET, ("0.0.0.0", 9092))
    assert bind_address("::", 9092)[0] == socket.AF_INET6
    for host in ("nowhere.invalid", "a..b", "a" * 64):
        with pytest.raises(OSError):
            bind_address(host, 9092)
