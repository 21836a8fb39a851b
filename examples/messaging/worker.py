"""Sends the mails of the topic mail.outbox, each at least once, one process, restartable at any moment.

    python worker.py --smtp localhost:1025
    python worker.py --maildir ./mail --until-idle

The position is a file of ours: {"<partition>": next offset}, replaced after the mails before it were handed over. If it
is killed in between, the worker sends the last few mails again after its restart; their Message-ID names topic,
partition and offset, so whoever receives can tell a second copy. What nobody can ever send goes to mail.outbox.dead.
"""

from __future__ import annotations

import argparse
import json
import mailbox
import os
import signal
import smtplib
import sys
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

OUTBOX, DEAD = "mail.outbox", "mail.outbox.dead"
SENDER = "shop@bookstore.example"
BATCH, WAIT_S, TIMEOUT_S = 100, 1.0, 10.0

Deliver = Callable[[EmailMessage], None]


class Unsendable(Exception):
    """Sending it again would not help."""


class Position:
    """The next offset of each partition, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.next: dict[int, int] = {}
        if path.exists():
            self.next = {int(partition): offset for partition, offset in json.loads(path.read_text()).items()}

    def save(self) -> None:
        aside = self._path.with_suffix(".new")
        with open(aside, "w") as file:
            json.dump(self.next, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self._path)


def mail_of(message: Message) -> EmailMessage:
    """Unsendable if the record is no order for a mail."""
    try:
        order = json.loads(message.value() or b"")
        mail = EmailMessage()
        mail["From"], mail["To"], mail["Subject"] = SENDER, order["recipient"], order["subject"]
        mail["Message-ID"] = f"<{message.topic()}-{message.partition()}-{message.offset()}@bookstore.example>"
        mail.set_content(order["body"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unsendable(f"not an order for a mail: {error!r}") from error
    return mail


def by_smtp(server: str) -> Deliver:
    host, _, port = server.rpartition(":")

    def deliver(mail: EmailMessage) -> None:
        try:
            with smtplib.SMTP(host, int(port), timeout=TIMEOUT_S) as connection:
                connection.send_message(mail)
        except smtplib.SMTPRecipientsRefused as error:
            raise Unsendable(f"nobody there: {error}") from error

    return deliver


def into_maildir(path: Path) -> Deliver:
    box = mailbox.Maildir(path)

    def deliver(mail: EmailMessage) -> None:
        box.add(mail)

    return deliver


class Worker:
    def __init__(self, address: str, position: Position, deliver: Deliver) -> None:
        self._position, self._deliver = position, deliver
        self._producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0})
        self._consumer = Consumer(
            {"bootstrap.servers": address, "group.id": "mailer", "enable.auto.commit": False, "log_level": 0}
        )
        partitions = self._consumer.list_topics(OUTBOX, TIMEOUT_S).topics[OUTBOX].partitions
        self._consumer.assign(
            [TopicPartition(OUTBOX, index, position.next.get(index, OFFSET_BEGINNING)) for index in partitions]
        )

    def close(self) -> None:
        self._consumer.close()

    def work(self) -> int:
        """One round: takes what is there, sends it, and only then moves the position. Returns how many there were."""
        first = self._consumer.poll(WAIT_S)
        messages = [] if first is None else [first, *self._consumer.consume(BATCH, 0)]
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            self._send(message)
            self._position.next[message.partition()] = message.offset() + 1
        if messages:
            self._producer.flush()
            self._position.save()
        return len(messages)

    def _send(self, message: Message) -> None:
        try:
            self._deliver(mail_of(message))
        except Unsendable as error:
            self._producer.produce(DEAD, message.value(), message.key(), headers={"error": str(error)})


def main() -> None:
    parser = argparse.ArgumentParser(description="Sends the mails of the topic mail.outbox.")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--smtp", metavar="HOST:PORT", help="hand mails to this server")
    way.add_argument("--maildir", type=Path, metavar="DIR", help="put mails into this folder")
    parser.add_argument("-b", "--bootstrap-server", default="localhost:9092")
    parser.add_argument(
        "--position", type=Path, default=Path("mailer-position.json"), help="where the position is kept"
    )
    parser.add_argument("--until-idle", action="store_true", help="end when there is nothing left to send")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    deliver = by_smtp(args.smtp) if args.smtp else into_maildir(args.maildir)
    worker = Worker(args.bootstrap_server, Position(args.position), deliver)
    try:
        while (sent := worker.work()) or not args.until_idle:
            if sent:
                print(f"{sent} mails handed over")
    except KeyboardInterrupt:
        print("stopped; the next start goes on from here")
    finally:
        worker.close()


if __name__ == "__main__":
    main()
