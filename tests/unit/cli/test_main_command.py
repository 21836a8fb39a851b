"""`moldau` itself: lazy loading, help, one-line errors, brokers that do not answer, shell completion."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import click
import pytest
from click.shell_completion import CompletionItem, ShellComplete
from click.testing import CliRunner, Result

from moldau import __version__
from moldau.cli import connect
from moldau.cli.connect import (
    DEFAULT_BOOTSTRAP,
    Broker,
    CommandFailed,
    broker_options,
    completion_broker,
    first_reachable,
)
from moldau.cli.main import COMMANDS, main, one_line


def moldau(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def loaded_modules(*words: str) -> set[str]:
    """Return the modules that a fresh process has imported when the command has ended."""
    script = (
        "import sys\nfrom moldau.cli.main import main\n"
        f"try:\n    main({list(words)!r})\nexcept SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("words", [["--help"], ["start", "--help"], ["topic", "create", "--help"], ["log", "--help"]])
def test_help_imports_neither_the_client_library_nor_rich(words: list[str]) -> None:
    heavy = loaded_modules(*words) & {"rich", "confluent_kafka", "uvloop", "asyncio"}
    assert heavy - ({"asyncio", "uvloop"} if words[0] == "start" else set()) == set()


def leaves(command: click.Command, ctx: click.Context, path: str) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name in command.list_commands(ctx):
        below = command.get_command(ctx, name)
        assert below is not None, name
        yield from leaves(below, ctx, f"{path} {name}")


def test_every_command_loads_and_its_help_shows_an_example() -> None:
    found = dict(leaves(main, click.Context(main), "moldau"))
    assert {"moldau topic trim", "moldau produce", "moldau log dump", "moldau start"} <= set(found)
    without = [path for path, command in found.items() if path not in (command.help or "")]
    assert without == []


def test_help_shows_the_summary_of_every_command() -> None:
    shown = moldau("--help").stdout
    for name, command in COMMANDS.items():
        assert name in shown
        assert command.summary in shown


def test_version() -> None:
    assert moldau("--version").stdout == f"moldau {__version__}\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["topik"], "moldau: No such command 'topik'"),
        (["start", "x"], "moldau: Got unexpected extra argument (x). See `moldau start --help`."),
        (["start", "-l", "here"], "moldau: --listen here: expected HOST:PORT, such as localhost:9092"),
        (["start", "--console", "here"], "moldau: --console here: expected HOST:PORT, such as localhost:8080"),
        (["start", "-l", "localhost:99999"], "moldau: --listen localhost:99999: expected HOST:PORT"),
        (["topic", "create"], "moldau: Missing argument 'NAME...'. See `moldau topic create --help`."),
        (["topic", "create", "x", "-p", "0"], "moldau: Invalid value for '-p' / '--partitions': 0 is not in the range"),
        (["topic", "create", "x", "-c", "nonsense"], "moldau: Invalid value for '-c' / '--config': 'nonsense' is not"),
        (["topic", "list", "-b", "host:port"], "moldau: host:port is not an address; give -b HOST:PORT"),
        (["topic", "list", "-b", "host:9\u00b2"], "moldau: host:9\u00b2 is not an address; give -b HOST:PORT"),
        (["topic", "list", "-b", "a..b:9092"], "moldau: a..b:9092 is not an address; give -b HOST:PORT"),
        (["consume", "x", "-f", "%v", "--json"], "moldau: --json and -f are two ways to print: choose one."),
        (["consume", "x", "-g", "g", "-o", "@-1h"], "moldau: a group keeps its own offsets"),
        (["log", "dump", "/nowhere"], "moldau: Invalid value for 'PATH...': Path '/nowhere' does not exist."),
    ],
)
def test_an_error_is_one_line_and_status_1(words: list[str], line: str) -> None:
    result = moldau(*words)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["topic"], ["cluster"], ["log"]])
def test_an_incomplete_command_shows_its_help(words: list[str]) -> None:
    result = moldau(*words)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == moldau(*words, "--help").stdout


def test_a_missing_library_is_reported_with_how_to_install_it() -> None:
    missing = ModuleNotFoundError("No module named 'cramjam'", name="cramjam")
    assert one_line(missing) == "cramjam is not installed; run `make setup` in a checkout, or `pip install .`"
    assert one_line(ModuleNotFoundError("No module named 'moldau.x'", name="moldau.x")).startswith("ModuleNotFound")


def test_debug_adds_the_stack_trace() -> None:
    result = moldau("--debug", "topic", "list", "-b", "host:port")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("moldau: host:port is not an address")


def test_a_refused_connection_is_reported_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    result = moldau("topic", "list", "-b", f"127.0.0.1:{port}")
    assert result.exit_code == 1
    assert result.stderr == (
        f"moldau: no broker answers at 127.0.0.1:{port} (connection refused); start one with"
        f" `moldau start --listen 127.0.0.1:{port}`,"
        " or name another with -b HOST:PORT\n"
    )


def test_all_addresses_of_a_host_share_the_time_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    now, timeouts = 0.0, list[float]()

    class SilentSocket:
        def __init__(self, *args: object) -> None: ...

        def __enter__(self) -> SilentSocket:
            return self

        def __exit__(self, *args: object) -> None: ...

        def settimeout(self, seconds: float) -> None:
            timeouts.append(seconds)

        def connect(self, address: object) -> None:
            nonlocal now
            now += timeouts[-1] * 0.75
            raise TimeoutError

    def addresses(host: str, port: int, type: int) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, type, 6, "", (f"192.0.2.{number}", port)) for number in (1, 2)]

    fakes = SimpleNamespace(socket=SilentSocket, getaddrinfo=addresses, SOCK_STREAM=socket.SOCK_STREAM)
    monkeypatch.setattr(connect, "socket", fakes)
    monkeypatch.setattr(connect, "time", SimpleNamespace(monotonic=lambda: now))
    with pytest.raises(CommandFailed, match=r"no broker answers at a:1,b:1 \(no answer in time\)"):
        first_reachable("a:1,b:1", 8.0)
    assert timeouts == [8.0, 2.0, 0.5, 0.125]


def test_a_listener_that_never_answers_is_reported_after_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(connect, "ANSWER_SECONDS", 1.6)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        result = moldau("cluster", "info", "-b", address)
    assert result.exit_code == 1
    waiting, error = result.stderr.splitlines()
    assert waiting == f"{address} accepts connections but does not answer yet; waiting up to 2 s"
    assert error.startswith(f"moldau: {address} accepts connections but does not answer as a Kafka broker")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_of_that_shell(shell: str) -> None:
    result = moldau("completion", shell)
    assert result.exit_code == 0
    assert f"_MOLDAU_COMPLETE={shell}_complete" in result.stdout


def completions(line: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    words = line.split(" ")
    monkeypatch.setenv("_MOLDAU_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    return moldau().stdout.split()


def test_completion_offers_commands_and_nothing_without_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "plain,describe" in completions("moldau topic de", monkeypatch)
    monkeypatch.setenv("MOLDAU_BOOTSTRAP", "127.0.0.1:1")
    assert completions("moldau topic describe ", monkeypatch) == []


@pytest.mark.parametrize(
    ("written", "broker"),
    [
        ([], Broker(DEFAULT_BOOTSTRAP, {})),
        (["-b", "there:1"], Broker("there:1", {})),
        (["-X", "security.protocol=SSL", "-b", "there:1"], Broker("there:1", {"security.protocol": "SSL"})),
        (["-b", "there:1", "-X", "nonsense"], Broker("there:1", {})),
    ],
)
def test_completion_uses_the_broker_of_the_unfinished_command_line(written: list[str], broker: Broker) -> None:
    brokers: list[Broker] = []

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        brokers.append(completion_broker(ctx))
        return []

    @click.command()
    @click.argument("name", shell_complete=complete)
    @broker_options
    def command(name: str, broker: Broker) -> None:
        """Never called: the command line is not complete."""

    ShellComplete(command, {}, "command", "_COMPLETE").get_completions(written, "")
    assert brokers == [broker]


def test_an_error_is_one_line_also_with_the_oldest_click(monkeypatch: pytest.MonkeyPatch) -> None:
    """Click 8.1 has no error for a command without arguments: it prints the help itself."""
    monkeypatch.delattr(click.exceptions, "NoArgsIsHelpError")
    result = CliRunner().invoke(main, ["topic", "list", "-b", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert result.stderr.startswith("moldau: no broker answers at 127.0.0.1:1")
    assert result.stderr.count("\n") == 1


def test_an_error_of_a_broker_has_no_escape_codes() -> None:
    assert one_line(CommandFailed("orders:\n \x1b[2Jgone\x9b1m")) == r"orders: \x1b[2Jgone\x9b1m"
