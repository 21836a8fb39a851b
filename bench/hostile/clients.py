"""Idle and hostile clients in a process of their own.

    python -m bench.hostile.clients --sasl 127.0.0.1:9092 --tls 127.0.0.1:9093 --idle 5000 --hostile 200

A line `ready` says that all idle clients are connected; SIGTERM ends it, with a line of JSON about what happened.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from contextlib import suppress

from harness.hostile_clients import SOURCE, Crowd, Target

from bench.measuring.options import plain_parser


def give_way() -> None:
    """Take CPU time only when the broker and the producer need none: hostile clients would be on other machines."""
    with suppress(AttributeError, OSError):  # macOS has no such call
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.nice(5)


async def main(options: argparse.Namespace) -> None:
    if not options.equal_priority:
        give_way()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    crowd = Crowd(Target(options.sasl, options.tls, options.source))
    await crowd.open_idle(options.idle, tuple(options.login.split(":", 1)))
    crowd.attack(options.hostile, options.only)
    print("ready", flush=True)
    await stop.wait()
    print(json.dumps(crowd.target.disconnects), flush=True)
    os._exit(0)  # thousands of tasks and connections need not be ended one by one


if __name__ == "__main__":
    parser = plain_parser(__doc__)
    parser.add_argument("--sasl", required=True, help="the listener with SASL PLAIN, HOST:PORT")
    parser.add_argument("--tls", required=True, help="the listener with TLS, HOST:PORT")
    parser.add_argument("--login", default="good:good-secret", help="USER:PASSWORD of the idle clients")
    parser.add_argument("--source", default=SOURCE, help="the address of hostile clients")
    parser.add_argument("--only", default="", help="only kinds of hostile clients with this text in their name")
    parser.add_argument("--equal-priority", action="store_true", help="do not give way to the broker")
    parser.add_argument("--idle", type=int, default=0)
    parser.add_argument("--hostile", type=int, default=0)
    asyncio.run(main(parser.parse_args()))
