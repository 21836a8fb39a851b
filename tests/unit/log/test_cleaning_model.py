"""Random writes to a compacted log and cleanings of it, compared with a dict of the last values."""

from __future__ import annotations

import pytest
from harness.cleaning_histories import RETENTION_MS, History
from harness.depth import deep


@pytest.mark.parametrize("seed", range(deep(2, quick=5)))
def test_the_last_value_of_every_key_survives(seed: int) -> None:
    history = History(seed)
    rounds = 0
    for _ in range(8):
        history.write(history.rng.randint(3, 25))
        if history.rng.random() < 0.3:
            history.log.roll(history.now_ms)
        cleaned = history.clean(io_buffer_bytes=1 << history.rng.choice((1, 17)))
        if cleaned is not None:
            rounds += 1
            history.check_clean(cleaned)
        history.check()
        history.now_ms += history.rng.choice((0, RETENTION_MS // 2, RETENTION_MS))
    assert rounds


@pytest.mark.parametrize("seed", range(deep(1, quick=2)))
def test_a_small_map_takes_several_rounds(seed: int) -> None:
    history = History(f"small {seed}")
    history.write(80)
    history.log.roll(history.now_ms)
    reached = []
    for _ in range(100):
        cleaned = history.clean(map_bytes_max=14_500)
        assert cleaned is not None
        history.check_clean(cleaned)
        history.check()
        reached.append(cleaned.cleaned_up_to)
        if cleaned.cleaned_up_to == history.cleanable_up_to():
            break
    assert len(reached) > 1
    assert reached == sorted(set(reached)), "every cleaning gets further"
    assert reached[-1] == history.cleanable_up_to()


@pytest.mark.parametrize("seed", range(deep(1, quick=3)))
def test_producer_state_survives_cleanings_and_restarts(seed: int) -> None:
    history = History(f"producers {seed}")
    for _ in range(4):
        history.write(25)
        history.clean()
        history.now_ms += RETENTION_MS
        history.check()
        before = history.producers()
        history.reopen(without_snapshots=True)
        assert history.producers() == before
        history.reopen()
        assert history.producers() == before
        history.check()
