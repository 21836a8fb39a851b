"""Counting votes, and the random delays that keep candidates from colliding."""

from __future__ import annotations

from random import Random

from moldau.raft.member import RaftSettings
from moldau.raft.voters import VoterSet


class Tally:
    """The votes of one election. A voter's later vote replaces its earlier one."""

    __slots__ = ("_votes", "unreachable", "voters")

    def __init__(self, voters: VoterSet, own_id: int) -> None:
        self.voters = voters
        self.unreachable: set[int] = set()
        """Voters to which the request could not be sent."""
        self._votes: dict[int, bool] = {}
        self.record(own_id, True)

    def record(self, voter_id: int, is_granted: bool) -> None:
        if self.voters.get(voter_id) is not None:
            self._votes[voter_id] = is_granted

    @property
    def granting(self) -> list[int]:
        return sorted(voter_id for voter_id, is_granted in self._votes.items() if is_granted)

    @property
    def is_won(self) -> bool:
        return len(self.granting) >= self._majority

    @property
    def is_lost(self) -> bool:
        """Whether there is no majority even if all voters without an answer granted their vote."""
        return len(self.granting) + len(self.silent) < self._majority

    @property
    def is_hopeless(self) -> bool:
        """Whether there is no majority unless an unreachable voter comes back."""
        return len(self.granting) + len(set(self.silent) - self.unreachable) < self._majority

    @property
    def silent(self) -> list[int]:
        return [voter_id for voter_id in self.voters.ids if voter_id not in self._votes]

    @property
    def refusing(self) -> list[int]:
        return [voter_id for voter_id, is_granted in self._votes.items() if not is_granted]

    @property
    def _majority(self) -> int:
        return len(self.voters) // 2 + 1


def election_timeout_ms(settings: RaftSettings, rng: Random) -> int:
    """Return a random time between one and two election timeouts, so that nodes do not time out together."""
    return settings.election_timeout_ms + rng.randrange(max(1, settings.election_timeout_ms))


def lost_election_backoff_ms(settings: RaftSettings, rng: Random, losses: int) -> int:
    """Return a random backoff below a bound that doubles with each election lost in a row."""
    bound = min(settings.election_backoff_max_ms, settings.retry_backoff_ms << min(losses, 16))
    return rng.randint(1, max(1, bound))


def successor_delay_ms(settings: RaftSettings, position: int, successor_count: int) -> int:
    """Return how long a follower waits after its leader resigned: the first preferred successor not at all, each later
    one twice as long as the one before, all others `election_backoff_max_ms`."""
    if position == 0:
        return 0
    if not 0 < position < successor_count:
        return settings.election_backoff_max_ms
    base_ms = settings.election_backoff_max_ms >> (successor_count - 1)
    return min(settings.election_backoff_max_ms, base_ms << (position - 1))
