"""Many storms, each from a seed: the quorum keeps its invariants under all faults, and recovers afterwards.

To repeat a seed that failed: `pytest tests/unit/raft/test_storms.py -k 'storm[SEED]'`.
MOLDAU_SEEDS sets the number of seeds.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from harness.depth import deep
from harness.memory_raft_log import MemoryRaftLog
from quorum_storm import run_hunt, run_storm

from moldau.raft import following, leading
from moldau.raft.core import Core
from moldau.raft.roles import Prospective, Unattached

SEEDS = int(os.environ.get("MOLDAU_SEEDS", deep(20, quick=10)))
HUNTS = SEEDS // 6
BROKEN_SEEDS = 400
"""Seeds within which a storm must detect a quorum that is broken on purpose."""
FIRST_SEEDS = {"unflushed counts": 4, "no truncation": 1, "votes twice": 24}
"""The first seeds that do."""

counts: Counter[str] = Counter()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_quorum_keeps_its_invariants_in_a_storm(seed: int) -> None:
    world = run_storm(seed)
    counts.update(world.happened)
    counts["epochs"] += len(world.truth.leaders)
    counts["committed"] += len(world.truth.values)


@pytest.mark.parametrize("seed", range(HUNTS))
def test_a_quorum_keeps_its_invariants_while_its_leaders_crash_in_a_hunt(seed: int) -> None:
    assert len(run_hunt(seed).truth.leaders) > 6, "too few leaders to test anything"


def test_the_storms_injected_enough_faults() -> None:
    """Without enough faults of each kind the tests above would prove nothing."""
    if counts["epochs"] < SEEDS:
        pytest.skip("not all storms were run")
    for what in ("crash", "pause", "cut", "leader fault", "snapshot", "AddRaftVoterRequest", "RemoveRaftVoterRequest"):
        assert counts[what] >= SEEDS // 10, counts
    assert counts["committed"] > 20 * SEEDS


# --- quorums that are broken on purpose ---------------------------------------------------------------------------


@pytest.fixture(params=FIRST_SEEDS)
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    {
        "unflushed counts": count_unflushed_records,
        "no truncation": never_truncate,
        "votes twice": vote_twice,
    }[request.param](monkeypatch)
    return str(request.param)


def count_unflushed_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        leading, "count_own_flush", lambda core, leader: _count_own(core, leader, core.log.end_offset), raising=True
    )
    real = following.fetch

    def fetch_at_once(core: Core) -> None:
        log = core.log
        assert isinstance(log, MemoryRaftLog)
        flushed, log.flushed_offset = log.flushed_offset, log.end_offset
        real(core)
        log.flushed_offset = flushed

    monkeypatch.setattr(following, "fetch", fetch_at_once)


def _count_own(core: Core, leader: object, offset: int) -> None:
    if leader.progress.on_own_flush(offset):  # type: ignore[attr-defined]
        core.commit(leader.progress.high_watermark or 0)  # type: ignore[attr-defined]


def never_truncate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader never reports a divergence, so a follower with a diverging log continues as if it had the leader's."""
    monkeypatch.setattr(leading, "compare", lambda core, offset, epoch: None)
    monkeypatch.setattr(MemoryRaftLog, "read", _read_leniently)


def _read_leniently(log: MemoryRaftLog, offset: int, max_bytes: int) -> bytes | None:
    return b"".join(
        batch for header, batch in zip(log.headers, log.content, strict=True) if header.base_offset >= offset
    )


def vote_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    for role in (Unattached, Prospective):
        monkeypatch.setattr(role, "may_grant", lambda self, candidate, is_up_to_date, is_pre_vote: is_up_to_date)


def test_a_quorum_broken_on_purpose_is_detected(broken: str) -> None:
    for seed in range(FIRST_SEEDS[broken], BROKEN_SEEDS):
        try:
            run_storm(seed)
        except AssertionError:
            return
    pytest.fail(f"{broken}: not detected in {BROKEN_SEEDS} storms")
