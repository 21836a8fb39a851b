"""One client as a process: a writer, a transactor, a reader or a member of a group. It knows nothing of the faults.

    python chaos_client.py ROLE JOURNAL OPTIONS

OPTIONS is JSON: `bootstrap`, `topics` (partitions by name), `settings` of librdkafka, and what the role needs. What it
does goes into the journal. SIGTERM is the orderly end: a writer waits for what is on its way.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos_journal import LOST_STATUS, Journal
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

SEND_EVERY_S = 0.1
POLL_S = 0.1
COMMIT_EVERY_S = 1.0
WAITING_MAX = 5_000
"""A writer sends no more while so many records wait for their acknowledgement."""
READS_AT_ONCE = 200
CALL_S = 15.0
"""So long a call of the transactional producer may block; then it is called again, as its documentation says."""
SILENT = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)
"""Errors that librdkafka reports for broken connections, as after every killed broker."""
NO_POSITION = "Failed to fetch committed offsets"
LOST_S = 40.0
"""A client without any connection for so long begins anew, see `Reached`."""
Options = dict[str, Any]


class NoConnection(Exception):
    """The client has no connection to any broker, and will find none. Its process must end, without closing the client:
    librdkafka may then wait for ever for threads of brokers that it has forgotten."""


class Reached:
    """Whether a client has a connection to some broker. librdkafka 2.16 forgets brokers that an answer about the
    cluster does not name, because they are down: sometimes all, and for ever ("no broker available" in its log). It
    also tries one broker only, as long as that one neither answers nor refuses, or while it looks for a coordinator
    ("Cluster connection already in progress")."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()
        self.settings = {"stats_cb": self.note, "statistics.interval.ms": 2_000}

    def note(self, statistics: str) -> None:
        if any(each["state"] == "UP" for each in json.loads(statistics)["brokers"].values()):
            self._last_s = time.monotonic()

    def check(self) -> None:
        """Raise NoConnection if there has been none for too long."""
        if time.monotonic() - self._last_s > LOST_S:
            raise NoConnection


class StopFlag:
    def __init__(self) -> None:
        self.to_stop = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.to_stop = True


class Sender:
    """Sends numbered records and notes what was sent and acknowledged."""

    def __init__(self, options: Options, journal: Journal, settings: Options) -> None:
        self._journal, self._topics = journal, options["topics"]
        self._id, self._keys = options["id"], options.get("keys", 0)
        self._number = 0
        self._acked: list[Any] = []
        self._reached = Reached()
        journal.note(starts=self._id)
        self.producer = Producer(
            {"bootstrap.servers": options["bootstrap"], "enable.idempotence": True, "log_level": 0, **settings}
            | options["settings"]
            | {"error_cb": on_error(journal)}
            | self._reached.settings
        )

    def check_reached(self) -> None:
        self.poll(0)  # for the statistics
        self._reached.check()

    def send(self, **about: Any) -> bool:
        """Send a record to each partition; return whether the producer took them all."""
        records = []
        for topic, count in self._topics.items():
            for partition in range(count):
                key = f"{self._id}-{partition}-{self._number % self._keys}" if self._keys else None
                records.append([topic, partition, self._number, key])
                self._number += 1
        self._journal.note(sent=records, **about)
        try:
            for record in records:
                self._produce(*record)
        except (KafkaException, BufferError):
            return False
        return True

    def _produce(self, topic: str, partition: int, number: int, key: str | None) -> None:
        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                self._acked.append([topic, partition, number, message.offset()])
            else:
                self._journal.note(failed=[topic, partition, number, error.name()])

        self.producer.produce(topic, b"%d:%d" % (self._id, number), key, partition, on_delivery=delivered)

    def poll(self, seconds: float) -> None:
        """Serve callbacks for so long."""
        until_s = time.monotonic() + seconds
        self.producer.poll(0)
        while (left_s := until_s - time.monotonic()) > 0:
            self.producer.poll(left_s)
        self.note_acked()

    def note_acked(self) -> None:
        if self._acked:
            self._journal.note(acked=self._acked)
            self._acked = []


def on_error(journal: Journal) -> Callable[[KafkaError], None]:
    def note(error: KafkaError) -> None:
        if error.fatal() or error.code() not in SILENT:
            journal.note(error=error.name(), fatal=error.fatal(), text=error.str())

    return note


def write(options: Options, journal: Journal, stop: StopFlag) -> None:
    """Write without end; after a fatal error, which is noted, with a new producer."""
    id_number = options["id"]
    while not stop.to_stop:
        sender = Sender(options | {"id": id_number}, journal, {"message.timeout.ms": 3_600_000})
        try:
            write_and_wait(sender, options["patience_s"], stop)
        except KafkaException as raised:
            journal.note(restarts=raised.args[0].name())
        id_number += options["ids"]
    journal.note(end=len(sender.producer))


def write_and_wait(sender: Sender, patience_s: float, stop: StopFlag) -> None:
    while not stop.to_stop:
        sender.check_reached()
        if len(sender.producer) < WAITING_MAX:
            sender.send()
        sender.poll(SEND_EVERY_S)
    wait_until_s = time.monotonic() + patience_s
    while len(sender.producer) and time.monotonic() < wait_until_s:
        sender.poll(POLL_S)
    sender.poll(0)


def transact(options: Options, journal: Journal, stop: StopFlag) -> None:
    """Write transactions; after a fatal error with a new producer of the same transactional id."""
    rng, number, id_number = random.Random(options["id"]), 0, options["id"]
    while not stop.to_stop:
        # Values of a new producer must differ from those of the one before.
        sender = Sender(options | {"id": id_number}, journal, {"transactional.id": options["transactional_id"]})
        if begin_to_serve(sender, journal, stop):
            while not stop.to_stop:
                number += 1
                if not one_transaction(sender, journal, f"{options['id']}-{number}", rng):
                    break
        id_number += options["ids"]
    journal.note(end=0)


def begin_to_serve(sender: Sender, journal: Journal, stop: StopFlag) -> bool:
    while not stop.to_stop:
        sender.check_reached()
        try:
            sender.producer.init_transactions(CALL_S)
        except KafkaException as raised:
            error = raised.args[0]
            if not error.retriable():
                journal.note(restarts=error.name())
                time.sleep(1)
                return False
        else:
            return True
    return False


def one_transaction(sender: Sender, journal: Journal, name: str, rng: random.Random) -> bool:
    """Return whether the producer can be used any further."""
    to_commit = rng.random() < 0.8
    sender.producer.begin_transaction()
    try:
        for _ in range(rng.randint(1, 3)):
            to_commit = sender.send(txn=name) and to_commit
            sender.poll(SEND_EVERY_S * rng.random())
        if not to_commit:
            sender.producer.flush(1)  # librdkafka throws records away at an abort, and stumbles over the gap
    except (KafkaException, SystemError) as raised:
        if not has_used_a_sequence_twice(raised):
            raise
        journal.note(restarts="sequence used twice")
        journal.note(txn=name, outcome="not committed")
        return False
    journal.note(ends=name, commit=to_commit)
    outcome = complete(sender, journal, to_commit)
    sender.note_acked()
    journal.note(txn=name, outcome=outcome)
    return outcome in ("committed", "aborted")


def has_used_a_sequence_twice(raised: Exception) -> bool:
    """librdkafka 2.16 gives the sequence of a record that it threw away at an abort to another one, although the first
    may be in the log: its request came late. The broker cannot but refuse that, and the producer is lost."""
    cause = raised.__cause__ if isinstance(raised, SystemError) else raised  # of flush, which does not expect it
    if not isinstance(cause, KafkaException):
        return False
    error = cause.args[0]
    return bool(error.fatal()) and error.code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER


def complete(sender: Sender, journal: Journal, to_commit: bool) -> str:
    """Commit or abort, as often as the client says that it can be tried again."""
    calls_commit = to_commit
    while True:
        try:
            if calls_commit:
                sender.producer.commit_transaction(CALL_S)
            else:
                sender.producer.abort_transaction(CALL_S)
        except KafkaException as raised:
            error = raised.args[0]
            journal.note(refused=error.name(), commit=calls_commit, fatal=error.fatal())
            if error.txn_requires_abort() and calls_commit:
                calls_commit = False
            elif error.fatal() or not error.retriable():
                return "unknown" if to_commit else "not committed"
            sender.check_reached()
        else:
            return "committed" if calls_commit else "aborted"


def read(options: Options, journal: Journal, stop: StopFlag) -> None:
    """Read everything from the beginning, at positions of its own; from there again if a position is lost."""
    places = [TopicPartition(topic, each, 0) for topic, count in options["topics"].items() for each in range(count)]
    while not stop.to_stop:
        journal.note(begins=0)
        reached = Reached()
        consumer = new_consumer(options, journal, reached, {"group.id": "unused", "auto.offset.reset": "error"})
        consumer.assign(places)
        has_position = True
        while has_position and not stop.to_stop:
            reached.check()
            messages: list[Any] = consumer.consume(READS_AT_ONCE, POLL_S)
            note_reads(journal, [message for message in messages if is_record(message, journal)])
            errors = [message.error() for message in messages if message.error() is not None]
            has_position = all(error.code() != KafkaError._AUTO_OFFSET_RESET for error in errors)
        consumer.close()


def share(options: Options, journal: Journal, stop: StopFlag) -> None:
    """Be a member of a group, and commit what was read, one commit after the other."""
    while not stop.to_stop:
        member = Member(options, journal)
        while not stop.to_stop and not member.is_stuck():
            member.poll()
        member.close()


class Member:
    def __init__(self, options: Options, journal: Journal) -> None:
        self._journal = journal
        self._reached = Reached()
        self._has_position = True
        """librdkafka asks only once for committed offsets and stays without a position if that failed (issue 5586)."""
        settings = {"auto.offset.reset": "earliest", "on_commit": self._committed}
        self._consumer = new_consumer(options, journal, self._reached, settings)
        self._read: dict[tuple[str, int], int] = {}
        """The next offsets of what was read and not committed yet."""
        self._is_committing = False
        self._last_commit_s = time.monotonic()
        self._consumer.subscribe(
            list(options["topics"]), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def poll(self) -> None:
        """One message at a time: callbacks come between them, in order."""
        wait_s = POLL_S
        for _ in range(READS_AT_ONCE):
            message: Any = self._consumer.poll(wait_s)
            if message is None:
                break
            wait_s = 0.0
            if message.error() is not None and NO_POSITION in message.error().str():
                self._journal.note(restarts=message.error().str())
                self._has_position = False
            elif is_record(message, self._journal):
                note_reads(self._journal, [message])
                self._read[message.topic(), message.partition()] = message.offset() + 1
        if not self._is_committing and self._read and time.monotonic() - self._last_commit_s > COMMIT_EVERY_S:
            self._commit()

    def is_stuck(self) -> bool:
        self._reached.check()
        return not self._has_position

    def _commit(self) -> None:
        offsets = [TopicPartition(*where, offset) for where, offset in self._read.items()]
        self._journal.note(asks=[[*where, offset] for where, offset in self._read.items()])
        self._read, self._is_committing, self._last_commit_s = {}, True, time.monotonic()
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as raised:
            self._journal.note(commit_error=raised.args[0].name())
            self._is_committing = False

    def _committed(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        self._is_committing = False
        done = [[each.topic, each.partition, each.offset] for each in offsets if each.error is None]
        if error is None and done:
            self._journal.note(committed=done)
        if error is not None or len(done) < len(offsets):
            names = {each.error.name() for each in offsets if each.error is not None}
            self._journal.note(commit_error=error.name() if error is not None else sorted(names))

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._journal.note(assigned=[[each.topic, each.partition] for each in partitions])

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._journal.note(revoked=[[each.topic, each.partition] for each in partitions])
        for each in partitions:
            self._read.pop((each.topic, each.partition), None)

    def close(self) -> None:
        """Commit the rest, as well as it can be done."""
        wait_until_s = time.monotonic() + CALL_S
        while self._is_committing and time.monotonic() < wait_until_s:
            self._consumer.poll(POLL_S)
        if self._read and not self._is_committing:
            self._commit()
        while self._is_committing and time.monotonic() < wait_until_s:
            self._consumer.poll(POLL_S)
        self._consumer.close()


def new_consumer(options: Options, journal: Journal, reached: Reached, settings: Options) -> Consumer:
    base = {"bootstrap.servers": options["bootstrap"], "enable.auto.commit": False, "log_level": 0}
    return Consumer(base | settings | options["settings"] | {"error_cb": on_error(journal)} | reached.settings)


def is_record(message: Any, journal: Journal) -> bool:
    if message.error() is not None:
        on_error(journal)(message.error())
    return message.error() is None


def note_reads(journal: Journal, messages: list[Any]) -> None:
    if messages:
        journal.note(reads=[[m.topic(), m.partition(), m.offset(), m.value().decode()] for m in messages])


ROLES: dict[str, Callable[[Options, Journal, StopFlag], None]] = {
    "writer": write,
    "transactor": transact,
    "reader": read,
    "member": share,
}


def main() -> None:
    role, path, options = sys.argv[1:]
    faulthandler.register(signal.SIGUSR1)  # whoever finds it stuck asks for its stack
    stop = StopFlag()
    with Journal(Path(path)) as journal:
        try:
            ROLES[role](json.loads(options), journal, stop)
        except NoConnection:
            journal.note(restarts="no connection")
            os._exit(LOST_STATUS)
        except BaseException as error:
            journal.note(crashed=repr(error))
            raise


if __name__ == "__main__":
    main()
