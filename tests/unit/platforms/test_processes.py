"""The process list: real processes, read from /proc and from `ps`, and simulated output of macOS' `ps`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from harness.patience import wait_until

from moldau.cli.kafka import server_stop
from moldau.cli.kafka.server_stop import as_server
from moldau.platforms import processes as processes_module
from moldau.platforms.processes import (
    PROCESSES,
    NoProcessList,
    Processes,
    ProcFiles,
    PsLines,
    processes_of,
    run_ps,
)

WORD = "word-" + "x" * 300


@pytest.fixture(params=["proc", "ps"])
def processes(request: pytest.FixtureRequest) -> Processes:
    if request.param == "ps" and shutil.which("ps") is None:
        pytest.skip("there is no ps on the PATH")
    if request.param == "proc" and not isinstance(PROCESSES, ProcFiles):
        pytest.skip("there is no /proc as Linux has it")
    return ProcFiles() if request.param == "proc" else PsLines()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()", WORD], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


def test_the_start_time_is_stable_until_the_process_ends(
    processes: Processes, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    start_time = processes.start_time(child.pid)
    assert start_time
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # another terminal
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert processes.start_time(child.pid) == start_time
    child.kill()
    wait_until(lambda: processes.start_time(child.pid) is None, "the process has ended")  # a zombie counts as ended
    child.wait()
    assert processes.start_time(child.pid) is None


def test_a_paused_process_is_detected(processes: Processes, child: subprocess.Popen[bytes]) -> None:
    assert not processes.is_paused(child.pid)
    child.send_signal(signal.SIGSTOP)
    wait_until(lambda: processes.is_paused(child.pid), "the process is paused")
    child.send_signal(signal.SIGCONT)
    wait_until(lambda: not processes.is_paused(child.pid), "the process runs again")


def test_memory_is_in_bytes(processes: Processes) -> None:
    assert 10 << 20 < (processes.memory_bytes(os.getpid()) or 0) < 100 << 30


def test_an_ended_process_has_no_memory_and_is_not_paused(processes: Processes, child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    assert processes.memory_bytes(child.pid) is None
    assert not processes.is_paused(child.pid)


def test_every_process_is_listed_with_its_whole_command_line(
    processes: Processes, child: subprocess.Popen[bytes]
) -> None:
    wait_until(
        lambda: any(process.pid == child.pid and WORD in process.argv for process in processes.all()),
        "the process is listed",
    )
    assert os.getpid() in {process.pid for process in processes.all()}


class MacPs:
    """Simulates `ps` of macOS: a field with a heading is the last one of its argument."""

    LINES = (
        "  501 /Library/Frameworks/Python.framework/Versions/3.13/Resources/Python.app/Contents/MacOS/Python"
        " -m moldau start --config a.properties\n  502 -zsh\n  503 (kafka)\n"
    )

    def __init__(self) -> None:
        self.fields: list[str] = []

    def __call__(self, options: Sequence[str]) -> str:
        self.fields = [word for before, word in pairwise(options) if before == "-o"]
        for word in self.fields:
            assert word.index("=") == len(word) - 1, f"macOS takes {word} for one column with a heading"
        if "-A" in options:
            assert "-ww" in options, "macOS cuts lines at the width of the terminal"
            return self.LINES
        values = {"stat=": "S+", "lstart=": "Sat Oct  4 07:05:09 2025    ", "rss=": " 34816"}
        return " ".join(values[word] for word in self.fields) + "\n"


def test_the_ps_output_of_macos_is_parsed() -> None:
    processes = PsLines(MacPs())
    assert processes.start_time(501) == "Sat Oct  4 07:05:09 2025"
    assert processes.memory_bytes(501) == 34 << 20
    assert not processes.is_paused(501)


def test_a_server_is_found_in_the_process_list_of_macos() -> None:
    (server,) = filter(None, map(as_server, PsLines(MacPs()).all()))
    assert server.process.pid == 501
    assert server.words == ("--config", "a.properties")


def test_ps_uses_a_fixed_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("ps") is None:
        pytest.skip("there is no ps on the PATH")
    options = ["-o", "lstart=", "-p", str(os.getpid())]
    outputs = []
    for zone in ("Asia/Tokyo", "America/Lima"):
        monkeypatch.setenv("TZ", zone)
        outputs.append(run_ps(options))
    assert outputs[0] == outputs[1] != ""


def test_the_name_of_a_program_may_have_any_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "7").mkdir()
    fields = " ".join(map(str, range(1, 50)))
    (tmp_path / "7" / "stat").write_bytes(b"7 (\xff\xfe) x) T " + fields.encode())
    monkeypatch.setattr(processes_module, "PROC", str(tmp_path))
    assert ProcFiles().is_paused(7)
    assert ProcFiles().start_time(7) == "19"


def test_a_missing_proc_and_ps_are_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoProcessList, match="mount /proc or install procps"):
        run_ps(["-p", "1"])
    monkeypatch.setattr(server_stop, "PROCESSES", PsLines())
    assert server_stop.main([]) == 1
    assert capsys.readouterr().err == f"{NoProcessList()}\n"


def test_ps_is_used_without_proc(tmp_path: Path) -> None:
    assert isinstance(processes_of(str(tmp_path)), PsLines)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "stat").touch()
    assert isinstance(processes_of(str(tmp_path)), ProcFiles)
