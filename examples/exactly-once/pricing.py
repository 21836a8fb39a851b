"""Reads orders, prices them, writes them on: at most once, at least once or exactly once. Kill it whenever you like.

    python pricing.py at-least-once
    python pricing.py exactly-once --crash-after 250          # kills itself as kill -9 would, in the middle of its work

The three differ in one thing: when the position in the input is committed. Before the output is written, a crash in
between loses orders; after it, a crash doubles them; together with it, in one transaction, there is no in between.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

ORDERS, PRICED = "orders", "orders.priced"
DELIVERIES = ("at-most-once", "at-least-once", "exactly-once")
BATCH, WAIT_S, TIMEOUT_S = 100, 0.2, 30.0
CENTS_A_COPY = 1250


def priced(order: bytes) -> bytes:
    """The work itself: from {"id": 7, "copies": 3} to {"id": 7, "cents": 3750}."""
    found = json.loads(order)
    return json.dumps({"id": found["id"], "cents": found["copies"] * CENTS_A_COPY}).encode()


class Worker:
    """A round: take some orders, write what comes of them, commit the position. In which order is the point."""

    def __init__(self, address: str, delivery: str, crash_after: int | None) -> None:
        self._output = f"{PRICED}.{delivery}"
        self._until_crash = crash_after
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": f"pricing.{delivery}",
                # The group knows this worker by name: started again after a crash, it need not wait for its own ghost.
                "group.instance.id": "worker-1",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.subscribe([ORDERS])
        self._ended: set[tuple[str, int]] = set()
        transactions = {"transactional.id": f"pricing.{delivery}"} if delivery == "exactly-once" else {}
        self._producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0, **transactions}
        )
        if transactions:
            # Whoever used this id before is fenced off, and a transaction that it left open is aborted.
            self._producer.init_transactions(TIMEOUT_S)
        rounds: dict[str, Callable[[Sequence[Message]], None]] = {
            "at-most-once": self._at_most_once,
            "at-least-once": self._at_least_once,
            "exactly-once": self._exactly_once,
        }
        self._round = rounds[delivery]

    def work(self) -> bool:
        """One round; whether there is more to do."""
        orders = self._taken()
        if orders:
            self._round(orders)
        assigned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        return not assigned or not assigned <= self._ended

    def close(self) -> None:
        self._consumer.close()

    # --- the three --------------------------------------------------------------------------------------------------

    def _at_most_once(self, orders: Sequence[Message]) -> None:
        self._consumer.commit(asynchronous=False)
        self._write(orders)
        self._flush()

    def _at_least_once(self, orders: Sequence[Message]) -> None:
        self._write(orders)
        self._flush()
        self._consumer.commit(asynchronous=False)

    def _exactly_once(self, orders: Sequence[Message]) -> None:
        self._producer.begin_transaction()
        try:
            self._write(orders)
            position = self._consumer.position(self._consumer.assignment())
            self._producer.send_offsets_to_transaction(position, self._consumer.consumer_group_metadata(), TIMEOUT_S)
            self._producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            # Not committed: nothing of this round has happened. The next start takes the same orders again.
            if error.args[0].txn_requires_abort():
                self._producer.abort_transaction(TIMEOUT_S)
            raise

    # --- their parts ------------------------------------------------------------------------------------------------

    def _taken(self) -> list[Message]:
        orders = []
        for message in self._consumer.consume(BATCH, WAIT_S):
            error, where = message.error(), (message.topic(), message.partition())
            if error is None:
                orders.append(message)
                self._ended.discard(where)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(where)
            else:
                raise KafkaException(error)
        return orders

    def _write(self, orders: Sequence[Message]) -> None:
        for number, order in enumerate(orders):
            if self._until_crash is not None:
                self._until_crash -= 1
                if self._until_crash < 0 and number:
                    self._crash()
            self._producer.produce(self._output, priced(order.value() or b""), order.key())

    def _flush(self) -> None:
        if left := self._producer.flush(TIMEOUT_S):
            raise TimeoutError(f"{left} records could not be written within {TIMEOUT_S:.0f} s")

    def _crash(self) -> None:
        """At the worst moment: what was written so far is with the broker, the rest of the batch is not."""
        self._producer.flush(TIMEOUT_S)
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description="Prices orders and writes them on.")
    parser.add_argument("delivery", choices=DELIVERIES)
    parser.add_argument("--crash-after", type=int, metavar="N", help="kill -9 itself after so many orders")
    parser.add_argument("--until-done", action="store_true", help="end when all orders are priced")
    parser.add_argument("-b", "--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    args = parser.parse_args()
    worker = Worker(args.bootstrap, args.delivery, args.crash_after)
    try:
        while worker.work() or not args.until_done:
            pass
    except KeyboardInterrupt:
        pass
    except KafkaException as error:
        raise SystemExit(f"{args.delivery}: {error.args[0].str()}") from error
    finally:
        worker.close()


if __name__ == "__main__":
    main()
