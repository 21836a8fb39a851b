"""Everybody who begins long work has a test in which each of its steps fails: a new user is added here with its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import test_faults_of_later_turns as faults
import test_log_cleaner as cleaner

import moldau

SOURCE: Final = Path(moldau.__file__).parent
RUNNER: Final = {"base/long_work.py begin", "runtime/own_work.py OwnWork.long_work"}
"""The runner itself: its callers are the users."""
BEGINNERS: Final = frozenset({"LongWork", "_MeasuredWork", "long_work", "begin"})
USERS: Final[dict[str, list[object]]] = {
    "replica/waiting.py _ParkedFetch._begin_collecting": [
        faults.test_an_error_in_any_turn_of_a_waiting_fetch_closes_the_connection
    ],
    "runtime/broker/chunked_layout.py ChunkedLayout._schedule": ["layout"],
    "runtime/broker/leader_lease.py LeaderLease._check": ["lease"],
    "runtime/cleaning/cleaner.py LogCleaner._run": [
        "cleaner",
        cleaner.test_a_fault_in_any_step_of_a_cleaning_stops_the_node,
    ],
    "runtime/controller/active.py Controller._submit": [
        "decision",
        faults.test_an_error_in_any_step_of_a_decision_is_answered,
    ],
    "runtime/coordinators/shard.py Shard.load": ["loading of a coordinator"],
    "runtime/coordinators/shards.py Shards.run": ["new topics"],
    "runtime/coordinators/shards.py Shards.submit_in_turns": ["offsets of groups", "transactional ids"],
    "runtime/housekeeping.py Housekeeping._run": ["retention", "flush", "producers", "checkpoints", "purge"],
    "runtime/quorum/committed_metadata.py CommittedMetadata.committed": ["committed metadata"],
    "runtime/replication/fetcher.py ReplicaFetcher._handle_in_turns": ["fetched records", "offsets of a leader"],
    "runtime/replication/isr_changes.py IsrChanges.look_for_laggards": [
        faults.test_an_error_in_a_later_turn_of_the_check_for_laggards_stops_the_node
    ],
    "runtime/coordinators/share_group_offsets.py ShareGroupOffsets._summaries": ["offsets of a share group"],
    "runtime/coordinators/share_group_states.py ShareGroupStates._for_each": ["states of a share group"],
    "runtime/share/dead_letters.py DeadLetters.write": ["dead letters"],
    "runtime/share/fetches.py WaitingFetch._try": [
        faults.test_an_error_in_any_step_of_a_share_fetch_closes_its_connection
    ],
    "runtime/share/partitions.py SharePartitions._find_start": ["start of a share group"],
    "server/handlers/replies.py run_steps": [faults.test_an_error_in_any_later_step_of_a_request_closes_the_connection],
}
"""Each with its tests, or with what `OWN_WORK` begins for it."""


def beginnings(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    """Yield the functions and methods that call one of `BEGINNERS`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from beginnings(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
            if any(
                (isinstance(call, ast.Name) and call.id in BEGINNERS)
                or (isinstance(call, ast.Attribute) and call.attr == "long_work")
                for call in calls
            ):
                yield prefix + node.name


def test_every_user_of_long_work_has_a_test_of_its_faults() -> None:
    found = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if "long_work" in text or "LongWork" in text:
            name = path.relative_to(SOURCE).as_posix()
            found |= {f"{name} {function}" for function in beginnings(ast.parse(text))}
    assert found - RUNNER == set(USERS), "write a test that fails in each step of the new user, and name it in USERS"


@pytest.mark.parametrize("user", USERS)
def test_what_is_named_exists(user: str) -> None:
    assert USERS[user]
    assert {each for each in USERS[user] if isinstance(each, str)} <= set(faults.OWN_WORK)
