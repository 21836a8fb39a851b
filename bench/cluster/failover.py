"""How long a partition cannot be written when its leader is lost: from the signal to the first acknowledged write.

Each turn has its own topic whose leader is the victim and whose replicas are all in sync. Right after the signal, the
other nodes are asked for the leader over raw connections, and the leader gets a record with acks=all, without any
client's backoff. Another case has a librdkafka producer instead, with its backoffs. The next turn begins when the node
is back and all replicas have caught up.
"""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.brokers.connection import NO_ERROR, BrokerRefused
from bench.brokers.frames import SIZE_BYTES, produce_frame, record_batch
from bench.cluster.client_silence import client_silence
from bench.cluster.servers import Cluster
from bench.cluster.topics import await_in_sync, led_by
from bench.cluster.wire import Impatient, view
from bench.measuring.progress import Progress
from bench.measuring.report import Table, number
from bench.measuring.results import Quantity, Result, Samples

GIVE_UP_S = 120.0
ANSWER_PATIENCE_S = 60.0
ASK_AGAIN_S = 0.002


@dataclass(frozen=True)
class Case:
    quantity: Quantity
    signal: signal.Signals
    is_controller: bool
    """Whether the victim also leads the quorum."""
    seconds: Callable[[Cluster, int, str, Callable[[], None]], float]
    """Calls the function that sends the signal; returns how long the topic could not be written."""


def measure(case: Case, cluster: Cluster, turns: int, progress: Progress) -> Samples:
    samples = Samples()
    for turn in range(turns):
        progress.say(f"{case.quantity.name}: {cluster.name}, {turn + 1} of {turns}")
        samples.values.append(_turn(case, cluster, turn))
        progress.step()
    return samples


def _turn(case: Case, cluster: Cluster, turn: int) -> float:
    cluster.await_whole()
    controller = cluster.controller()
    others = sorted(node for node in cluster.addresses if node != controller)
    victim = controller if case.is_controller else others[turn % len(others)]
    topic = led_by(cluster, victim)
    _write_once(cluster.addresses[victim], topic)
    try:
        elapsed = case.seconds(cluster, victim, topic, lambda: cluster.signal(victim, case.signal))
    finally:
        _bring_back(case, cluster, victim)
    await_in_sync(cluster, [topic], 1)
    return elapsed


def _bring_back(case: Case, cluster: Cluster, victim: int) -> None:
    if case.signal is signal.SIGSTOP:
        cluster.signal(victim, signal.SIGCONT)
    else:
        cluster.await_ended(victim)
        cluster.restart(victim)
    cluster.await_whole()


def _until_written(cluster: Cluster, victim: int, topic: str, send_signal: Callable[[], None]) -> float:
    others = cluster.others(victim)
    attempts = 0
    began = time.perf_counter()
    send_signal()
    while time.perf_counter() - began < GIVE_UP_S:
        attempts += 1
        try:
            if _try_write(others[attempts % len(others)], victim, topic):
                return time.perf_counter() - began
        except (OSError, BrokerRefused):
            pass
        time.sleep(ASK_AGAIN_S)
    raise BrokerRefused(f"{cluster.name}: {topic} was not written within {GIVE_UP_S:g} s of the loss of its leader")


def _try_write(address: str, victim: int, topic: str) -> bool:
    """Ask another node for the leader, and write to it if it is no longer the victim."""
    cluster_view = view(address, [topic])
    leader = cluster_view.topics[topic][0].leader
    if leader in (victim, -1) or leader not in cluster_view.brokers:
        return False
    return _write_once(cluster_view.brokers[leader], topic)


def _write_once(address: str, topic: str) -> bool:
    frame = produce_frame(topic, 0, record_batch(1, 100))
    with Impatient(address, ANSWER_PATIENCE_S) as connection:
        reply = connection.ask(frame.data)
        return bytes(reply[frame.error_at - SIZE_BYTES :][:2]) == NO_ERROR


def table(results: Sequence[Result]) -> Table:
    rows = [
        [result.quantity.name, system, str(len(samples.values)), *map(number, percentiles(samples.values))]
        for result in results
        for system, samples in result.samples.items()
    ]
    title = (
        "seconds from the signal to the first acknowledged write on the new leader; of a producer: its longest silence"
    )
    return Table(title, ["", "of", "times", "p50", "p99", "max"], rows)


def percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the 50th, the 99th and the highest; with up to a hundred values, the 99th is the highest."""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], ordered[-1]


def _case(name: str, number: signal.Signals, is_controller: bool) -> Case:
    return Case(Quantity(name, "s", higher_is_better=False), number, is_controller, _until_written)


CASES = (
    _case("leader killed", signal.SIGKILL, False),
    _case("leader killed that is the controller", signal.SIGKILL, True),
    _case("leader paused", signal.SIGSTOP, False),
    _case("leader paused that is the controller", signal.SIGSTOP, True),
    _case("leader stopped in order", signal.SIGTERM, False),
    _case("leader stopped in order that is the controller", signal.SIGTERM, True),
    Case(
        Quantity("leader killed, silence of a librdkafka producer", "s", higher_is_better=False),
        signal.SIGKILL,
        False,
        client_silence,
    ),
)
