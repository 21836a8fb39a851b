"""A cluster of three nodes in a process of its own, which kills a leader and restarts it on commands over pipes.

It is not in the process of the tests: that one serves Spark's callbacks, and both would share one interpreter lock.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from moldau.testing.cluster import TestCluster

NODES = 3


class ClusterProcess:
    def __init__(self, data: Path, settings: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.bootstrap_servers = self._ask(json.dumps(dict(settings)))

    def kill_leader(self, topic: str) -> int:
        """Kill the leader of partition 0 and return its id."""
        return int(self._ask(f"kill {topic}"))

    def restart(self, node: int) -> None:
        self._ask(f"restart {node}")

    def stop(self) -> None:
        """Stop all nodes; the process ends with its input."""
        self.process.communicate()

    def _ask(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().strip()
        assert answer, "the cluster's process ended"
        return answer


def main() -> None:
    cluster = TestCluster(Path(sys.argv[1]), NODES, json.loads(sys.stdin.readline())).start()
    print(cluster.bootstrap_servers, flush=True)
    for line in sys.stdin:
        word, name = line.split()
        if word == "kill":
            node = cluster.leader_of(name, 0)
            assert node is not None
            cluster.kill(node)
        else:
            node = int(name)
            cluster.restart(node)
        print(node, flush=True)
    cluster.stop_all()


if __name__ == "__main__":
    main()
