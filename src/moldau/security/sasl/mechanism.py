"""A SASL mechanism on the server's side: it answers the client's tokens until it knows the user, or refuses."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from moldau.base.promise import Promise
from moldau.security.scram_credentials import ScramMechanism

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM_MECHANISMS: Final = {str(each): each for each in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)}
SUPPORTED_MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)


class SaslRefusal(Exception):
    """The client is not authenticated. `message` is for the client; None stands for a text that reveals nothing.
    `reason` is for the log; None means that the message says everything."""

    def __init__(self, message: str | None = None, reason: str | None = None) -> None:
        super().__init__(reason or message or "invalid credentials")
        self.message = message
        self.reason = reason


class Step(NamedTuple):
    """The server's token, and the user once the client has proved to be that user."""

    token: bytes
    user: str | None = None
    by_token: bool = False
    """Whether a delegation token was the proof."""
    lifetime_ms: int | None = None
    """How long the client's credentials are valid from now on; None: without end."""
    problem: str = ""
    """Why the token tells the client that it will be refused, for the log."""


class ServerMechanism(Protocol):
    @property
    def user_tried(self) -> str:
        """As whom the client wants to log in, by its own words; empty if it has not said so. For the audit log."""

    def respond(self, token: bytes) -> Step | Promise[Step | SaslRefusal]:
        """Answer a token of the client, at once or later. Raise SaslRefusal, and nothing else, whatever the token
        is."""
