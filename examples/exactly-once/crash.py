"""All of it at once: orders, three workers that are killed again and again, and the table: python crash.py"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
from pathlib import Path

from pricing import DELIVERIES

HERE = Path(__file__).parent
PATIENCE_S = 120.0


def run(script: str, *arguments: str) -> int:
    return subprocess.run([sys.executable, str(HERE / script), *arguments], timeout=PATIENCE_S).returncode


def crash_and_finish(delivery: str, address: str, crashes: int, count: int, chance: random.Random) -> None:
    for _ in range(crashes):
        after = chance.randrange(1, count // (crashes + 1))
        if run("pricing.py", delivery, "-b", address, "--crash-after", str(after)) != -signal.SIGKILL:
            raise SystemExit(f"the {delivery} worker did not get to its crash")
        print(f"{delivery}: killed after {after:,} orders")
    if run("pricing.py", delivery, "-b", address, "--until-done"):
        raise SystemExit(f"the {delivery} worker failed")


def main() -> None:
    parser = argparse.ArgumentParser(description="Orders, crashes, and what became of the orders.")
    parser.add_argument("--count", type=int, default=10_000, help="orders")
    parser.add_argument("--crashes", type=int, default=5, help="of each worker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-b", "--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    args = parser.parse_args()
    if args.count < 2 * (args.crashes + 1):
        parser.error("more orders than that, or fewer crashes")
    if run("orders.py", "--count", str(args.count), "-b", args.bootstrap):
        raise SystemExit(1)
    chance = random.Random(args.seed)
    for delivery in DELIVERIES:
        crash_and_finish(delivery, args.bootstrap, args.crashes, args.count, chance)
    raise SystemExit(run("verdict.py", "-b", args.bootstrap))


if __name__ == "__main__":
    main()
