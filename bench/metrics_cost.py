"""The cost of metrics: small requests to a broker that serves `/metrics`, which is read every second, and to one that
does not, in turns.

    python -m bench.metrics_cost
    python -m bench.metrics_cost --rounds 9 --markdown metrics.md
"""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from bench.acls import table
from bench.brokers.kafka_process import HOST, free_ports
from bench.brokers.servers import MoldauProcess, Server
from bench.brokers.topics import create_topics
from bench.measuring import options
from bench.measuring.progress import Progress
from bench.measuring.report import show, write_json, write_markdown
from bench.measuring.rounds import Workload, run_rounds
from bench.scale.workloads import ACTIVE, fetch_one, produce_one

OFF, ON = "no metrics", "metrics"
SCRAPE_EVERY_S = 1.0


def workloads(scale: float) -> Iterator[Workload]:
    yield produce_one(max(10, int(25_000 * scale)))
    yield fetch_one(max(10, int(25_000 * scale)))


@contextmanager
def scraped(url: str) -> Iterator[None]:
    """Read the metrics all the time, as Prometheus does, only more often."""
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(SCRAPE_EVERY_S):
            with urllib.request.urlopen(url) as response:
                response.read()

    with ThreadPoolExecutor(max_workers=1) as thread:
        scraping = thread.submit(scrape)
        try:
            yield
        finally:
            ended.set()
        scraping.result()  # raises the error that ended it too soon


def brokers(cleanup: ExitStack) -> list[Server]:
    address = f"{HOST}:{free_ports(1)[0]}"
    kinds: dict[str, dict[str, str]] = {OFF: {}, ON: {"metrics.listener": address}}
    servers = [cleanup.enter_context(MoldauProcess(name, settings)).start() for name, settings in kinds.items()]
    for server in servers:
        create_topics(server.address, {ACTIVE: 1})
    cleanup.enter_context(scraped(f"http://{address}/metrics"))
    return servers


def main() -> None:
    arguments = options.parser(__doc__ or "", rounds=9).parse_args()
    chosen = options.wanted(list(workloads(arguments.scale)), arguments.only)
    with ExitStack() as cleanup:
        progress = cleanup.enter_context(Progress(len(chosen) * (arguments.rounds + 1) * 2))
        servers = brokers(cleanup)
        results = [each for workload in chosen for each in run_rounds(workload, servers, arguments.rounds, progress)]
    found = table(results, OFF, "ratios against a broker without metrics; 0.99: with metrics requests take 1 % longer")
    show(found)
    if arguments.markdown:
        write_markdown(arguments.markdown, [found])
    if arguments.json:
        write_json(arguments.json, {"moldau": (results, OFF)})


if __name__ == "__main__":
    options.run(main)
