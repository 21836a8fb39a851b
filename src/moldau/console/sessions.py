"""Sessions of browsers: random ids in a cookie, a token against forged requests, and who has logged in.

Only logins are stored, in memory. A browser that has not logged in has an id and a token that follows from it, so that
no number of visitors costs memory. Time and random numbers are arguments. Not thread-safe: the event loop owns it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from moldau.web.failures import too_many

T = TypeVar("T")

IDLE_SECONDS: Final = 1800.0
SESSIONS_MAX: Final = 64
ID_LENGTH_MAX: Final = 128


@dataclass(slots=True)
class Login(Generic[T]):
    user: str
    access: T
    """Their connections to the cluster."""
    last_used: float


class Sessions(Generic[T]):
    def __init__(
        self,
        secret: bytes,
        new_id: Callable[[], str],
        clock: Callable[[], float],
        on_end: Callable[[T], None] = lambda access: None,
    ) -> None:
        self._secret, self._new_id, self._clock, self._on_end = secret, new_id, clock, on_end
        self._logins: dict[str, Login[T]] = {}

    def new_id(self) -> str:
        return self._new_id()

    def token(self, session_id: str) -> str:
        return hmac.new(self._secret, session_id.encode(), hashlib.sha256).hexdigest()

    def has_token(self, session_id: str | None, token: str | None) -> bool:
        if not session_id or token is None or len(session_id) > ID_LENGTH_MAX:
            return False
        return hmac.compare_digest(self.token(session_id).encode(), token.encode())

    def login(self, session_id: str | None) -> Login[T] | None:
        """Return who this session is, and note that it is in use."""
        self.end_idle()
        login = None if session_id is None else self._logins.get(session_id)
        if login is not None:
            login.last_used = self._clock()
        return login

    def check_room(self) -> None:
        self.end_idle()
        if len(self._logins) >= SESSIONS_MAX:
            raise too_many(f"{SESSIONS_MAX} sessions are open, which is the most; try again when one has ended")

    def add(self, user: str, access: T) -> str:
        """Begin a session of a user, with an id that nobody had before: an id that was planted is worth nothing."""
        self.check_room()
        session_id = self._new_id()
        self._logins[session_id] = Login(user, access, self._clock())
        return session_id

    def end(self, session_id: str | None) -> None:
        login = None if session_id is None else self._logins.pop(session_id, None)
        if login is not None:
            self._on_end(login.access)

    def end_idle(self) -> None:
        now = self._clock()
        for session_id in [each for each, login in self._logins.items() if now - login.last_used > IDLE_SECONDS]:
            self.end(session_id)

    def end_all(self) -> None:
        for session_id in list(self._logins):
            self.end(session_id)

    def __len__(self) -> int:
        return len(self._logins)
