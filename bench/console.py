"""How much memory the console needs and how long its pages take with 9,000 topics, 39,000 partitions, 2,200 groups.

    python -m bench.console --seconds 60

The cluster is tests/harness/large_cluster.py in a process of its own; the console is `moldau console` in another.
Prints the time from the start to the first answer and to all numbers, the memory, and the median and the slowest of 20
requests.
"""

from __future__ import annotations

import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import large_cluster

from bench.measuring.options import plain_parser

PATHS = (
    "/api/overview",
    "/api/topics?sort=-lag",
    "/api/topics?sort=-records_per_second&page=90",
    "/api/topics?filter=events-89&sort=name",
    "/api/topics/domain-0.service-0.events-0/partitions",
    "/api/groups",
    "/api/groups?filter=group-19&sort=group",
    "/api/cluster",
    "/api/clients?size=100",
)


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        cluster = subprocess.Popen([sys.executable, large_cluster.__file__], stdout=subprocess.PIPE, text=True)
        assert cluster.stdout is not None
        port = cluster.stdout.readline().strip()
        begin = time.monotonic()
        with log.open("wb") as output:
            console = subprocess.Popen(
                [sys.executable, "-m", "moldau", "console", "-b", f"127.0.0.1:{port}", "--listen", "localhost:0"],
                stderr=output,
            )
        try:
            measure(console.pid, log, begin, seconds)
        finally:
            console.kill()
            cluster.kill()


def measure(pid: int, log: Path, begin: float, seconds: float) -> None:
    while (found := re.search(r"is at http://localhost:(\d+)/", log.read_text())) is None:
        time.sleep(0.01)
    port = int(found[1])
    print(f"listens after {time.monotonic() - begin:.2f} s, {memory_mib(pid)} MiB")
    get(port, "/api/overview")
    print(f"first answer after {time.monotonic() - begin:.2f} s")
    while not get(port, "/api/overview")["complete"]:
        time.sleep(0.1)
    print(f"all numbers after {time.monotonic() - begin:.2f} s, {memory_mib(pid)} MiB")
    overview = get(port, "/api/overview")
    print({name: overview[name] for name in ("topics", "partitions", "groups", "lag")})
    highest = 0
    times: dict[str, list[float]] = {path: [] for path in PATHS}
    end = time.monotonic() + seconds
    cpu = cpu_seconds(pid)
    wall = time.monotonic()
    while time.monotonic() < end or len(times[PATHS[-1]]) < 20:
        for path in PATHS:
            before = time.monotonic()
            get(port, path)
            times[path].append(time.monotonic() - before)
            highest = max(highest, memory_mib(pid))
        time.sleep(0.2)
    for path, taken in times.items():
        median, slowest = statistics.median(taken), max(taken)
        print(f"{1000 * median:6.0f} ms median {1000 * slowest:6.0f} ms slowest of {len(taken)}  {path}")
    share = (cpu_seconds(pid) - cpu) / (time.monotonic() - wall)
    print(f"memory at most {highest} MiB; {100 * share:.0f} % of a core")


def get(port: int, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    response = connection.getresponse()
    data = json.loads(response.read())
    assert response.status == 200, data
    connection.close()
    return data


def memory_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) >> 10  # type: ignore[index]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    parser = plain_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long pages are requested (default 30)")
    main(parser.parse_args().seconds)
