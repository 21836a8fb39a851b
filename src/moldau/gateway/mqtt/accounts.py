"""Who logs in: what the MQTT front needs to know users by."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from moldau.gateway.ports import Account


class Login(NamedTuple):
    """What a client shows of itself."""

    user: str | None
    """None: the CONNECT has no user name."""
    password: bytes | None
    certificate: bytes | None = None
    """The client's certificate in DER, which the TLS context has verified."""


class Accounts(Protocol):
    async def account(self, login: Login) -> Account:
        """Return the account of a client, the same object for the same user and password while it is in use: readers of
        a topic are shared by account. Without user and certificate it is the anonymous one, if that is allowed.

        KafkaError SASL_AUTHENTICATION_FAILED: nobody, or a wrong password. CLUSTER_AUTHORIZATION_FAILED: the user may
        not use the gateway. Others: it cannot be found out now. The front calls `log_in` of the account itself.
        """
        ...
