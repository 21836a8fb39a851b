"""kafka-server-stop: sends SIGTERM to the servers on this machine, to all or to those of a node or role.

Like Kafka's own script, it recognizes a server by its command line, and finds its node id by reading the settings from
the same place. Servers are not contacted, so that one that hangs can be stopped too.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from moldau.base.setting_sources import SettingsError, parse_override
from moldau.cli.kafka.server_start import parse_line
from moldau.cli.kafka.tool import ToolFailed, guarded
from moldau.platforms.processes import PROCESSES, NoProcessList, Process
from moldau.platforms.support import refusal_text
from moldau.settings import Settings, load

DESCRIPTION: Final = "Stop the servers on this machine: all of them, or those selected by an option."
_START_SCRIPTS: Final = frozenset(("kafka-server-start", "kafka-server-start.sh"))
_START_MODULE: Final = "moldau.cli.kafka.server_start"


@dataclass(frozen=True, slots=True)
class Server:
    process: Process
    words: tuple[str, ...]
    """The command line after the part that starts a server."""
    is_moldau_start: bool

    def settings(self) -> Settings:
        """Read the settings again from the same places; SettingsError if they are now wrong or gone."""
        if self.is_moldau_start:
            file, overrides = _moldau_start_line(self.words)
        else:
            line = parse_line(self.words)
            file, overrides = (line.file, list(line.overrides)) if line else (None, [])
        path = None if file is None else os.path.join(self.process.cwd, file)
        return load(path, self.process.environ, overrides)


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(_stop, argv)


def as_server(process: Process) -> Server | None:
    """Return the process as a server, or None if it is not one. A shell that started a server is not."""
    program, *words = process.argv or ("",)
    if not os.path.basename(program).lower().startswith("python"):  # `Python` in a framework of macOS
        return None
    while words and words[0].startswith("-") and words[0] not in ("-m", "-c"):
        del words[: 2 if words[0] in ("-X", "-W") else 1]  # options of the interpreter
    if words[:2] == ["-m", _START_MODULE]:
        return Server(process, tuple(words[2:]), is_moldau_start=False)
    if words and (os.path.basename(words[0]) in _START_SCRIPTS or words[0].endswith("cli/kafka/server_start.py")):
        return Server(process, tuple(words[1:]), is_moldau_start=False)
    command = _after_moldau(words)
    # `moldau --debug start`: global options may come before the command
    while command and command[0].startswith("-"):
        command.pop(0)
    return Server(process, tuple(command[1:]), is_moldau_start=True) if command and command[0] == "start" else None


def _after_moldau(words: list[str]) -> list[str]:
    if words[:2] == ["-m", "moldau"]:
        return words[2:]
    if words and (os.path.basename(words[0]) == "moldau" or words[0].endswith("moldau/__main__.py")):
        return words[1:]
    return []


def _moldau_start_line(words: Sequence[str]) -> tuple[str | None, list[tuple[str, str]]]:
    """Return the file and the overrides; the other options of `moldau start` do not affect node id or roles."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config", "-c")
    parser.add_argument("--override", "-o", action="append", default=[])
    parser.add_argument("--data-dir", "-d")
    parser.add_argument("--listen", "-l")
    parsed, _ = parser.parse_known_args(list(words))
    return parsed.config, [parse_override(text) for text in parsed.override]


def _stop(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="kafka-server-stop", description=DESCRIPTION)
    parser.add_argument("--process-role", metavar="ROLE", help="only those whose process.roles is this")
    parser.add_argument("--node-id", type=int, metavar="ID", help="only the one with this node.id")
    arguments = parser.parse_args(list(words))
    if line := refusal_text("a Moldau server"):
        raise ToolFailed(line)
    if arguments.node_id is not None and arguments.process_role:
        print("When both node-id and process-role are provided, the value for node-id will take precedence")
    try:
        processes = [process for process in PROCESSES.all() if process.pid != os.getpid()]
    except NoProcessList as error:
        raise ToolFailed(str(error)) from error
    servers = [server for process in processes if (server := as_server(process))]
    selected = [server for server in servers if _is_selected(server, arguments.node_id, arguments.process_role)]
    if not selected:
        print("No kafka server to stop")
        return 1
    for server in selected:
        _signal(server.process.pid)
    return 0


def _is_selected(server: Server, node_id: int | None, role: str | None) -> bool:
    if node_id is None and not role:
        return True
    try:
        settings = server.settings()
    except SettingsError as error:
        raise ToolFailed(f"cannot tell which node process {server.process.pid} is: {error}") from error
    if node_id is not None:
        return settings.node_id == node_id
    return ",".join(settings.process_roles) == role


def _signal(pid: int) -> None:
    name = f"SIG{os.environ.get('SIGNAL', 'TERM')}"
    if name not in signal.Signals.__members__:
        raise ToolFailed(f"SIGNAL={name[3:]}: no such signal; expected a name such as TERM or INT")
    try:
        os.kill(pid, signal.Signals[name])
    except ProcessLookupError:
        return  # it has stopped by itself
    except PermissionError:
        raise ToolFailed(f"process {pid} belongs to another user; stop it as that user") from None


if __name__ == "__main__":
    sys.exit(main())
