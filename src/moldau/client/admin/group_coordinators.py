"""The coordinators of groups: which node has which group, and requests to them that are tried again.

Requests to a coordinator that is loading or has moved are retried until the timeout. groups.py and share_groups.py send
their requests by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.admin.group_values import Node
from moldau.client.cluster import GROUP, Cluster

T = TypeVar("T")
AskCoordinator = Callable[[Node, Sequence[str]], Mapping[str, T | KafkaError]]
"""Asks a coordinator for some of its groups; returns what each has, or its error."""

TRANSIENT: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
GROUPS_PER_REQUEST_MAX: Final = 500


class NotAnswered(KafkaError):
    """The error of a group whose coordinator is not known, or does not answer for it yet."""


class GroupCoordinators:
    """Each part of a call that is sent by itself (500 groups, or one) is repeated until `timeout_ms` has passed."""

    def __init__(self, cluster: Cluster, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    def of(self, group_id: str) -> Node:
        by_node, errors = self._by_node([group_id])
        if errors:
            raise errors[group_id]
        (coordinator,) = by_node
        return coordinator

    def each(self, group_ids: Iterable[str], ask: AskCoordinator[T]) -> dict[str, T | KafkaError]:
        """Return what each group has, or its error. Groups with a temporary error are asked again until the timeout."""
        results: dict[str, T | KafkaError] = {}
        for chunk in _chunks(list(dict.fromkeys(group_ids))):
            with suppress(NotAnswered):  # it is among the results
                self.retry(partial(self._ask_pending, ask, chunk, results))
        return results

    def retry(self, action: Callable[[], T]) -> T:
        return self._cluster.retry(action, self._timeout_ms, TRANSIENT)

    def _ask_pending(self, ask: AskCoordinator[T], ids: Sequence[str], results: dict[str, T | KafkaError]) -> None:
        pending = [each for each in ids if each not in results or _is_temporary(results[each])]
        by_node, errors = self._by_node(pending)
        answers: dict[str, T | KafkaError] = {**errors}
        for coordinator, groups in by_node.items():
            answers |= ask(coordinator, groups)
        results |= answers
        for each in pending:
            result = results.get(each)
            if isinstance(result, NotAnswered) and _is_temporary(result):
                raise result

    def _by_node(self, group_ids: Sequence[str]) -> tuple[dict[Node, list[str]], dict[str, KafkaError]]:
        """Return the ids by coordinator, and the errors of those that have none now."""
        by_node: dict[Node, list[str]] = {}
        errors: dict[str, KafkaError] = {}
        for each in self._cluster.coordinators(GROUP, group_ids):
            if each.error_code:
                errors[each.key] = NotAnswered(ErrorCode(each.error_code), each.error_message)
            else:
                by_node.setdefault(Node(each.node_id, each.host, each.port), []).append(each.key)
        return by_node, errors


def group_error(error_code: int, message: str | None = None) -> KafkaError:
    code = ErrorCode(error_code)
    return NotAnswered(code, message) if code in TRANSIENT else KafkaError(code, message)


def final_code(error_code: int) -> ErrorCode:
    """Return the code if it is final; raise a temporary error, so that the request is retried."""
    code = ErrorCode(error_code)
    if code in TRANSIENT:
        raise KafkaError(code)
    return code


def _is_temporary(result: object) -> bool:
    return isinstance(result, NotAnswered) and result.code in TRANSIENT


def _chunks(group_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(group_ids), GROUPS_PER_REQUEST_MAX):
        yield group_ids[start : start + GROUPS_PER_REQUEST_MAX]
