"""The mail worker of examples/messaging with a broker and a mail server: every mail is sent at least once."""

from __future__ import annotations

import json
import mailbox
import sys
import threading
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, Patience

from moldau.testing import TestBroker

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "messaging"))

import worker as mailing
from mail_server import MailServer

pytestmark = pytest.mark.moldau_only


@pytest.fixture
def address(moldau_broker: TestBroker) -> str:
    admin = AdminClient({"bootstrap.servers": moldau_broker.bootstrap_servers})
    for created in admin.create_topics([NewTopic(mailing.OUTBOX, 2), NewTopic(mailing.DEAD, 1)]).values():
        created.result(PATIENCE_S)
    return moldau_broker.bootstrap_servers


def produce_orders(address: str, *values: bytes, partitions: int = 2) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number, value in enumerate(values):
        producer.produce(mailing.OUTBOX, value, str(number), partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


def mail_order(number: int) -> bytes:
    return json.dumps({"recipient": f"r{number}@example.org", "subject": f"no. {number}", "body": ".dot\n"}).encode()


def work(worker: mailing.Worker, wanted: int) -> None:
    done, patience = 0, Patience(f"{wanted} orders came")
    while done < wanted:
        patience.check(progress=done)
        done += worker.work()
    worker.close()


@pytest.fixture
def mail_server(tmp_path: Path) -> Iterator[MailServer]:
    with MailServer("localhost", 0, tmp_path / "mail") as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def test_mails_are_sent_over_smtp(address: str, mail_server: MailServer, tmp_path: Path) -> None:
    produce_orders(address, *(mail_order(number) for number in range(5)))
    deliver = mailing.by_smtp(f"localhost:{mail_server.server_address[1]}")
    work(mailing.Worker(address, mailing.Position(tmp_path / "position.json"), deliver), 5)
    mails = list(mailbox.Maildir(tmp_path / "mail"))
    assert sorted(mail["To"] for mail in mails) == [f"r{number}@example.org" for number in range(5)]
    assert {mail.get_payload() for mail in mails} == {".dot\n"}


def test_a_restarted_worker_resumes_at_its_saved_position(address: str, tmp_path: Path) -> None:
    position, box = tmp_path / "position.json", tmp_path / "mail"
    for round_of_four in range(2):
        produce_orders(address, *(mail_order(4 * round_of_four + number) for number in range(4)))
        work(mailing.Worker(address, mailing.Position(position), mailing.into_maildir(box)), 4)
    assert sorted(mail["Subject"] for mail in mailbox.Maildir(box)) == [f"no. {number}" for number in range(8)]


def test_mails_sent_again_after_a_crash_have_the_same_message_id(address: str, tmp_path: Path) -> None:
    # All in one partition: records of two fetches may be two rounds, the first of which is saved.
    produce_orders(address, *(mail_order(number) for number in range(4)), partitions=1)
    position, sent = tmp_path / "position.json", []

    def fail_at_the_third(mail: EmailMessage) -> None:
        if len(sent) == 2:
            raise ConnectionError("the power is gone")
        sent.append(mail["Message-ID"])

    crashing = mailing.Worker(address, mailing.Position(position), fail_at_the_third)
    with pytest.raises(ConnectionError):
        work(crashing, 4)
    crashing.close()
    again: list[str] = []
    work(mailing.Worker(address, mailing.Position(position), lambda mail: again.append(mail["Message-ID"])), 4)
    assert len(set(again)) == len(again) == 4
    assert set(sent) <= set(again)


def test_invalid_orders_go_to_the_dead_letter_topic(address: str, tmp_path: Path) -> None:
    produce_orders(address, b"{", b'{"recipient": "a@example.org"}', mail_order(3), b"[]")
    sent: list[str] = []
    worker = mailing.Worker(address, mailing.Position(tmp_path / "p.json"), lambda mail: sent.append(mail["To"]))
    work(worker, 4)
    assert sent == ["r3@example.org"]
    consumer = Consumer({"bootstrap.servers": address, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(mailing.DEAD, 0, 0)])
    dead = consumer.consume(3, PATIENCE_S)
    consumer.close()
    assert sorted(message.value() for message in dead) == [b"[]", b"{", b'{"recipient": "a@example.org"}']
    assert all(dict(message.headers())["error"].startswith(b"not an order") for message in dead)
