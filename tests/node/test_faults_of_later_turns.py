"""An unexpected error in a later turn of work ends as one in the first turn does: the node stops, or the connection of
the client is closed. The work is not silently dead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast
from unittest.mock import Mock

import pytest
from harness.fetch_requests import fetch, parked
from harness.in_memory_node import InMemoryNode

from moldau.assembly.broker_side import BrokerSide
from moldau.assembly.controller_side import ControllerSide
from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.base.long_work import LongWork
from moldau.base.promise import Promise
from moldau.base.steps import Steps, no_steps
from moldau.coordinator.group.share.initializing import Initialization
from moldau.log import store
from moldau.log.log import Log
from moldau.log.producers import Producers
from moldau.metadata.apply import Changes
from moldau.metadata.controller.decision import Decision
from moldau.metadata.current import CurrentImage
from moldau.replica.partition import Partition
from moldau.runtime import housekeeping
from moldau.runtime.broker import leader_lease
from moldau.runtime.broker.leader_lease import LeaderLease
from moldau.runtime.coordinators.shard import Shard
from moldau.runtime.coordinators.share_group_offsets import ShareTopic
from moldau.runtime.housekeeping import Housekeeping
from moldau.runtime.internal_errors import INTERNAL_ERRORS
from moldau.runtime.quorum.committed_metadata import CommittedMetadata
from moldau.runtime.quorum.metadata_log import MetadataLog
from moldau.runtime.replication import isr_changes
from moldau.runtime.replication.fetcher import ReplicaFetcher
from moldau.runtime.share.fetches import SharesToFetch, WaitingFetch
from moldau.security.acls.access import UNRESTRICTED
from moldau.server.conversation import LongReply
from moldau.server.handlers import fetch_answer
from moldau.server.handlers.fetch_answer import FetchAnswer
from moldau.server.handlers.replies import TimeLimit, combine_replies, run_steps, steps_when_ready
from moldau.share.dead_letters import REJECTED, DeadLetter
from moldau.share.limits import ShareLimits
from moldau.share.ports import ShareKey
from moldau.share.sessions import Place
from moldau.share.window import Wanted
from moldau.testing.clock import FakeTimers
from moldau.testing.ports import at_once
from moldau.wire.apis import ApiKey
from moldau.wire.codec import Refusal
from moldau.wire.frames import request_frame
from moldau.wire.log_records.metadata import NoOpRecord
from moldau.wire.messages.fetch import FetchResponse
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.wire.schema import Message


class Unexpected(Exception):
    pass


@pytest.fixture(autouse=True)
def _first_of_each_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log an error although earlier tests have just caused one like it, or many."""
    monkeypatch.setattr(INTERNAL_ERRORS, "_logged", {})
    monkeypatch.setattr(INTERNAL_ERRORS, "_in_second", 0)


class Pass(NamedTuple):
    """Work on all partitions or logs, one in each turn: what `start` begins calls `method` of `owner` for each."""

    start: Callable[[InMemoryNode, Housekeeping], object]
    size: tuple[object, str]
    """Of a turn."""
    owner: type
    method: str


def fail_at_the_second_call(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> None:
    """The first call does nothing, and the second comes in another turn."""
    calls = 0

    def fail(*_: object, **__: object) -> tuple[()]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Unexpected
        return ()

    monkeypatch.setattr(owner, method, fail)


def end_the_lease(node: InMemoryNode, _: Housekeeping) -> None:
    broker = node.assembly.broker_side
    assert broker is not None
    node.clock.move(60_000)
    broker._lease._check()


PASSES = {
    "retention": Pass(
        lambda _, it: it.retain(at_once, pytest.fail), (housekeeping, "SLOW_ITEMS_A_TURN"), Partition, "delete_expired"
    ),
    "flush": Pass(lambda _, it: it.flush_by_time(), (housekeeping, "LISTED_A_TURN"), Log, "flush_due"),
    "producers": Pass(lambda _, it: it.expire_producers(), (housekeeping, "LISTED_A_TURN"), Producers, "expire"),
    "checkpoints": Pass(
        lambda _, it: it.write_checkpoints(at_once, pytest.fail),
        (store, "ITEMS_A_TURN"),
        Housekeeping,
        "_high_watermark",
    ),
    "purge": Pass(lambda _, it: it.purge(at_once, pytest.fail), (store, "ITEMS_A_TURN"), Log, "take_deletable"),
    "lease": Pass(end_the_lease, (leader_lease, "ITEMS_A_TURN"), LeaderLease, "_check_partition"),
}


@pytest.mark.parametrize("work", PASSES.values(), ids=PASSES)
def test_an_error_in_a_later_turn_stops_the_node(monkeypatch: pytest.MonkeyPatch, work: Pass) -> None:
    monkeypatch.setattr(*work.size, 1)
    node = InMemoryNode().start()
    node.create_topic("a", 3)
    node.settle()
    for index in range(3):
        node.append("a", index)
    fail_at_the_second_call(monkeypatch, work.owner, work.method)
    broker = node.assembly.broker_side
    assert broker is not None
    work.start(node, broker.housekeeping)
    while node.timers.run_soon():
        pass
    assert [type(fault) for fault in node.faults] == [Unexpected]


def fail(*_: object, **__: object) -> object:
    raise Unexpected


def clean_logs(node: InMemoryNode) -> None:
    broker(node).cleaner._look()


def broker(node: InMemoryNode) -> BrokerSide:
    assert node.assembly.broker_side is not None
    return node.assembly.broker_side


def controller(node: InMemoryNode) -> ControllerSide:
    assert node.assembly.controller_side is not None
    return node.assembly.controller_side


def decide_long(node: InMemoryNode) -> None:
    node.controller.submit_own(lambda _: long_decision())


def long_decision() -> Steps[Decision[None]]:
    for _ in range(4):
        yield
    return Decision(None)


def commit_a_long_decision(node: InMemoryNode) -> None:
    """As on a node that does not lead the quorum: it reads what is committed from its log."""
    log = cast(MetadataLog, node.assembly.driver.quorum.log)
    committed = CommittedMetadata(log, CurrentImage(), node.assembly._world.own_work())
    committed.committed(node.assembly.driver.high_watermark)


def load_a_coordinator(node: InMemoryNode) -> None:
    partition, shards = node.partition("a"), broker(node).groups.shards
    shard = Shard(partition, shards._new_machine(partition), node.clock, node.assembly._world.own_work(), pytest.fail)
    shard.load(node.timers.soon, pytest.fail)


def follower(node: InMemoryNode, response: Promise[Any]) -> ReplicaFetcher:
    """Return what fetches from another node, which answers with this."""
    peer = Mock()
    peer.to.return_value.ask.return_value = response
    parts = replace(broker(node)._fetchers._parts, peers=peer, address=lambda _: ("other", 9092))
    return ReplicaFetcher(2, parts)


def lay_out_more(node: InMemoryNode) -> None:
    layout = broker(node)._chunked_layout
    layout._pending["a", 0] = None
    layout._schedule()


GROUP = "g"


def find_a_share_groups_start(node: InMemoryNode) -> None:
    limits = ShareLimits(auto_offset_reset="by_duration:PT1H")
    broker(node).shares._find_start(node.partition("a"), limits)


def write_a_dead_letter(node: InMemoryNode) -> None:
    partition = node.partition("a")
    key, letter = ShareKey(GROUP, partition.topic_id, 0), DeadLetter(0, 0, 1, REJECTED)
    broker(node).shares._dead_letters.write(key, partition, ShareLimits(dead_letter_topic="dlq.a"), [letter])


def read_a_share_groups_offsets(node: InMemoryNode) -> None:
    topic = node.current.image.topics["a"]
    broker(node).share_offsets.read(GROUP, [ShareTopic(topic.name, topic.id, [0, 1], len(topic.partitions))])


def make_a_share_groups_states(node: InMemoryNode) -> None:
    topic = node.current.image.topics["a"]
    broker(node).groups.share_states.initialize(Initialization(GROUP, 1, {topic.id: {0: -1, 1: -1}}))


OWN_WORK: dict[str, Callable[[InMemoryNode], object]] = {
    "retention": lambda node: broker(node).housekeeping.retain(at_once, pytest.fail),
    "flush": lambda node: broker(node).housekeeping.flush_by_time(),
    "producers": lambda node: broker(node).housekeeping.expire_producers(),
    "checkpoints": lambda node: broker(node).housekeeping.write_checkpoints(at_once, pytest.fail),
    "purge": lambda node: broker(node).housekeeping.purge(at_once, pytest.fail),
    "lease": lambda node: end_the_lease(node, broker(node).housekeeping),
    "cleaner": clean_logs,
    "offsets of groups": lambda node: broker(node).groups.expire_offsets(),
    "transactional ids": lambda node: broker(node).transactions.expire(),
    "new topics": lambda node: broker(node).groups.shards.run(no_steps(None)),
    "loading of a coordinator": load_a_coordinator,
    "fetched records": lambda node: follower(node, Promise())._on_response(FetchResponse()),
    "offsets of a leader": lambda node: follower(node, Promise())._on_leader_offsets({}),
    "decision": decide_long,
    "committed metadata": commit_a_long_decision,
    "layout": lay_out_more,
    "start of a share group": find_a_share_groups_start,
    "dead letters": write_a_dead_letter,
    "offsets of a share group": read_a_share_groups_offsets,
    "states of a share group": make_a_share_groups_states,
}
"""Everything that a node does in turns by itself, begun."""


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("start", OWN_WORK.values(), ids=OWN_WORK)
def test_an_error_in_any_step_of_own_work_stops_the_node(
    monkeypatch: pytest.MonkeyPatch, start: Callable[[InMemoryNode], object], step: int
) -> None:
    node = InMemoryNode().start()
    node.create_topic("a", 3)
    node.settle()
    run = LongWork.__init__

    def failing(steps: Steps[Any]) -> Steps[Any]:
        """Do some steps without work, so that each piece of work has several, and fail."""
        for _ in range(step):
            yield
        steps.close()
        raise Unexpected

    def init(self: LongWork[Any], soon: Any, steps: Steps[Any], *rest: Any) -> None:
        run(self, soon, failing(steps), *rest)

    monkeypatch.setattr(LongWork, "__init__", init)
    start(node)
    while node.timers.run_soon():
        pass
    assert [type(fault) for fault in node.faults] == [Unexpected]


def tick(node: InMemoryNode) -> None:
    node.timers.advance(3_600_000)


def fetch_in_vain(node: InMemoryNode) -> None:
    response = Promise[Any]()
    follower(node, response).add(node.partition("a"))
    node.timers.run_soon()
    response.complete(KafkaError(ErrorCode.NETWORK_EXCEPTION))


def lay_out(node: InMemoryNode) -> None:
    """As a large change, whose files a thread creates."""
    layout, prepared = broker(node)._chunked_layout, Promise[None]()
    files = Mock(**{"needs_files.return_value": True, "prepare.return_value": prepared})
    layout._listener, layout._new_files = Mock(), files
    layout._pending["a", 0] = None
    layout._schedule()
    node.timers.run_soon()
    prepared.complete(None)


def add_a_topic(node: InMemoryNode) -> None:
    broker(node).groups.on_image(node.current.image, Changes({"a": {0}}))
    node.timers.run_soon()


def answer_heartbeats_no_more(node: InMemoryNode) -> None:
    node.clock.move(60_000)
    controller(node).duties._fencing_ms = node.clock.monotonic_ms()
    controller(node).duties._fence()


CALLS: dict[str, tuple[str, Callable[[InMemoryNode], object]]] = {
    "check of leaders": ("moldau.runtime.controller.duties.decide_unclean_elections", tick),
    "balance": ("moldau.runtime.controller.duties.decide_balance", tick),
    "fencing": ("moldau.runtime.controller.duties.decide_fence_stale", answer_heartbeats_no_more),
    "fetch of a follower": ("moldau.runtime.replication.fetcher.ReplicaFetcher._fail_all", fetch_in_vain),
    "turn of a layout": ("moldau.runtime.broker.chunked_layout.ChunkedLayout._defer_if_new", lay_out),
    "prepared files": ("moldau.runtime.broker.chunked_layout.ChunkedLayout._on_prepared", lay_out),
    "topics of groups": ("moldau.coordinator.group.topic_changes.TopicChanges.of", add_a_topic),
    "patterns of groups": ("moldau.runtime.coordinators.new_topics.NewTopics.on_changes", add_a_topic),
    "tokens": ("moldau.runtime.controller.delegation_tokens.decide_remove_expired_tokens", tick),
    "timer of the quorum": ("moldau.raft.machine.Quorum.poll", lambda node: node.assembly.driver._poll()),
    "flush of the quorum": ("moldau.raft.machine.Quorum.flushed", lambda node: node.assembly.driver.flushed()),
    "listener of the quorum": (
        "moldau.runtime.controller.active.Controller.committed",
        lambda node: (node.controller.submit(lambda _: Decision(None, [NoOpRecord()])), node.flush()),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_error_in_a_timer_of_own_work_stops_the_node(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    function, start = CALLS[name]
    node = InMemoryNode(static={"delegation.token.secret.key": "secret"}).start()
    node.create_topic("a", 3)
    node.settle()
    monkeypatch.setattr(function, fail)
    start(node)
    assert {type(fault) for fault in node.faults} == {Unexpected}


@pytest.mark.parametrize("step", range(3))
def test_an_error_in_any_step_of_a_decision_is_answered(step: int, caplog: pytest.LogCaptureFixture) -> None:
    """It was for a request: the node goes on, and so do later decisions."""
    node = InMemoryNode().start()

    def decide() -> Steps[Decision[None]]:
        for _ in range(step):
            yield
        raise Unexpected

    answer, later = node.controller.submit(lambda _: decide()), node.controller.submit(lambda _: Decision("done"))
    while node.timers.run_soon():
        pass
    reply: object = answer.value()
    assert isinstance(reply, KafkaError)
    assert reply.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (later.value(), node.faults) == ("done", [])
    assert [record.getMessage() for record in caplog.records] == ["a decision of the controller failed"]


def test_a_long_decision_appends_nothing_once_the_node_has_halted() -> None:
    node = InMemoryNode().start()

    def decide() -> Steps[Decision[None]]:
        yield
        return Decision(None, [NoOpRecord()])

    answer = node.controller.submit(lambda _: decide())
    before = node.metadata_log.end_offset
    node.assembly.halt()
    while node.timers.run_soon():
        pass
    assert node.metadata_log.end_offset == before
    reply: object = answer.value()
    assert isinstance(reply, KafkaError)
    assert reply.code is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "not the leader any more"])
def test_an_error_of_whoever_gets_a_decision_for_a_request_is_logged_alone(
    is_committed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    node = InMemoryNode().start()
    first, bad, last = (node.controller.submit(lambda _: Decision("done", [NoOpRecord()])) for _ in range(3))
    bad.then(fail)
    if is_committed:
        node.flush()
    else:
        node.controller.no_longer_leading()
    assert [first.done, last.done, node.faults] == [True, True, []]
    assert [record.getMessage() for record in caplog.records] == ["a request failed after the controller had answered"]


def test_an_error_in_what_a_controller_does_with_its_own_decision_stops_the_node() -> None:
    node = InMemoryNode().start()
    node.controller.submit_own(lambda _: Decision("done", [NoOpRecord()])).then(fail)
    node.flush()
    assert [type(fault) for fault in node.faults] == [Unexpected]


@pytest.mark.parametrize("step", range(1, 4))
def test_an_error_in_any_later_step_of_a_request_closes_the_connection(
    step: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The router sees to the first step."""
    timers = FakeTimers()

    def steps() -> Steps[object]:
        for _ in range(step):
            yield
        raise Unexpected

    reply = run_steps(timers, steps())
    assert isinstance(reply, LongReply)
    timers.run_soon()
    assert reply.handled.done
    assert isinstance(reply.value(), MalformedData)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize("step", range(3))
def test_an_error_in_any_step_after_a_promised_reply_closes_the_connection(
    step: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever completes the reply, such as a coordinator, goes on with those of other clients."""
    timers, promised = FakeTimers(), Promise[None]()

    def steps(_: None) -> Steps[object]:
        for _ in range(step):
            yield
        raise Unexpected

    reply = steps_when_ready(timers, promised, steps)
    promised.complete(None)
    timers.run_soon()
    assert isinstance(reply.value(), MalformedData)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_an_error_in_what_a_request_does_with_a_promised_value_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The group's coordinator, which completes it, goes on."""
    node = InMemoryNode(static={"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}).start()
    router = broker(node).router

    def ask(api: ApiKey, version: int, request: Message) -> Any:
        frame = memoryview(request_frame(api, version, 7, "client", request))[4:]
        return router.answer("PLAINTEXT", "10.0.0.1:5", UNRESTRICTED, frame)

    ask(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    node.settle()
    monkeypatch.setattr("moldau.server.handlers.groups.membership._with_protocol_name", fail)
    join = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range")])
    replies = [ask(ApiKey.JOIN_GROUP, 2, join) for _ in range(2)]
    node.settle()
    node.timers.advance(10_000)
    node.settle()
    for reply in replies:
        assert isinstance(reply, Promise)
        assert isinstance(reply.value(), Refusal)
    assert node.faults == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "a request failed after its coordinator had answered"
    ]


@pytest.mark.parametrize("ends_by", ["the last reply", "the time limit", "a reply that closes the connection"])
def test_an_error_in_what_combines_replies_closes_the_connection(
    ends_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    timers, first, last = FakeTimers(), Promise[Any](), Promise[Any]()
    combined = combine_replies([first, last], fail, TimeLimit(timers, 10, lambda _: None))
    assert isinstance(combined, Promise)
    first.complete(MalformedData("bad") if ends_by.startswith("a reply") else None)
    if ends_by == "the last reply":
        last.complete(None)
    timers.advance(10)
    assert isinstance(combined.value(), MalformedData)
    assert [record.levelname for record in caplog.records] == ([] if ends_by.startswith("a reply") else ["ERROR"])


def test_an_error_of_whoever_gets_the_reply_of_a_long_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    timers = FakeTimers()

    def steps() -> Steps[str]:
        yield
        return "done"

    reply = run_steps(timers, steps())
    assert isinstance(reply, LongReply)
    reply.then(fail)
    timers.run_soon()
    assert reply.value() == "done"
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_disk_fault_in_a_later_turn_of_a_request_is_no_error_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    """As in the first turn: the connection is closed, and what the disk refused is logged where that happens."""
    timers = FakeTimers()

    def steps() -> Steps[object]:
        yield
        raise StorageFault("data/a-0", OSError(28, "No space left on device"))

    reply = run_steps(timers, steps())
    timers.run_soon()
    assert isinstance(reply, LongReply)
    assert isinstance(reply.value(), MalformedData)
    assert caplog.records == []


@pytest.mark.parametrize("step", range(3))
def test_cancelled_work_runs_no_further_step(step: int) -> None:
    timers, ran, ended = FakeTimers(), [], list[str]()

    def steps() -> Steps[None]:
        try:
            for number in range(3):
                ran.append(number)
                yield
        finally:
            ended.append("closed")

    work = LongWork(timers.soon, steps(), pytest.fail, pytest.fail)
    for _ in range(step + 1):
        work()
    work.cancel()
    timers.run_soon()
    assert (ran, ended, work.is_running) == (list(range(step + 1)), ["closed"], False)


def test_work_that_waits_goes_on_when_its_promise_is_done() -> None:
    timers, promise, results = FakeTimers(), Promise[float](), list[str]()

    def steps() -> Steps[str]:
        yield promise
        return "done"

    work = LongWork(timers.soon, steps(), results.append, pytest.fail)
    work()
    assert timers.run_soon() == 0
    promise.complete(1.5)
    timers.run_soon()
    assert results == ["done"]


@pytest.mark.parametrize(("items_a_turn", "call"), [(500, 1), (1, 1), (1, 2)], ids=["only", "first", "second"])
def test_an_error_in_any_turn_of_a_waiting_fetch_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, items_a_turn: int, call: int
) -> None:
    node = InMemoryNode().start()
    node.create_topic("a", 3)
    node.timers.run_soon()
    answer = parked(fetch(node, {("a", index): 0 for index in range(3)}, wait_ms=500))
    monkeypatch.setattr(fetch_answer, "ITEMS_A_TURN", items_a_turn)
    added = 0

    def fail(*_: object) -> None:
        nonlocal added
        added += 1
        if added == call:
            raise Unexpected

    monkeypatch.setattr(FetchAnswer, "_add_results", fail)
    node.append("a", 1)
    while node.timers.run_soon():
        pass
    assert isinstance(answer.value(), MalformedData)
    assert (len(node.parked), node.waiting, node.faults) == (0, 0, [])
    assert [record.getMessage() for record in caplog.records] == ["a waiting fetch failed"]


@pytest.mark.parametrize("step", range(3))
def test_an_error_in_any_step_of_a_share_fetch_closes_its_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: int
) -> None:
    node = InMemoryNode().start()
    node.create_topic("a", 1)
    topic = node.current.image.topics["a"]

    def fail(_: WaitingFetch) -> Steps[None]:
        for _ in range(step):
            yield
        raise Unexpected

    monkeypatch.setattr(WaitingFetch, "_attempt", fail)
    wanted = Wanted("member", 1, 1, is_exact=False)
    answer = broker(node).share_fetches.fetch(SharesToFetch(GROUP, [Place(topic.id, 0)], wanted, 1, 1000, 500))
    while node.timers.run_soon():
        pass
    assert isinstance(answer.value(), MalformedData)
    assert node.faults == []
    assert [record.getMessage() for record in caplog.records] == ["a waiting fetch of a share group failed"]


def test_an_error_in_a_later_turn_of_the_check_for_laggards_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only partitions with several replicas have one: the node gets two that it does not have."""
    monkeypatch.setattr(isr_changes, "ITEMS_A_TURN", 1)
    node = InMemoryNode(static={"replica.lag.time.max.ms": "4"}).start()
    checked, broken = Mock(), Mock()
    broken.reevaluate_isr.side_effect = Unexpected
    monkeypatch.setattr(node.partitions, "all", lambda: [checked, broken])
    node.timers.advance(2)
    checked.reevaluate_isr.assert_called_once_with(looks_for_laggards=True)
    assert [type(fault) for fault in node.faults] == [Unexpected]
