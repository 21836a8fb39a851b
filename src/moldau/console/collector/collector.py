"""The background reader of one cluster with the rights of one user: a thread that keeps `state` up to date.

Each step reads one part. Parts are read at their own pace (pace.py). After a round in which something was read, the
version goes up and everyone who waits is told. Only this thread changes the state.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from moldau.base.clock import Clock, MonotonicMs, SystemClock, WallMs
from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.group_values import SHARE, DescribedGroup, ShareOffset
from moldau.client.admin.groups import Groups
from moldau.client.admin.share_groups import ShareGroups
from moldau.client.cluster import EARLIEST, LATEST, Cluster
from moldau.console.collector import lags, readings, views
from moldau.console.collector.ages import Ages
from moldau.console.collector.history import History
from moldau.console.collector.measured import measured
from moldau.console.collector.pace import Pace
from moldau.console.collector.state import ClusterState, GroupState, layout_of
from moldau.operations.cluster_overview import member_names

log = logging.getLogger(__name__)

PERIODS: Final = {
    "brokers": 0.5,
    "topics": 1.0,
    "ends": 1.0,
    "starts": 10.0,
    "views": 10.0,
    "groups": 2.0,
    "offsets": 2.0,
    "members": 2.0,
    "log_dirs": 10.0,
    "quorum": 2.0,
    "reassignments": 2.0,
    "subscriptions": 10.0,
    "metrics": 5.0,
}
"""The steps in their order, and how often each is read in seconds; large clusters are read less often."""
NEEDED: Final = frozenset({"brokers", "topics", "ends", "starts", "groups", "offsets"})
"""What must have been read once before answers are complete."""
FIRST_SHOWN: Final = ("brokers", "topics", "starts")
"""Pages show these at a start while the rest is still read."""
ANSWER_SECONDS: Final = 5.0
RETRY_MS: Final = 1500
"""How long a request is repeated that a leader or coordinator just elected may answer soon."""
REFUSED_SECONDS: Final = 60.0
RESTING_AFTER_SECONDS: Final = 60.0
HURRY_SECONDS: Final = 1.0
LOOK_AGAIN_SECONDS: Final = 0.05
GROUPS_AT_ONCE: Final = 200
T = TypeVar("T")
MetricsReader = Callable[[], Mapping[str, object]]


class Collector:
    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, str],
        read_metrics: MetricsReader | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._cluster = Cluster(bootstrap, properties, ANSWER_SECONDS)
        self._admin = ClusterAdmin(self._cluster, RETRY_MS)
        self._groups = Groups(self._cluster, RETRY_MS)
        self._share_groups = ShareGroups(self._cluster, RETRY_MS)
        self._metrics_reader = read_metrics
        self._pace = Pace({step: period for step, period in PERIODS.items() if step != "metrics" or read_metrics})
        self._wake = threading.Event()
        self._changed = threading.Condition()
        self._stopped = False
        self._last_look = time.monotonic()
        self._last_hurry = -HURRY_SECONDS
        self.ages = Ages()
        self._rounds_begun = self._rounds_done = 0
        self.state = ClusterState()
        self.history = History()
        self.listeners: set[Callable[[], None]] = set()
        """Called by the collector's thread after each version."""
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        with self._changed:
            self._changed.notify_all()

    def join(self, timeout_seconds: float) -> None:
        self._thread.join(timeout_seconds)

    def look(self) -> ClusterState:
        """Return the state; while somebody looks, the cluster is read at full pace."""
        resting = self._is_resting()
        self._last_look = time.monotonic()
        if resting:
            self.hurry()
        return self.state

    def hurry(self, *steps: str) -> None:
        """Read these parts, or all, at once."""
        self._pace.hurry(*steps)
        self._wake.set()

    def await_users_change(
        self, timeout_seconds: float, is_seen: Callable[[ClusterState], bool] = lambda state: True
    ) -> None:
        """Read everything now, and wait until a change by the user is seen or the time is over."""
        end = time.monotonic() + timeout_seconds
        wanted = self._rounds_begun + 1
        self.hurry()
        self._await_round(wanted, end)
        while not is_seen(self.state) and not self._stopped and time.monotonic() < end:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped, LOOK_AGAIN_SECONDS)
            wanted = self._rounds_begun + 1
            self.hurry("topics")
            self._await_round(wanted, end)

    def _await_round(self, wanted: int, end: float) -> None:
        """Wait for a round, mostly the next one: the one that runs now may have begun before a change."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._rounds_done >= wanted, end - time.monotonic())

    def await_topics_read(self, timeout_seconds: float) -> None:
        """Wait for a reading of the topics that begins now. Whoever asks for what does not exist again and again does
        not make the collector read more than once a second."""
        now, wanted = time.monotonic(), self._rounds_begun + 1
        if now - self._last_hurry >= HURRY_SECONDS:
            self._last_hurry = now
            self.hurry("topics")
        self._await_round(wanted, now + timeout_seconds)

    def await_first_version(self, timeout_seconds: float) -> None:
        """Wait until the state was published once."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self.state.version > 0, timeout_seconds)

    @property
    def is_complete(self) -> bool:
        return self.state.read >= NEEDED

    def freshness(self) -> dict[str, Any]:
        """What every answer says of its age: when something was read last, and why nothing has been read since."""
        state = self.state
        return {"read_ms": state.read_ms, "complete": self.is_complete, "read_error": state.read_error}

    def monotonic_ms(self) -> MonotonicMs:
        """Return the time by which `ages` counts: the wall clock may be set back."""
        return MonotonicMs(self._clock.monotonic_ms())

    def _is_resting(self) -> bool:
        return time.monotonic() - self._last_look > RESTING_AFTER_SECONDS

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped:
            self._wake.clear()
            self._rounds_begun += 1
            self._round()
            with self._changed:
                self._rounds_done = self._rounds_begun
                self._changed.notify_all()
            self._wake.wait(min(5.0, self._pace.seconds_until_due(time.monotonic())))
        self._cluster.close()

    def _round(self) -> None:
        done = 0
        for step in list(self._pace.due(time.monotonic())):
            if self._stopped:
                return
            if not (self._read_brokers_if_due(step) and self._step(step)):
                break
            done += 1
            if step in FIRST_SHOWN and not self.is_complete:
                self._publish()
        if done or self.state.read_error:
            self._publish()

    def _read_brokers_if_due(self, next_step: str) -> bool:
        """Read the brokers between two steps of a long round: steps wait for a broker that has just died."""
        if next_step == "brokers" or not self._pace.is_due("brokers", time.monotonic()):
            return True
        return self._step("brokers")

    def _step(self, step: str) -> bool:
        """Read one part. Return False if nobody answers, so that the other parts wait too."""
        begin = time.thread_time()
        self._pace.begin(step)
        try:
            getattr(self, f"_read_{step}")()
        except KafkaError as error:
            self._on_refusal(step, error)
        except (OSError, MalformedData) as error:
            self._cluster.close()
            self.state.failures.note(step, str(error))
            if step != "brokers":  # one broker does not answer; whether another one does is asked next
                self._pace.postpone(step, time.monotonic() + PERIODS[step])
                self._pace.hurry("brokers")
                return True
            self.state.read_error = f"the cluster does not answer: {error}"
            self._pace.failed(time.monotonic())
            return False
        except Exception:
            log.exception("the console failed to read %s; it tries again", step)
            self._pace.postpone(step, time.monotonic() + REFUSED_SECONDS)
        else:
            self.state.failures.forget(step)
            self.state.read.add(step)
            self.state.read_ms = self._wall()
            self._pace.done(step, time.monotonic(), time.thread_time() - begin, self._is_resting())
            if step == "brokers":
                self.state.read_error = None
        return True

    def _on_refusal(self, step: str, error: KafkaError) -> None:
        """The user may not read this, the cluster does not offer it, or it has no controller just now."""
        is_lasting = error.code.name.endswith("AUTHORIZATION_FAILED") or error.code is ErrorCode.UNSUPPORTED_VERSION
        reason = error.message or error.code.name
        if is_lasting:
            self.state.failures.forget(step)
            self.state.read.add(step)
        else:
            self.state.failures.note(step, reason)
        self._cluster.forget()
        self._pace.postpone(step, time.monotonic() + (REFUSED_SECONDS if is_lasting else PERIODS[step]))
        if step == "brokers":
            self.state.read_error = f"the cluster refuses requests: {reason}"

    def _publish(self) -> None:
        if self.state.read_error is None:  # else the numbers are old, and no news at this time
            self._note(self._wall())
        with self._changed:
            self.state.version += 1
            self._changed.notify_all()
        for listener in list(self.listeners):
            listener()

    def _note(self, now_ms: WallMs) -> None:
        if self.state.read >= {"offsets", "ends"}:
            self._note_lags(self.monotonic_ms())
        if self.is_complete and self.history.is_due(now_ms):
            self.history.note(measured(self.state), now_ms)

    def _note_lags(self, now_ms: MonotonicMs) -> None:
        state = self.state
        if self.ages.is_due(now_ms):
            self.ages.note_ends(lags.ends_of_read_partitions(state.groups.values(), state.topics), now_ms)
        state.readers = lags.set_lags(state.groups.values(), state.topics, self.ages, now_ms)

    def _wall(self) -> WallMs:
        return WallMs(self._clock.now_ms())

    # --- the steps --------------------------------------------------------------------------------------------------

    def _read_brokers(self) -> None:
        try:
            self._cluster.nodes()
        except (OSError, MalformedData):  # the broker that was asked may have died: ask another one
            self._cluster.close()
            self._cluster.nodes()
        described = self._admin.described(fenced_too=True)
        alive = frozenset(each for each, node in described.nodes.items() if not node.is_fenced)
        known = self.state.alive
        if alive != known:
            self._pace.hurry("topics", "ends", "quorum", "groups", "log_dirs")
        self.state.cluster_id, self.state.controller_id = described.cluster_id, described.controller_id
        # Kafka before 4.0 does not tell stopped brokers: those that were seen before and still hold replicas are down.
        before = {each: node for each, node in self.state.nodes.items() if each in self.state.layout.holds}
        self.state.nodes = {**before, **described.nodes}
        self.state.alive = alive
        if known and alive != known:
            self._publish()  # before the other steps, which wait for what has gone

    def _read_topics(self) -> None:
        before = self.state.topics
        self.state.topics = readings.read_topics(self._cluster, before)
        if self.state.topics is not before:
            self.state.layout = layout_of(self.state.topics.values())
        if self.state.topics.keys() != before.keys():
            self._pace.hurry("ends", "starts", "views")

    def _read_ends(self) -> None:
        ends, silent = readings.read_offsets(self._cluster, self.state.topics.values(), LATEST)
        if silent != self.state.silent:
            self.state.silent = silent
            self._pace.hurry("brokers")
            self._publish()
        now = time.monotonic()
        for name, its_ends in ends.items():
            self.state.topics[name].note_ends(its_ends, now)

    def _read_starts(self) -> None:
        starts, _ = readings.read_offsets(self._cluster, self.state.topics.values(), EARLIEST)
        for name, its_starts in starts.items():
            self.state.topics[name].note_starts(its_starts)

    def _read_views(self) -> None:
        self.state.views = views.read_views(self._admin, self.state.topics, self.state.views)

    def _read_log_dirs(self) -> None:
        try:
            log_dirs, sizes, self.state.moving_sizes = readings.read_log_dirs(
                self._cluster, sorted(self.state.alive), self.state.topics, self.state.reassignments
            )
        except KafkaError:
            self.state.log_dirs = None
            raise
        self.state.log_dirs = log_dirs
        for name, its_sizes in sizes.items():
            self.state.topics[name].note_sizes(its_sizes)

    def _read_groups(self) -> None:
        before = self.state.groups
        groups = {}
        for listed in self._groups.listed():
            group = before.get(listed.group_id)
            if group is None:
                group = GroupState(listed.group_id, listed.type, listed.protocol_type, listed.state)
                self._pace.hurry("offsets", "members")
            elif group.state != listed.state:
                self._pace.hurry("members")
            group.type, group.protocol_type, group.state = listed.type, listed.protocol_type, listed.state
            groups[listed.group_id] = group
        self.state.groups = groups

    def _read_offsets(self) -> None:
        groups = self.state.groups
        share_groups = [each.group_id for each in groups.values() if each.type == SHARE]
        others = [each.group_id for each in groups.values() if each.type != SHARE]
        for group_id, offsets in known_of(self._share_groups.each_offsets, share_groups):
            group = groups[group_id]
            group.share_offsets = {at: each for at, each in offsets.items() if isinstance(each, ShareOffset)}
            group.offsets = readings.compact_starts(group.share_offsets)
            group.offsets_known = True
        for group_id, committed in known_of(self._groups.each_committed, others):
            group = groups[group_id]
            group.offsets, group.holds_micro_batch_ids = readings.compact(committed)
            group.offsets_known = True

    def _read_members(self) -> None:
        groups = self.state.groups
        now_ms = self._wall()
        wanted = [each.group_id for each in groups.values() if each.type in ("Classic", "Consumer", "")]
        share_groups = [each.group_id for each in groups.values() if each.type == SHARE]
        for group_id, described in known_of(self._share_groups.each_described, share_groups):
            self._note_members(groups[group_id], described, now_ms)
        for group_id, described in known_of(self._groups.each_described, wanted):
            self._note_members(groups[group_id], described, now_ms)

    def _note_members(self, group: GroupState, described: DescribedGroup, now_ms: WallMs) -> None:
        if described.state in ("PreparingRebalance", "CompletingRebalance") and group.members is not None:
            return  # Members have no assignment now; the result of the rebalance is compared.
        if group.members is not None and group.members != described.members:
            names = member_names((*group.members, *(each for each in described.members if each not in group.members)))
            change = lags.rebalance(group.members, described.members, described.state, now_ms, names)
            if change is not None:
                group.rebalances.appendleft(change)
        if group.members != described.members:
            group.members = described.members
        group.assignor, group.epoch = described.assignor, described.epoch
        group.coordinator = f"{described.coordinator} ({described.coordinator.node_id})"

    def _read_quorum(self) -> None:
        self.state.quorum = self._admin.quorum()

    def _read_reassignments(self) -> None:
        reassignments = self._admin.reassignments()
        if reassignments.keys() != self.state.reassignments.keys():
            self._pace.hurry("log_dirs")
        self.state.reassignments = reassignments

    def _read_subscriptions(self) -> None:
        try:
            self.state.subscriptions = readings.read_subscriptions(self._admin)
        except KafkaError:
            self.state.subscriptions = None
            raise

    def _read_metrics(self) -> None:
        assert self._metrics_reader is not None
        self.state.metrics = dict(self._metrics_reader())


def known_of(read: Callable[[list[str]], Mapping[str, T | KafkaError]], groups: list[str]) -> Iterator[tuple[str, T]]:
    """Read groups in chunks, and yield those that have no error. Raise an error at the end if all groups have one.
    The caller stores a chunk compactly before the next is read."""
    first_error, is_any_known = None, False
    for start in range(0, len(groups), GROUPS_AT_ONCE):
        for group_id, result in read(groups[start : start + GROUPS_AT_ONCE]).items():
            if isinstance(result, KafkaError):
                first_error = first_error or result
            else:
                is_any_known = True
                yield group_id, result
    if first_error is not None and not is_any_known:
        raise first_error
