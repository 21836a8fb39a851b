"""How long a delegation token is used for a device."""

from __future__ import annotations

import pytest

from moldau.client.admin.delegation_tokens import TokenWithHmac
from moldau.gateway.kafka import device_tokens
from moldau.security.delegation_tokens import DelegationToken
from moldau.security.principals import Principal


def test_a_token_is_fresh_for_half_of_its_life_if_it_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 1_000
    monkeypatch.setattr(device_tokens, "_now_ms", lambda: now_ms)
    pump, gate = Principal("User", "pump"), Principal("User", "gate")
    made = TokenWithHmac(DelegationToken("id", pump, gate, (gate,), 1_000, 8_000, 2_000), b"hmac")
    token = device_tokens._device_token("pump", made)
    assert token.login.by_token
    assert (token.renew_at_ms, token.is_fresh) == (1_500, True)
    now_ms = 2_000
    assert not token.is_fresh
    token.renewed(5_000)
    assert (token.renew_at_ms, token.is_fresh) == (3_500, True)
    now_ms = 4_499
    assert token.is_fresh
    now_ms = 4_500
    assert not token.is_fresh
