"""Makes a delegation token with which programs on other machines log in instead of with a user's password: Spark's
driver does so for its executors.

A token is not renewed: when half of its life is over, another one takes its place, and the old one expires by itself. A
process first looks for a token that an earlier one made: DescribeDelegationToken returns a user's own tokens.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Mapping
from contextlib import closing
from typing import Final

from moldau.base.errors import ErrorCode
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.delegation_tokens import DelegationTokens, TokenWithHmac
from moldau.client.cluster import RETRIABLE, Cluster
from moldau.client.properties import security
from moldau.security.delegation_tokens import DelegationToken
from moldau.security.principals import Principal
from moldau.security.sasl.jaas import SCRAM_MODULE
from moldau.security.sasl.mechanism import OAUTHBEARER

LOGIN: Final = "sasl."
"""The beginning of all client properties of a user's login, Java's and librdkafka's."""
TIMEOUT_MS: Final = 30_000
NEW_MS: Final = 10_000
"""A token of this age may not be known to all brokers yet."""
DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"
"""The mechanism for a token if the user's own login is not SCRAM; Spark's own connector has the same default."""


def has_password(properties: Mapping[str, str]) -> bool:
    """Return whether the user logs in with a name and a password, and so can make tokens."""
    login = security(properties).login
    return login is not None and login.mechanism != OAUTHBEARER and not login.by_token


def without_login(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if not name.startswith(LOGIN)}


def with_token(properties: Mapping[str, str], token: TokenWithHmac) -> dict[str, str]:
    """Return the properties with a token instead of the user's login. TLS stays as it is."""
    login = security(properties).login
    assert login is not None, "only a user with a password has tokens"
    hmac = b64encode(token.hmac).decode()
    return {
        **without_login(properties),
        "sasl.mechanism": login.mechanism if login.mechanism.startswith("SCRAM") else DEFAULT_MECHANISM,
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="{token.token.id}" password="{hmac}" tokenauth="true";',
    }


def is_fresh(token: DelegationToken, now_ms: int) -> bool:
    """Return whether more than half of the token's life is left."""
    return token.lifetime_ms(now_ms) > token.lifetime_ms(token.issued_ms) / 2


def is_own(token: DelegationToken, user: Principal) -> bool:
    """Return whether the user made the token for itself, and for nobody else to renew."""
    return token.owner == token.requester == user and not token.renewers


def fresh_token(bootstrap: str, properties: Mapping[str, str]) -> TokenWithHmac:
    """Return a token of the user that all brokers know: one that exists, or a new one."""
    login = security(properties).login
    assert login is not None, "only a user with a password has tokens"
    user = Principal("User", login.user)
    with ClusterAdmin(Cluster(bootstrap, properties), TIMEOUT_MS) as admin:
        tokens = DelegationTokens(admin)
        own = [each for each in tokens.describe([user]) if is_own(each.token, user)]
        fresh = [each for each in own if is_fresh(each.token, now_ms())]
        token = max(fresh, key=lambda each: each.token.expires_ms) if fresh else tokens.create()
    if not fresh or now_ms() - token.token.issued_ms < NEW_MS:
        _wait_until_known(bootstrap, with_token(properties, token))
    return token


def _wait_until_known(bootstrap: str, properties: Mapping[str, str]) -> None:
    """Log in on every broker with the token: a broker learns of it a little after the controller."""
    retriable = RETRIABLE | {ErrorCode.SASL_AUTHENTICATION_FAILED}
    with closing(Cluster(bootstrap, properties)) as cluster:

        def log_in() -> None:
            for node in list(cluster.nodes()):
                cluster.channel(node)

        cluster.retry(log_in, TIMEOUT_MS, retriable)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
