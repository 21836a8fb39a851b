"""Runs scripts about a quorum: every message in flight is shown, and is delivered only by a command.

    nodes voters=3 observers=1 dynamic=0      creates and starts them; nothing is delivered yet
    campaign 1                                ends the election or fetch timeout of node 1
    deliver [only=1,2]                        delivers all messages in flight, and those that they cause
    drop                                      drops all messages in flight; requests then time out
    append 1 a b c                            one batch
    wait ms=500                               lets time pass; the messages that this causes are shown, not delivered
    slow 2, flush 2                           stops flushes of its disk; flushes once
    crash 2, start 2                          unflushed batches are lost
    isolate 2, reconnect 2                    messages to and from it are lost; not any more
    snapshot 1                                of all that is committed; a second one removes the start of the log
    resign 1
    add 4, remove 2                           AddRaftVoter, RemoveRaftVoter to the leader
    vote 2 from=3 epoch=5 last=0@0 pre=1 …    sends one request, and shows its response
    fetch 1 from=2 epoch=1 offset=3 last=1
    state [2]                                 role, epoch, leader, log as epoch:batches, high watermark

A log is shown as `1[0-4]2[5-9]`: each epoch with its offsets; batches that are not on disk yet follow after a bar.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from harness.memory_raft_log import MemoryRaftLog, MemoryStateStore
from harness.quorum_world import CLUSTER_ID, LISTENER, SETTINGS, directory_of, host_of
from quorum_lines import log_line, request_line, response_line
from script import Command

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.raft.machine import Quorum
from moldau.raft.member import Member
from moldau.raft.news import Committed, LeaderChanged, Leading
from moldau.raft.roles import Follower, OutgoingRequest, Unattached
from moldau.raft.snapshots import BOOTSTRAP, SnapshotId, bootstrap_snapshot
from moldau.raft.voters import SUPPORTED_KRAFT_VERSIONS, Endpoint, ReplicaKey, Voter, VoterSet, static_voters
from moldau.testing.clock import FakeClock
from moldau.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from moldau.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from moldau.wire.messages.vote import RequestPartitionData, RequestTopicData, VoteRequest

DELIVERED_MAX = 400
"""Maximum number of messages of one `deliver`: more would mean that it never ends."""


class Machine:
    """One node: its quorum while it runs, and what a crash leaves."""

    def __init__(self) -> None:
        self.log = MemoryRaftLog()
        self.store = MemoryStateStore()
        self.quorum: Quorum | None = None
        self.is_slow = False


class QuorumActor:
    def __init__(self) -> None:
        self._clock = FakeClock()
        self._machines: dict[int, Machine] = {}
        self._static = VoterSet()
        self._voter_ids: list[int] = []
        self._isolated: set[int] = set()
        self._in_flight: deque[tuple[int, int, Any, Any]] = deque()
        """(from, to, the request it belongs to, the message): the request itself, or its response or error."""
        self._lost: list[tuple[int, int, OutgoingRequest]] = []
        """(when it times out, from, request) of requests that will get no response."""
        self._waiting: list[tuple[int, int, Any]] = []
        """(from, to, request) of requests that arrived and have no response yet."""
        self._happened: list[str] = []

    def answer(self, command: Command) -> str:
        getattr(self, "_" + command.name)(command)
        happened, self._happened = self._happened, []
        return "\n".join(happened) or "nothing"

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _nodes(self, command: Command) -> None:
        self._voter_ids = list(range(1, command.number("voters", 3) + 1))
        ids = range(1, len(self._voter_ids) + command.number("observers", 0) + 1)
        self._machines = {each: Machine() for each in ids}
        if command.number("dynamic", 0):
            first = VoterSet(_voter(each) for each in self._voter_ids)
            for each in self._voter_ids:
                self._machines[each].log.snapshots[BOOTSTRAP] = bootstrap_snapshot([], first, 0)
        else:
            self._static = static_voters({each: (host_of(each), 9093) for each in self._voter_ids}, LISTENER)
        for each in ids:
            self._begin(each)
        self._settle()

    def _begin(self, node_id: int) -> None:
        machine = self._machines[node_id]
        endpoint = Endpoint(LISTENER, host_of(node_id), 9093)
        me = Member(node_id, directory_of(node_id), CLUSTER_ID, LISTENER, (endpoint,))
        bootstrap = [Endpoint(LISTENER, host_of(each), 9093) for each in self._voter_ids]
        machine.quorum = Quorum(
            me, self._static, bootstrap, machine.log, machine.store, Random(node_id), self._clock, SETTINGS
        )
        machine.quorum.start()

    def _start(self, command: Command) -> None:
        for node_id in _ids(command):
            self._begin(node_id)
        self._settle()

    def _crash(self, command: Command) -> None:
        for node_id in _ids(command):
            machine = self._machines[node_id]
            machine.quorum = None
            machine.log._remove_from(machine.log.flushed_offset)
            self._break_connections(node_id)

    def _break_connections(self, node_id: int) -> None:
        """Fail the requests to it: their senders find the connection closed. Drop its own requests."""
        broken = [(to_id, from_id, outgoing) for from_id, to_id, outgoing in self._waiting if to_id == node_id]
        for at, to, outgoing, message in self._in_flight:
            if to == node_id and message is outgoing.request:
                broken.append((to, at, outgoing))
            elif at == node_id and message is not outgoing.request:
                broken.append((at, to, outgoing))
        self._in_flight = deque(each for each in self._in_flight if node_id not in each[:2])
        self._waiting = [each for each in self._waiting if node_id not in each[:2]]
        for to_id, from_id, outgoing in broken:
            self._in_flight.append((to_id, from_id, outgoing, KafkaError(ErrorCode.NETWORK_EXCEPTION)))

    def _slow(self, command: Command) -> None:
        for node_id in _ids(command):
            self._machines[node_id].is_slow = True

    def _flush(self, command: Command) -> None:
        for node_id in _ids(command):
            self._flush_one(node_id)
        self._settle()

    def _isolate(self, command: Command) -> None:
        self._isolated |= set(_ids(command))

    def _reconnect(self, command: Command) -> None:
        self._isolated -= set(_ids(command))

    def _campaign(self, command: Command) -> None:
        for node_id in _ids(command):
            quorum = self._of(node_id)
            role, now_ms = quorum.role, self._clock.monotonic_ms()
            if isinstance(role, Unattached):
                role.election_at_ms = now_ms
            else:
                assert isinstance(role, Follower), f"node {node_id} is {type(role).__name__}"
                role.fetch_by_ms = now_ms
            quorum.poll()
        self._settle()

    def _append(self, command: Command) -> None:
        node_id, *values = command.words
        try:
            end_offset = self._of(int(node_id)).append([value.encode() for value in values])
            self._happened.append(f"log end {end_offset}")
        except KafkaError as refused:
            self._happened.append(refused.code.name)
        self._settle()

    def _resign(self, command: Command) -> None:
        for node_id in _ids(command):
            self._of(node_id).resign()
        self._settle()

    def _snapshot(self, command: Command) -> None:
        for node_id in _ids(command):
            machine, quorum = self._machines[node_id], self._of(node_id)
            headers = list(machine.log.batches(0, quorum.high_watermark))
            assert headers, "nothing is committed"
            snapshot = SnapshotId(quorum.high_watermark, headers[-1][0].leader_epoch)
            version, voters = quorum.voters_at(snapshot)
            machine.log.write_snapshot(snapshot, [b"all"] * 20, 0, kraft_version=version, voters=voters)
            self._happened.append(f"{snapshot.end_offset}-{snapshot.epoch}, log start {machine.log.start_offset}")

    # --- time and messages ----------------------------------------------------------------------------------------

    def _wait(self, command: Command) -> None:
        end_ms = self._clock.monotonic_ms() + command.number("ms", 0)
        while True:
            due_ms, node_id = min((each.quorum.deadline_ms, n) for n, each in self._machines.items() if each.quorum)
            lost_ms = min((at_ms for at_ms, _, _ in self._lost), default=due_ms)
            if min(due_ms, lost_ms) > end_ms:
                break
            self._clock.move(max(0, min(due_ms, lost_ms) - self._clock.monotonic_ms()))
            self._time_out()
            self._of(node_id).poll()
            self._settle()
        self._clock.move(end_ms - self._clock.monotonic_ms())

    def _time_out(self) -> None:
        now_ms = self._clock.monotonic_ms()
        over = [each for each in self._lost if each[0] <= now_ms]
        self._lost = [each for each in self._lost if each[0] > now_ms]
        for _, from_id, outgoing in over:
            quorum = self._machines[from_id].quorum
            if quorum is not None:
                quorum.on_response(outgoing, KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    def _drop(self, command: Command) -> None:
        while self._in_flight:
            self._drop_one(*self._in_flight.popleft())

    def _drop_one(self, from_id: int, to_id: int, outgoing: OutgoingRequest, message: Any) -> None:
        sender = from_id if message is outgoing.request else to_id
        self._lost.append((self._clock.monotonic_ms() + outgoing.timeout_ms, sender, outgoing))

    def _deliver(self, command: Command) -> None:
        only = {int(each) for each in command.values.get("only", "").split(",") if each}
        held: list[Any] = []
        for _ in range(DELIVERED_MAX):
            if not self._in_flight:
                break
            sent = self._in_flight.popleft()
            if only and not {sent[0], sent[1]} <= only:
                held.append(sent)
            else:
                self._arrive(*sent)
                self._settle()
        assert not self._in_flight, "the nodes send messages without end"
        self._in_flight.extend(held)

    def _arrive(self, from_id: int, to_id: int, outgoing: OutgoingRequest, message: Any) -> None:
        if {from_id, to_id} & self._isolated:
            self._drop_one(from_id, to_id, outgoing, message)
            return
        machine = self._machines.get(to_id)
        quorum = machine.quorum if machine is not None else None
        if message is not outgoing.request:
            if quorum is not None:
                self._happened.append(f"{from_id} -> {to_id} {response_line(message)}")
                quorum.on_response(outgoing, message)
            return
        if quorum is None:
            refused = KafkaError(ErrorCode.NETWORK_EXCEPTION)
            self._in_flight.append((to_id, from_id, outgoing, refused))
            return
        self._happened.append(f"{from_id} -> {to_id} {request_line(message)}")
        if isinstance(message, ApiVersionsRequest):
            feature = SupportedFeatureKey("kraft.version", *SUPPORTED_KRAFT_VERSIONS)
            self._in_flight.append((to_id, from_id, outgoing, ApiVersionsResponse(supported_features=[feature])))
            return
        response = quorum.answer(message)
        if isinstance(response, Promise):
            self._waiting.append((from_id, to_id, outgoing))
            response.then(lambda late: self._reply_late(from_id, to_id, outgoing, late))
        else:
            self._in_flight.append((to_id, from_id, outgoing, response))

    def _reply_late(self, from_id: int, to_id: int, outgoing: OutgoingRequest, response: Any) -> None:
        if (from_id, to_id, outgoing) in self._waiting:
            self._waiting.remove((from_id, to_id, outgoing))
            self._in_flight.append((to_id, from_id, outgoing, response))

    def _settle(self) -> None:
        """Collect the messages and events of all nodes, and flush the disks that are not slow."""
        is_busy = True
        while is_busy:
            is_busy = False
            for node_id, machine in self._machines.items():
                if machine.quorum is None:
                    continue
                for download in machine.quorum.take_received():
                    machine.quorum.on_snapshot_checked(download, download.check())
                if not machine.is_slow and machine.log.flushed_offset < machine.log.end_offset:
                    self._flush_one(node_id)
                    is_busy = True
                self._take(node_id, machine.quorum)

    def _take(self, node_id: int, quorum: Quorum) -> None:
        for outgoing in quorum.take_outgoing():
            to_id = int(outgoing.to.host.removeprefix("node"))
            self._in_flight.append((node_id, to_id, outgoing, outgoing.request))
        replies = quorum.take_replies()
        for news in quorum.take_news():
            match news:
                case Leading(epoch):
                    self._happened.append(f"node {node_id} leads epoch {epoch}")
                case Committed(high_watermark):
                    self._happened.append(f"node {node_id} has high watermark {high_watermark}")
                case LeaderChanged(leader_id, epoch):
                    what = "has no leader" if leader_id < 0 else f"follows {leader_id}"
                    self._happened.append(f"node {node_id} {what} in epoch {epoch}")
                case _:
                    self._happened.append(f"node {node_id} no longer leads")
        for answer, response in replies:
            answer.complete(response)

    def _flush_one(self, node_id: int) -> None:
        machine = self._machines[node_id]
        machine.log.flush(machine.log.end_offset)
        if machine.quorum is not None:
            machine.quorum.flushed()

    # --- single requests ------------------------------------------------------------------------------------------

    def _add(self, command: Command) -> None:
        for node_id in _ids(command):
            endpoint = Listener(LISTENER, host_of(node_id), 9093)
            self._ask_leader(AddRaftVoterRequest(CLUSTER_ID, 1_000, node_id, directory_of(node_id), [endpoint]))

    def _remove(self, command: Command) -> None:
        for node_id in _ids(command):
            self._ask_leader(RemoveRaftVoterRequest(CLUSTER_ID, node_id, directory_of(node_id)))

    def _ask_leader(self, request: Any) -> None:
        for node_id, machine in self._machines.items():
            if machine.quorum is not None and machine.quorum.is_leader:
                self._send_request(node_id, request)

    def _vote(self, command: Command) -> None:
        last_offset, _, last_epoch = command.values.get("last", "0@0").partition("@")
        partition = RequestPartitionData(
            0, command.number("epoch", 1), command.number("from", 9), directory_of(command.number("from", 9)),
            directory_of(command.number("directory", 0)), int(last_epoch), int(last_offset),
            bool(command.number("pre", 0)),
        )  # fmt: skip
        topic = RequestTopicData("__cluster_metadata", [partition])
        cluster_id = command.values.get("cluster", CLUSTER_ID)
        self._send_request(_ids(command)[0], VoteRequest(cluster_id, command.number("voter", -1), [topic]))

    def _fetch(self, command: Command) -> None:
        from_id = command.number("from", 9)
        partition = FetchPartition(
            0, command.number("epoch", 1), command.number("offset", 0), command.number("last", 0),
            replica_directory_id=directory_of(from_id), high_watermark=command.number("hw", 1 << 40),
        )  # fmt: skip
        topic = FetchTopic(bytes(15) + b"\x01", "", [partition])
        cluster_id = command.values.get("cluster", CLUSTER_ID)
        wait_ms = command.number("wait", 0)
        request = FetchRequest(cluster_id, ReplicaState(from_id), max_wait_ms=wait_ms, max_bytes=1_000, topics=[topic])
        self._send_request(_ids(command)[0], request)

    def _send_request(self, node_id: int, request: Any) -> None:
        response = self._of(node_id).answer(request)
        if isinstance(response, Promise):
            self._happened.append("waits")
            response.then(lambda late: self._happened.append(f"late response: {response_line(late)}"))
        else:
            self._happened.append(response_line(response))
        self._settle()

    # --- the state ------------------------------------------------------------------------------------------------

    def _state(self, command: Command) -> None:
        for node_id in _ids(command) or self._machines:
            machine = self._machines[node_id]
            if machine.quorum is None:
                self._happened.append(f"{node_id} is down, log {log_line(machine.log)}")
                continue
            quorum = machine.quorum
            voted = quorum.role.voted
            self._happened.append(
                f"{node_id} {type(quorum.role).__name__} epoch={quorum.leader_epoch} leader={quorum.leader_id} "
                f"voted={voted.id if voted else '-'} voters={','.join(map(str, quorum.voters.ids)) or '-'} "
                f"log {log_line(machine.log)} committed={quorum.high_watermark}"
            )

    def _of(self, node_id: int) -> Quorum:
        quorum = self._machines[node_id].quorum
        assert quorum is not None, f"node {node_id} is down"
        return quorum


def _ids(command: Command) -> list[int]:
    return [int(word) for word in command.words]


def _voter(node_id: int) -> Voter:
    endpoint = Endpoint(LISTENER, host_of(node_id), 9093)
    return Voter(ReplicaKey(node_id, directory_of(node_id)), (endpoint,), SUPPORTED_KRAFT_VERSIONS)
