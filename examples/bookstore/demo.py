"""The whole of Moldau in about a minute: a broker, a night's events of a bookstore, a pipeline on Spark, and the proof.

    make demo

Starts a broker on a free port, runs pipeline.yaml on it with its live view, sends the events while it runs, waits until
everything is through, reads back every topic and the lake table, and holds them against a recomputation in plain
Python. Exit status 0 means that all of it agrees. Everything stays in one folder, to be looked at afterwards.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import report
from checks import Reader, compare, read_back
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from events import TYPES, Night, Record, night, users, users_csv
from recompute import Result, recompute
from rich.console import Console

from moldau.pipelines.running.state_directory import StateDirectory

HERE = Path(__file__).parent
PIPELINE = HERE / "pipeline.yaml"
TOPICS = {"bookstore.events": 3, "bookstore.counts": 1, "bookstore.suspicious": 1, "bookstore.dead": 1} | {
    f"bookstore.{kind}": 3 for kind in TYPES
}
STATEFUL = ("counts", "suspicious", "by-type+lake")
"""The queries that deduplicate, and so have a watermark."""
PEOPLE = 4000
PATIENCE_S = 600.0
"""How long to wait for something that does not get on; as long as it does, there is no limit."""
LOOK_AGAIN_S = 0.25


class DemoFailed(Exception):
    """Something did not come about; the message says what."""


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of the demo; made anew by every run."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "broker"

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def users(self) -> Path:
        return self.folder / "users.csv"

    @property
    def state(self) -> StateDirectory:
        return StateDirectory(self.folder / "state")

    @property
    def picture(self) -> Path:
        return self.folder / "report.png"

    def make(self, people: str) -> None:
        """Empty but for the users. What an earlier demo left goes; a folder of somebody else's is not touched."""
        if self.users.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.iterdir()):
            raise DemoFailed(f"{self.folder} is not empty, and not from an earlier demo")
        self.users.write_text(people)


@contextmanager
def broker(home: Home) -> Iterator[str]:
    """A broker in a process of its own; yields its address. A Ctrl-C is not for it: the pipeline has to end first."""
    command = [sys.executable, "-m", "moldau", "start", "--listen", "localhost:0", "--data-dir", str(home.data)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        if " is ready: " not in said:
            raise DemoFailed(f"the broker did not start: {said.strip() or 'see above'}")
        yield said.split(" is ready: ")[1].split()[0]
    finally:
        process.terminate()
        _wait(process)


@contextmanager
def pipeline(home: Home, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """`moldau pipeline run`, with its live view on this terminal; asked to stop at the end."""
    command = [sys.executable, "-m", "moldau", "pipeline", "run", str(PIPELINE), "--bootstrap-server", address]
    command += ["--set", f"users={home.users}", "--set", f"lake={home.lake}", "--state", str(home.state.path)]
    # For a minute's work the JVM's second compiler and its parallel collector cost more than they gain.
    command += ["--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
    process = subprocess.Popen(command)
    try:
        yield process
    except KeyboardInterrupt:
        print("Stopping; Spark may take some seconds …")
        raise
    finally:
        # Not a signal: after a Ctrl-C at the terminal it has had one, and a second means to hurry.
        home.state.request_stop()
        _wait(process)
    if process.returncode:
        raise DemoFailed(f"the pipeline ended with status {process.returncode}")


def _wait(process: subprocess.Popen[Any]) -> None:
    """Until it has ended, with more and more emphasis: nothing is left running."""
    for emphasis in (lambda: None, process.terminate, process.kill):
        emphasis()
        try:
            process.wait(PATIENCE_S)
            return
        except subprocess.TimeoutExpired:
            continue


def create_topics(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for created in admin.create_topics([NewTopic(topic, count) for topic, count in TOPICS.items()]).values():
        created.result()


class Sender:
    """Sends minute by minute, each when the one before is acknowledged: nothing overtakes by more than a minute."""

    def __init__(self, address: str) -> None:
        self.sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "compression.type": "zstd",
                "partitioner": "murmur2_random",
                "log_level": 0,
            }
        )

    def send(self, minute: list[Record]) -> None:
        for record in minute:
            self._producer.produce("bookstore.events", record.value, record.key, on_delivery=self._delivered)
        if self._producer.flush(PATIENCE_S):
            raise DemoFailed("the broker does not take the events")

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error:
            raise DemoFailed(f"an event was not delivered: {error}")
        self.sent += 1


def send_night(sender: Sender, minutes: list[list[Record]], seconds: float, check: Callable[[], None]) -> None:
    """All minutes of the night, spread over so many seconds of ours."""
    begin = time.monotonic()
    for number, minute in enumerate(minutes):
        ahead = begin + number / len(minutes) * seconds - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
        check()
        sender.send(minute)


def wait_for(
    what: str, done: Callable[[], str | None], progress: Callable[[], object], check: Callable[[], None]
) -> None:
    """Until `done` has nothing left to say; if nothing gets on for too long, fails with what it said last."""
    seen, end = progress(), time.monotonic() + PATIENCE_S
    while missing := done():
        check()
        if (now := progress()) != seen:
            seen, end = now, time.monotonic() + PATIENCE_S
        if time.monotonic() > end:
            raise DemoFailed(f"{what} did not get on for {PATIENCE_S:.0f} s: {missing}")
        time.sleep(LOOK_AGAIN_S)


@dataclass(slots=True)
class Watch:
    """What still is to come, as the pipeline's own status and the ends of its topics tell."""

    home: Home
    reader: Reader
    expected: Result

    def started(self) -> str | None:
        return None if self._queries() else "no query runs yet"

    def progress(self) -> object:
        """Changes as long as the pipeline gets on: its phase, and what its queries have done."""
        status = self.home.state.read_status() or {}
        done = [
            (query["name"], query["state"], query["batch_id"], query["rows_in"], query["watermark"])
            for query in status.get("queries", [])
        ]
        return status.get("state"), status.get("message"), done

    def all_read(self, sent: int) -> str | None:
        """Every query has worked through all that was sent, and its watermark is where it has to be."""
        assert self.expected.watermark is not None
        queries = self._queries()
        for name, query in queries.items():
            if query["rows_in"] < sent or query["lag_records"] != 0:
                return f"{name} has read {query['rows_in']:,} of {sent:,} records"
            wanted = f"{self.expected.watermark:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
            if name in STATEFUL and query["watermark"] != wanted:
                return f"the watermark of {name} is {query['watermark']}, not yet {wanted}"
        return None if queries.keys() >= set(STATEFUL) else "not all queries run"

    def all_written(self) -> str | None:
        wanted = {f"bookstore.{kind}": count for kind, count in self.expected.by_type.items()}
        wanted["bookstore.counts"] = len(self.expected.counts)
        wanted["bookstore.suspicious"] = len(self.expected.suspicious)
        wanted["bookstore.dead"] = self.expected.dead.total()
        for topic, count in wanted.items():
            if (found := self.reader.count(topic)) < count:
                return f"{topic} has {found:,} of {count:,} records"
        return None

    def _queries(self) -> dict[str, Any]:
        status = self.home.state.read_status() or {}
        return {query["name"]: query for query in status.get("queries", [])}


def run(home: Home, address: str, args: argparse.Namespace, console: Console) -> bool:
    """From the first event to the last figure read back; True if all figures agree."""
    reader = Reader(address)
    with pipeline(home, address) as process:
        # Spark takes some seconds to start: time enough to think the night up, and to know how it must end.
        whole, expected = think_up(home, args.events, args.seed)
        watch = Watch(home, reader, expected)

        def alive() -> None:
            if process.poll() is not None:
                raise DemoFailed(f"the pipeline ended with status {process.returncode}")

        sender = Sender(address)
        wait_for("the start of the pipeline", watch.started, watch.progress, alive)
        send_night(sender, whole.minutes, args.seconds, alive)
        wait_for("the pipeline", lambda: watch.all_read(sender.sent) or watch.all_written(), watch.progress, alive)
        sender.send(whole.late)
        wait_for("the reading of late events", lambda: watch.all_read(sender.sent), watch.progress, alive)
    with console.status("reading everything back"):
        written = read_back(reader, home.lake / "events", TYPES)
        checks = compare(written, expected)
        reader.close()
    windows, suspicions = written.windows(), written.suspicions()
    report.draw_picture(home.picture, windows, suspicions)
    report.print_suspicious(console, suspicions)
    report.print_chart(console, windows, suspicions)
    report.print_input(console, expected)
    report.print_checks(console, checks)
    return all(check.agrees for check in checks)


def think_up(home: Home, events: int, seed: int) -> tuple[Night, Result]:
    whole = night(events, users(PEOPLE, seed), seed)
    with open(home.users, newline="") as file:
        table = {row["user_id"]: row for row in csv.DictReader(file)}
    return whole, recompute([whole.minutes, [whole.late]], table)


def next_commands(home: Home) -> list[str]:
    """Commands that work when the demo has ended, as they have to be typed in this folder."""
    beside = Path(sys.executable).parent
    on_path = str(beside) in os.environ.get("PATH", "").split(os.pathsep)
    moldau, python = ("moldau", "python") if on_path else (_short(beside / "moldau"), _short(beside / "python"))
    lake = _short(home.lake / "events")
    return [
        f"{moldau} start --data-dir {_short(home.data)}    # the broker again; then, in another terminal:",
        f"{moldau} topic list",
        f"{moldau} consume bookstore.suspicious -o start -e -f '%k %v\\n'",
        f"{moldau} consume bookstore.dead -o start -n 3 -f '%h\\n%v\\n\\n'",
        f"{moldau} pipeline graph {_short(PIPELINE)}",
        f'{python} -c "from deltalake import DeltaTable;'
        f" print(DeltaTable('{lake}').to_pyarrow_table().group_by('type').aggregate([('price', 'sum')]))\"",
    ]


def _short(path: Path) -> str:
    """Relative to where the person is, if that is above it."""
    absolute = Path(os.path.abspath(path))
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)


def watch_command(home: Home, address: str) -> str:
    return f"moldau console -b {address} --pipelines {_short(home.folder)}"


def main() -> int:
    parser = argparse.ArgumentParser(description="A bookstore's night through broker, pipeline and lake, and checked.")
    parser.add_argument("--events", type=int, default=120_000, metavar="N", help="about so many (default 120000)")
    parser.add_argument("--seconds", type=float, default=20, metavar="S", help="the night lasts so long (default 20)")
    parser.add_argument("--seed", type=int, default=7, help="another seed, another night")
    parser.add_argument("--folder", type=Path, default=HERE / ".demo", help="where everything is kept; made anew")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console, begin = Console(), time.monotonic()
    home = Home(args.folder.resolve())
    try:
        home.make(users_csv(users(PEOPLE, args.seed)))
        with broker(home) as address:
            create_topics(address)
            console.print(f"A broker listens at [bold]{address}[/]. Spark takes some seconds to start …")
            console.print(
                f"Watch it in a browser: [bold]{watch_command(home, address)}[/]", soft_wrap=True, highlight=False
            )
            agree = run(home, address, args, console)
    except DemoFailed as failed:
        console.print(f"[red]The demo failed:[/] {failed}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("Stopped. Nothing is left running.")
        return 130
    if not agree:
        console.print(f"[red]The pipeline and the recomputation differ.[/] Everything is in {home.folder}")
        return 1
    took = time.monotonic() - begin
    console.print(f"[green]All figures agree[/], after {took:.0f} s. The picture: [bold]{_short(home.picture)}[/]\n")
    console.print("Next, to type yourself:")
    for line in next_commands(home):
        console.print(f"  {line}", soft_wrap=True, markup=False, highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
