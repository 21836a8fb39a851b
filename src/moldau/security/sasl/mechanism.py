"""A SASL mechanism on the server's side: it answers the client's tokens until it knows the user, or refuses."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from moldau.security.scram_credentials import ScramMechanism

PLAIN: Final = "PLAIN"
SCRAM_MECHANISMS: Final = {str(each): each for each in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)}
SUPPORTED_MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)


class SaslRefusal(Exception):
    """The client is not authenticated. `message` is for the client; None stands for a text that reveals nothing."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or "invalid credentials")
        self.message = message


class Step(NamedTuple):
    """The server's token, and the user once the client has proved to be that user."""

    token: bytes
    user: str | None = None
    by_token: bool = False
    """Whether a delegation token was the proof."""
    lifetime_ms: int | None = None
    """How long the proof is valid; None if it has no end."""


class ServerMechanism(Protocol):
    def respond(self, token: bytes) -> Step:
        """Answer a token of the client. Raise SaslRefusal, and nothing else, whatever the token is."""
