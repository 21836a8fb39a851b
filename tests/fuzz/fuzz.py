"""Fuzzing: mutated requests, batches, SASL exchanges, certificates and files, each case from a seed and its number.

python tests/fuzz/fuzz.py --cases 1000000 --seed 7              a million cases of all targets, and a table of them
python tests/fuzz/fuzz.py --target sasl --seed 7 --case 1234    one case again, with the cases before it that it needs
"""

from __future__ import annotations

import argparse
import gc
import itertools
import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NamedTuple

HERE = Path(__file__).parent
for folder in ("", "unit/server"):
    sys.path.insert(0, str(HERE.parent / folder))
sys.path.insert(0, str(HERE))

from fuzz_checks import LogLines, Target, run_case  # noqa: E402
from fuzz_http import HttpRecords  # noqa: E402
from fuzz_http_out import RecordsOut, RestCalls  # noqa: E402
from fuzz_mqtt import MqttPackets  # noqa: E402
from fuzz_requests import Produced, Requests  # noqa: E402
from fuzz_sasl import Exchanges, HostileServer  # noqa: E402
from fuzz_security import Certificates, Jaas, Properties, Rules, Settings, Stores  # noqa: E402
from fuzz_wire import Batches, Decompression, Messages  # noqa: E402

TARGETS: dict[str, tuple[Callable[[], Target], int]] = {
    "messages": (Messages, 500),
    "records": (Batches, 90),
    "compression": (Decompression, 110),
    "requests": (Requests, 25),
    "produce": (Produced, 25),
    "sasl": (Exchanges, 25),
    "sasl client": (HostileServer, 50),
    "certificates": (Certificates, 50),
    "stores": (Stores, 5),
    "mapping rules": (Rules, 25),
    "jaas": (Jaas, 50),
    "properties": (Properties, 40),
    "settings": (Settings, 5),
    "http": (HttpRecords, 50),
    "records out": (RecordsOut, 25),
    "rest proxy": (RestCalls, 25),
    "mqtt": (MqttPackets, 50),
}
"""How each target is made, and how many of a thousand cases it gets."""
FAILURES_SHOWN = 10
CASE_SECONDS_MAX = 60
GROWTH_BYTES_MAX = 200 << 20
"""Of the process from its first blocks to its last: the pools of valid inputs, and what the allocator keeps."""
COLLECT_EVERY = 20
"""Blocks after which the cycles of Python objects are collected, before the memory is measured: it takes 50 ms."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Failure(NamedTuple):
    target: str
    seed: int
    case: int
    what: str

    def __str__(self) -> str:
        again = f"python tests/fuzz/fuzz.py --target '{self.target}' --seed {self.seed} --case {self.case}"
        return f"{self.what}\nto repeat it: {again}\n"


class Block(NamedTuple):
    target: str
    seed: int
    first: int
    count: int


class Result(NamedTuple):
    block: Block
    seconds: float
    failures: list[Failure]
    memory_bytes: int


class TooSlow(BaseException):
    """A case takes longer than any may. Not an Exception, so that the code under test does not catch it."""


def case_generator(target: str, seed: int, case: int) -> Random:
    return Random((seed << 96) | (zlib.crc32(target.encode()) << 64) | case)


def run_block(target: Target, block: Block, failures_max: int = FAILURES_SHOWN) -> Iterator[Failure]:
    """Run the cases of a block; yield the failures."""
    with LogLines() as lines, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PKCS#12 bundle could not be parsed as DER|Parsed a serial number")
        target.begin()
        failed = 0
        for case in range(block.first, block.first + block.count):
            signal.alarm(CASE_SECONDS_MAX)
            try:
                run_case(target, case_generator(block.target, block.seed, case), case)
                lines.check()
            except (Exception, TooSlow):
                yield Failure(block.target, block.seed, case, traceback.format_exc(chain=True))
                failed += 1
                if failed >= failures_max:
                    return
                target.begin()
            finally:
                signal.alarm(0)
        signal.alarm(CASE_SECONDS_MAX)
        try:
            target.end()
            lines.check()
        except (Exception, TooSlow):
            # Its last case repeats the whole block.
            yield Failure(block.target, block.seed, block.first + block.count - 1, traceback.format_exc(chain=True))
        finally:
            signal.alarm(0)


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow(f"a case takes longer than {CASE_SECONDS_MAX} s")


_made: dict[str, Target] = {}
_blocks_run = itertools.count(1)


def run_in_process(block: Block) -> Result:
    signal.signal(signal.SIGALRM, _too_slow)
    began = time.process_time()
    target = _made.get(block.target) or _made.setdefault(block.target, TARGETS[block.target][0]())
    failures = list(run_block(target, block))
    if next(_blocks_run) % COLLECT_EVERY == 0:
        gc.collect()
    return Result(block, time.process_time() - began, failures, _memory_bytes())


def _memory_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
    except FileNotFoundError:  # not on Linux
        return 0


def blocks(cases: int, seed: int, only: str | None) -> list[Block]:
    """Return the work, in an order in which every target has its share of any part of it."""
    found: list[tuple[float, Block]] = []
    for name, (make, share) in TARGETS.items():
        if only not in (None, name):
            continue
        count = cases if only else max(cases * share // 1000, 1)
        size = getattr(make, "block_cases", 1000)
        for first in range(0, count, size):
            found.append((first / count, Block(name, seed, first, min(size, count - first))))
    return [block for _, block in sorted(found, key=lambda each: each[0])]


def repeat(target: str, seed: int, case: int) -> int:
    """Run a case again, after those of its block that came before it."""
    size = TARGETS[target][0]().block_cases
    first = case - case % size
    signal.signal(signal.SIGALRM, _too_slow)
    print("input:", _shown(target, seed, case))
    block = Block(target, seed, first, case - first + 1)
    found = run_block(TARGETS[target][0](), block, failures_max=block.count)
    failures = [failure for failure in found if failure.case == case]
    for failure in failures:
        print(failure)
    print("the case fails" if failures else "the case does not fail")
    return int(bool(failures))


def _shown(name: str, seed: int, case: int) -> str:
    target = TARGETS[name][0]()
    target.begin()
    made: Any = target.make(case_generator(name, seed, case))
    return repr(made)[:2000]


class Tally:
    def __init__(self, total: int) -> None:
        self.total = total
        self.cases: dict[str, int] = dict.fromkeys(TARGETS, 0)
        self.seconds: dict[str, float] = dict.fromkeys(TARGETS, 0.0)
        self.failures: list[Failure] = []
        self.memory_bytes: list[int] = []
        self._began = self._printed_s = time.monotonic()

    def add(self, result: Result) -> None:
        self.cases[result.block.target] += result.block.count
        self.seconds[result.block.target] += result.seconds
        self.memory_bytes.append(result.memory_bytes)
        for failure in result.failures:
            if len(self.failures) < FAILURES_SHOWN:
                print(failure, flush=True)
            self.failures.append(failure)
        if time.monotonic() - self._printed_s > 20:
            self._printed_s = time.monotonic()
            done, took = sum(self.cases.values()), self._printed_s - self._began
            print(f"{done:,} of {self.total:,} cases, {done / took:,.0f}/s, {len(self.failures)} failures", flush=True)

    def table(self) -> str:
        rows = [
            f"| {name} | {count:,} | {self.seconds[name]:,.0f} | {count / max(self.seconds[name], 1e-9):,.0f} |"
            for name, count in self.cases.items()
            if count
        ]
        total, seconds = sum(self.cases.values()), sum(self.seconds.values())
        rows.append(f"| all | {total:,} | {seconds:,.0f} | {total / max(seconds, 1e-9):,.0f} |")
        return "\n".join(("| target | cases | CPU seconds | cases per CPU second |", "|---|--:|--:|--:|", *rows))

    @property
    def growth_bytes(self) -> int:
        """How much larger the process was in its last tenth than in its second."""
        if not self.memory_bytes:
            return 0
        tenth = max(len(self.memory_bytes) // 10, 1)
        return max(self.memory_bytes[-tenth:]) - max(self.memory_bytes[tenth : 2 * tenth] or self.memory_bytes[:1])


def run(cases: int, seed: int, jobs: int, only: str | None) -> int:
    work = blocks(cases, seed, only)
    tally = Tally(sum(block.count for block in work))
    try:
        if jobs == 1:
            for block in work:
                tally.add(run_in_process(block))
        else:
            with multiprocessing.get_context("spawn").Pool(jobs) as pool:
                for result in pool.imap_unordered(run_in_process, work):
                    tally.add(result)
    except KeyboardInterrupt:
        print("stopped before the end")
    print(tally.table())
    print(
        f"seed {seed}; {len(tally.failures)} failures; largest process {max(tally.memory_bytes, default=0) >> 20} MiB"
    )
    if jobs == 1 and len(work) > 50 and tally.growth_bytes > GROWTH_BYTES_MAX:
        print(f"the process grew by {tally.growth_bytes >> 20} MiB: there may be a memory leak")
        return 1
    return int(bool(tally.failures))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000, help="of all targets together, or of the one of --target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--target", choices=TARGETS)
    parser.add_argument("--case", type=int, help="run only this case of --target, and show it")
    options = parser.parse_args()
    if options.case is not None:
        if options.target is None:
            parser.error("--case needs --target")
        return repeat(options.target, options.seed, options.case)
    return run(options.cases, options.seed, options.jobs, options.target)


if __name__ == "__main__":
    sys.exit(main())
