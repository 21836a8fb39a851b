"""Names of hosts: which a `Host` header may have."""

from __future__ import annotations

import pytest

from moldau.base.errors import UnusableProperty
from moldau.web.hosts import allowed_hosts, allowed_origins, is_allowed_host, is_loopback

NAMES = frozenset({"console.example.com", "other.example.com"})


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("localhost:8080", True),
        ("LOCALHOST", True),
        ("localhost.", True),
        ("127.0.0.1:8080", True),
        ("192.168.1.7", True),
        ("[::1]:8080", True),
        ("console.example.com:443", True),
        ("other.example.com", True),
        ("evil.example.com", False),
        ("localhost.evil.com:8080", False),
        ("localhost:8080.evil.com", False),
        ("127.0.0.1.evil.com", False),
        ("evil.com:80@localhost", False),
        ("[::1", False),
        ("::1", False),
        ("", False),
        (":8080", False),
    ],
)
def test_only_allowed_hosts_are_accepted(header: str, allowed: bool) -> None:
    assert is_allowed_host(header, NAMES) is allowed


@pytest.mark.parametrize("name", ["Proxy.example.com", "proxy.example.com:8080", "proxy.example.com."])
def test_an_allowed_host_may_have_a_port_and_a_final_dot(name: str) -> None:
    assert is_allowed_host("proxy.example.com:443", allowed_hosts([name]))


@pytest.mark.parametrize("name", ["", "http://proxy.example.com", "proxy:x"])
def test_an_allowed_host_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(UnusableProperty, match=rf"^{name}: expected NAME"):
        allowed_hosts([name])


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.9", True), ("::1", True), ("0.0.0.0", False), ("example.com", False)],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("https://App.example.com/", "https://app.example.com"),
        ("https://app.example.com:443", "https://app.example.com"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("http://localhost:80", "http://localhost"),
        ("capacitor://localhost", "capacitor://localhost"),
    ],
)
def test_origins_are_as_browsers_send_them(name: str, origin: str) -> None:
    assert allowed_origins([name]) == {origin}


@pytest.mark.parametrize(
    "name", ["app.example.com", "*", "null", "", "https://", "https://a/b", "https://*.example.com"]
)
def test_what_no_browser_sends_as_origin_is_refused(name: str) -> None:
    with pytest.raises(UnusableProperty, match="expected https://NAME"):
        allowed_origins([name])
