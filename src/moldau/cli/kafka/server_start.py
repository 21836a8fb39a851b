"""kafka-server-start: `[-daemon] server.properties [--override property=value]*`; and how every server starts.

Reads the settings, reports their errors and warnings, then runs `moldau.node` until a signal; whatever keeps it from
running is one line. `moldau start` calls `serve` too. Import nothing that a running server does not need.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from moldau.base.errors import ListenFault, MalformedData, StorageFault
from moldau.base.listeners import WILDCARD_HOSTS, Listener
from moldau.base.quick_imports import no_collections
from moldau.base.secure_files import AUTHORITY
from moldau.base.setting_sources import SettingsError, parse_override
from moldau.cli.kafka.tool import ToolFailed, guarded, print_to_stderr
from moldau.cli.log.output import LogOutput, WrongLogChoice, choose, set_up
from moldau.platforms.support import refusal_text
from moldau.settings import Settings, load

log = logging.getLogger("moldau.start")

USAGE: Final = "USAGE: kafka-server-start.sh [-daemon] server.properties [--override property=value]*"
DAEMON_OUTPUT: Final = "kafkaServer.out"
Announce = Callable[[str, Listener, Listener | None], None]


class StartLine(NamedTuple):
    """The parsed command line."""

    file: str
    overrides: tuple[tuple[str, str], ...]
    daemon: bool


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(_start, argv)


def parse_line(words: Sequence[str]) -> StartLine | None:
    """Parse the command line. Return None if it names no file; raise SettingsError for unknown words."""
    files: list[str] = []
    overrides: list[tuple[str, str]] = []
    daemon = False
    rest = iter(words)
    for word in rest:
        if word in ("-daemon", "--daemon"):
            daemon = True
        elif word == "--override":
            overrides.append(parse_override(next(rest, "")))
        elif word.startswith("--override="):
            overrides.append(parse_override(word.partition("=")[2]))
        elif word.startswith("-") or files:
            raise SettingsError(f"{word}: unknown argument; {USAGE}")
        else:
            files.append(word)
    return StartLine(files[0], tuple(overrides), daemon) if files else None


def announce_plainly(line: str, listener: Listener, metrics: Listener | None) -> None:
    print(line, flush=True)


def serve(
    read_settings: Callable[[], Settings],
    level: str | None = None,
    format: str | None = None,
    announce: Announce = announce_plainly,
) -> int:
    """Run a node until it is stopped; anything that keeps it from running is reported in one line. `level` and `format`
    are those of its log lines, if set by options. `announce` gets the line that says that the node is ready, its
    listener for clients, and that of metrics."""
    output = choose_log_output(level, format)
    set_up(output)

    def warn(line: str) -> None:
        if output.is_json:
            log.warning("%s", line)
        else:
            print_warning(line)

    try:
        settings = checked_settings(read_settings, warn)
        set_up(output, settings.node_id)
        for line in (*settings.warnings, *warn_of_open_listeners(settings), *warn_of_files_and_names(settings)):
            warn(line)
        refuse_to_open(settings)
        return _run(settings, announce)
    except ToolFailed as failed:
        if not output.is_json:
            raise
        log.error("%s", failed)
        return 1


def print_warning(line: str) -> None:
    print_to_stderr(f"Warning: {line}")


def choose_log_output(level: str | None = None, format: str | None = None) -> LogOutput:
    try:
        return choose(level, format, os.environ)
    except WrongLogChoice as error:
        raise ToolFailed(str(error)) from error


def warn_of_open_listeners(settings: Settings) -> Iterator[str]:
    """Yield a line if anybody who reaches this machine may do everything."""
    open_to_all = [
        each for each in settings.listeners if each.host in WILDCARD_HOSTS and each.security_protocol == "PLAINTEXT"
    ]
    if open_to_all and not settings.authorizer.is_enabled:
        yield (
            f"{open_to_all[0]} listens on all interfaces: whoever reaches this machine may read, write and delete"
            " everything; `moldau start --secure` asks for passwords"
        )


def warn_of_files_and_names(settings: Settings) -> Iterator[str]:
    """Yield lines that need a look at files, and at the addresses of advertised names."""
    yield from warn_of_store_types(settings)
    if any(each.host in WILDCARD_HOSTS for each in settings.listeners):
        from moldau.cli.loopback_names import warn_of_loopback

        yield from warn_of_loopback({each.host for each in settings.advertised_listeners})


def warn_of_store_types(settings: Settings) -> Iterator[str]:
    """Yield a line for each key or trust store whose type in the settings is not that of the file."""
    if not settings.tls:
        return
    from moldau.platforms.key_files import DiskKeyFiles
    from moldau.security.tls.stores import warn_of_types

    yield from dict.fromkeys(warn_of_types(settings.tls.values(), DiskKeyFiles()))


def refuse_to_open(settings: Settings) -> None:
    """Fail if the data of a broker that was started with --secure would be served to clients without a password."""
    log_dir = settings.log_dirs[0]
    unprotected = [each for each in settings.listeners if each.security_protocol == "PLAINTEXT"]
    if unprotected and os.path.exists(os.path.join(log_dir, AUTHORITY)):
        raise ToolFailed(
            f"{log_dir} was secured by `moldau start --secure`, but {unprotected[0]} asks for no password; start with"
            f" --secure, or delete {os.path.join(log_dir, AUTHORITY)} to open the data to everybody"
        )


def _run(settings: Settings, announce: Announce) -> int:
    with no_collections():
        from moldau import node  # after the settings: a wrong one is reported before the broker's code is imported
        from moldau.log.meta_properties import ForeignDirectory

    try:
        return node.run(settings, announce=announce)
    except StorageFault as error:
        raise ToolFailed(_cannot_store(error)) from error
    except (MalformedData, ForeignDirectory, SettingsError) as error:  # SettingsError: a key or certificate is unusable
        raise ToolFailed(str(error)) from error
    except ListenFault as error:
        raise ToolFailed(_cannot_listen(error)) from error
    except BrokenPipeError:  # of `announce`
        raise
    except OSError as error:  # of two brokers that start at once, both can bind the address, but only one can listen
        addresses = ", ".join(listener.address for listener in (*settings.listeners, *settings.controller_listeners))
        raise ToolFailed(_cannot_listen(ListenFault(addresses, error))) from error


def _cannot_store(fault: StorageFault) -> str:
    if fault.cause.errno in (errno.EMFILE, errno.ENFILE):
        return f"{fault}; {fault.next_step}"
    step = f"{fault.next_step}, or choose" if fault.next_step else "choose"
    return f"{fault}; {step} another directory (the setting log.dirs, or `moldau start --data-dir DIR`)"


def _cannot_listen(fault: ListenFault) -> str:
    choose = "choose another address (the setting listeners, or `moldau start --listen HOST:PORT`)"
    if isinstance(fault.cause, socket.gaierror):
        return f"{fault}; add the name to /etc/hosts, write its address, or {choose}"
    if fault.cause.errno != errno.EADDRINUSE:
        return f"{fault}; {choose}"
    from moldau.doctor.verdicts import shortened
    from moldau.platforms.machine import process_listening_on

    process = process_listening_on(int(fault.address.rpartition(":")[2]))
    by_process = "" if process is None else f" by process {process.pid} ({shortened(process.command)})"
    return f"{fault}{by_process}; stop what listens there, or {choose}"


def checked_settings(read_settings: Callable[[], Settings], warn: Callable[[str], None] = print_warning) -> Settings:
    if line := refusal_text("the broker"):
        raise ToolFailed(line)
    try:
        return read_settings()
    except SettingsError as error:
        for line in error.warnings:
            warn(line)
        raise ToolFailed(str(error)) from error


def _start(words: Sequence[str]) -> int:
    try:
        line = parse_line(words)
    except SettingsError as error:
        raise ToolFailed(str(error)) from error
    if line is None:
        print(USAGE)
        return 1
    if line.daemon:
        return _detach(line)
    return serve(lambda: load(line.file, os.environ, line.overrides))


def _detach(line: StartLine) -> int:
    """Run the same command in a session of its own. Report wrong settings here, while a terminal is attached."""
    choose_log_output()
    checked_settings(lambda: load(line.file, os.environ, line.overrides))
    log_dir = os.environ.get("LOG_DIR", "logs")
    arguments = [line.file]
    for key, value in line.overrides:
        arguments += ["--override", f"{key}={value}"]
    try:
        os.makedirs(log_dir, exist_ok=True)
        with open(os.path.join(log_dir, DAEMON_OUTPUT), "ab") as output:
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name if __spec__ else __name__, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
    except OSError as error:
        raise ToolFailed(f"{log_dir}: {error.strerror}") from error
    return 0


if __name__ == "__main__":
    sys.exit(main())
