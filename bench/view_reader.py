"""A client of `bench.beside_views`: reads a topic, or one new view of it after the other, until it is stopped.

python -m bench.view_reader HOST:PORT TOPIC RECORDS [CONDITION]
"""

from __future__ import annotations

import itertools
import os
import sys

from confluent_kafka.admin import AdminClient

from bench.brokers.servers import Server
from bench.views import PATIENCE_S, create, read


def main() -> None:
    address, topic, records, *condition = sys.argv[1:]
    server = Server("moldau", address, 0)
    admin = AdminClient({"bootstrap.servers": address})
    for number in itertools.count():
        if condition:
            view = f"view-{os.getpid()}-{number}"
            create(server, view, **{"from": topic, "where": condition[0], "select": "id, amount"})
            read(server, view, int(records), None)
            admin.delete_topics([view])[view].result(PATIENCE_S)
        else:
            read(server, topic, int(records), None)
        print("read", flush=True)  # the first line says that everything is warm


if __name__ == "__main__":
    main()
