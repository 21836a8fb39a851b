"""The options that benchmarks of brokers share, and how they end: Ctrl-C and `kill` clean up, an error is one line."""

from __future__ import annotations

import argparse
import math
import resource
import signal
import ssl
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.brokers.connection import BrokerRefused
from bench.brokers.servers import NotStarted
from bench.measuring.rounds import Workload

INTERRUPTED = 130


def parser(description: str, rounds: int) -> argparse.ArgumentParser:
    options = plain_parser(description)
    options.add_argument(
        "--only", action="append", metavar="TEXT", help="only what has this in its name; can be repeated"
    )
    options.add_argument("--rounds", type=positive, default=rounds, help=f"rounds after the warm-up (default {rounds})")
    options.add_argument(
        "--scale", type=_above_zero, default=1.0, help="how much work; 1.0 is some seconds for each turn (default)"
    )
    options.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")
    options.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there too")
    options.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the ratios there (needs matplotlib)")
    return options


def plain_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser without options that knows the program as `python -m bench.…`, also if that is a package."""
    spec = sys.modules["__main__"].__spec__
    program = None if spec is None else f"python -m {spec.name.removesuffix('.__main__')}"
    return argparse.ArgumentParser(
        program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def is_wanted(name: str, only: Sequence[str] | None) -> bool:
    return not only or any(text.lower() in name.lower() for text in only)


def wanted(workloads: Sequence[Workload], only: Sequence[str] | None) -> list[Workload]:
    return [work for work in workloads if any(is_wanted(quantity.name, only) for quantity in work.quantities)]


def allow_files(count: int) -> None:
    """Raise the limit of open files: for connections here and files in the broker, which inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def run(main: Callable[[], None]) -> None:
    """Run `main`; leaving its `with` blocks, also after an error, stops brokers and removes directories."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        main()
    except KeyboardInterrupt:
        print("\nstopped; brokers and temporary directories are gone", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except (NotStarted, BrokerRefused, ssl.SSLError) as error:
        sys.exit(f"bench: {error}")


def positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return int(text)


def _above_zero(text: str) -> float:
    if not 0 < float(text) < math.inf:
        raise argparse.ArgumentTypeError("must be a number above 0")
    return float(text)
