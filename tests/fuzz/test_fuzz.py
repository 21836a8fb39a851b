"""Some cases of every target, and a check that the fuzzer finds each of these broken parsers.

`make fuzz` runs more cases. MOLDAU_FUZZ_SEED chooses others.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import fuzz
import fuzz_security
import fuzz_wire
import pytest
from fuzz_checks import Limits, LogLines, Violation, check_line
from harness.depth import deep
from harness.tls_files import MemoryKeyFiles

from moldau.base.errors import MalformedData
from moldau.base.setting_sources import SettingsError
from moldau.log import opening
from moldau.security.sasl.mechanism import SaslRefusal, Step
from moldau.security.sasl.plain import PlainServer
from moldau.security.tls import der, names
from moldau.security.tls.settings import StoreSettings
from moldau.security.tls.stores import read_key_store
from moldau.server.router import Router
from moldau.settings import from_properties
from moldau.wire import compression, records

SEED = int(os.environ.get("MOLDAU_FUZZ_SEED", "0"))
CASES = {"messages": 3000, "requests": 1000, "produce": 1000, "sasl": 1000, "stores": 300, "settings": 300}
"""Number of cases of the targets that do not have the usual number."""
USUAL_CASES = 1000


@pytest.fixture(autouse=True)
def _time_limit() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, fuzz._too_slow)
    yield
    signal.signal(signal.SIGALRM, before)


def failures(target: str, cases: int, failures_max: int = 1) -> list[fuzz.Failure]:
    made = fuzz.TARGETS[target][0]()
    found: list[fuzz.Failure] = []
    for first in range(0, cases, made.block_cases):
        block = fuzz.Block(target, SEED, first, min(made.block_cases, cases - first))
        found += fuzz.run_block(made, block, failures_max)
        if len(found) >= failures_max:
            break
    return found


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_mutated_input_causes_no_violation(target: str) -> None:
    found = failures(target, deep(CASES.get(target, USUAL_CASES)))
    assert not found, "\n".join(map(str, found))


def test_a_case_is_reproducible() -> None:
    for name in ("messages", "produce", "sasl", "certificates", "stores", "settings"):
        one, other = (fuzz.TARGETS[name][0]() for _ in range(2))
        for case in (0, 77, 999_999):
            first = one.make(fuzz.case_generator(name, SEED, case))
            assert other.make(fuzz.case_generator(name, SEED, case)) == first


# --- bugs that the fuzzer found -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("valid", "damaged"),
    [
        (b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x01"),  # a version of certificates that does not exist
        (b"\x16\x0fann", b"\x16\x0f\xffnn"),  # a name that is read only when the chain is put in order
    ],
)
def test_a_damaged_certificate_in_a_pkcs12_store_is_an_error_in_one_line(valid: bytes, damaged: bytes) -> None:
    data = fuzz_security.identity().p12
    assert valid in data
    files = MemoryKeyFiles({"store": data.replace(valid, damaged)})
    with pytest.raises(SettingsError, match=r"^ssl.keystore.location=store: [^\n]+$"):
        read_key_store(StoreSettings("ssl.keystore", "PKCS12", "store", "secret"), files)


def test_an_error_about_a_setting_with_a_line_end_is_one_line() -> None:
    with pytest.raises(SettingsError, match=r"^[^\n]*16\\n8[^\n]*$"):
        from_properties({"log.retention.hours": "16\n8"})


# --- broken parsers that the fuzzer must find ---------------------------------------------------------------------

Break = Callable[[pytest.MonkeyPatch], None]


def without_a_length_check(patch: pytest.MonkeyPatch) -> None:
    """DER: a length may be beyond the end."""
    read = der._read_length

    def unchecked(data: bytes, position: int) -> tuple[int, int]:
        try:
            return read(data, position)
        except MalformedData:
            return position, data[position + 1]

    patch.setattr(der, "_read_length", unchecked)


def without_a_limit_for_decompressed_bytes(patch: pytest.MonkeyPatch) -> None:
    whole = compression.decompress
    patch.setattr(fuzz_wire, "decompress", lambda codec, data, limit=0: whole(codec, data))


def without_a_maximum_length_of_varints(patch: pytest.MonkeyPatch) -> None:
    def unchecked(data: bytes, position: int, bits: int = 32) -> tuple[int, int]:
        raw = shift = 0
        while (byte := data[position]) >= 0x80:
            raw, shift, position = raw | (byte & 0x7F) << shift, shift + 7, position + 1
        raw |= byte << shift
        return (raw >> 1) ^ -(raw & 1), position + 1

    patch.setattr(records, "read_varint", unchecked)


def without_an_error_for_malformed_records(patch: pytest.MonkeyPatch) -> None:
    """Records that cannot be decoded are not answered with an error: the connection is closed."""
    patch.setattr(opening, "decoded_records", lambda batch, config: records.decode_records(batch))


def with_bytes_of_the_request_in_an_error(patch: pytest.MonkeyPatch) -> None:
    answer = Router.answer

    def talkative(self: Router, listener: str, address: str, access: Any, frame: memoryview) -> Any:
        try:
            return answer(self, listener, address, access, frame)
        except MalformedData as refused:
            raise MalformedData(f"{refused}: {bytes(frame[:200])!r}") from refused.__cause__

    patch.setattr(Router, "answer", talkative)


def with_passwords_that_are_compared_by_prefix(patch: pytest.MonkeyPatch) -> None:
    def careless(self: PlainServer, token: bytes) -> Step:
        parts = token.decode("utf-8", "replace").split("\0")
        if len(parts) != 3 or not self._passwords.get(parts[1], "\0").startswith(parts[2]):
            raise SaslRefusal
        return Step(b"", parts[1])

    patch.setattr(PlainServer, "respond", careless)


def with_a_loop_over_a_claimed_length(patch: pytest.MonkeyPatch) -> None:
    def patient(data: bytes) -> str:
        for _ in range(8 * int.from_bytes(data[:2], "big")):
            pass
        return names.subject(data)

    patch.setattr(fuzz_security, "subject", patient)


def with_an_error_that_quotes_a_password(patch: pytest.MonkeyPatch) -> None:
    whole = fuzz_security.parse_line

    def talkative(text: str) -> Any:
        try:
            return whole(text)
        except fuzz_security.JaasError as wrong:
            raise fuzz_security.JaasError(f"{wrong}: {text}") from None

    patch.setattr(fuzz_security, "parse_line", talkative)


@pytest.mark.parametrize(
    ("target", "cases", "break_it"),
    [
        ("certificates", 1000, without_a_length_check),
        ("certificates", 1000, with_a_loop_over_a_claimed_length),
        ("compression", 1000, without_a_limit_for_decompressed_bytes),
        ("records", 1000, without_a_maximum_length_of_varints),
        ("produce", 1000, without_an_error_for_malformed_records),
        ("requests", 500, with_bytes_of_the_request_in_an_error),
        ("sasl", 1000, with_passwords_that_are_compared_by_prefix),
        ("jaas", 500, with_an_error_that_quotes_a_password),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_broken_parser_is_found(target: str, cases: int, break_it: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(monkeypatch)
    assert failures(target, cases), "the fuzzer did not find the broken parser"


def test_work_and_memory_over_the_limit_are_violations() -> None:
    limits = Limits(operations=100, per_byte=1, memory=100, memory_per_byte=1)
    limits.check_operations(110, 10)
    limits.check_memory(110, 10)
    with pytest.raises(Violation, match="111 lines"):
        limits.check_operations(111, 10)
    with pytest.raises(Violation, match="111 bytes"):
        limits.check_memory(111, 10)


class Scripted:
    """A target whose cases fail or pass as told; the input of a case is its number in the block."""

    name = "scripted"
    block_cases = 30
    limits = Limits()

    def __init__(self, failing: range = range(0), at_end: Callable[[], None] = lambda: None) -> None:
        self._failing, self.end = failing, at_end
        self._made = 0

    def begin(self) -> None:
        pass

    def make(self, rng: Random) -> int:
        self._made += 1
        return self._made - 1

    def size_of(self, made: int) -> int:
        return 1

    def run(self, made: int) -> None:
        if made in self._failing:
            raise Violation(f"case {made}")


def broken_end() -> None:
    raise Violation("at the end")


@pytest.mark.parametrize(
    ("at_end", "what"),
    [(broken_end, "at the end"), (lambda: logging.getLogger("moldau.server").info("two\nlines"), "not plain text")],
)
def test_a_violation_at_the_end_of_a_block_is_a_failure_of_its_last_case(at_end: Callable[[], None], what: str) -> None:
    (failure,) = fuzz.run_block(Scripted(at_end=at_end), fuzz.Block("scripted", SEED, 30, 10))
    assert failure.case == 39
    assert what in failure.what


@pytest.mark.parametrize(("case", "status"), [(3, 1), (14, 1), (20, 0)])
def test_only_the_repeated_case_decides_whether_it_fails(
    case: int, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(fuzz.TARGETS, "scripted", (lambda: Scripted(failing=range(15)), 1))
    assert fuzz.repeat("scripted", SEED, case) == status
    printed = capsys.readouterr().out
    assert printed.count("to repeat it: ") == status
    assert ("the case fails" if status else "the case does not fail") in printed


def test_a_run_without_cases_has_no_failures(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.run(0, SEED, 1, "messages") == 0
    assert "0 failures; largest process 0 MiB" in capsys.readouterr().out


def test_a_run_stopped_before_its_first_block_ends_with_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(_: fuzz.Block) -> fuzz.Result:
        raise KeyboardInterrupt

    monkeypatch.setattr(fuzz, "run_in_process", stopped)
    assert fuzz.run(10**6, SEED, 1, None) == 0
    assert "stopped before the end" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["two\nlines", "a PlantedZq", "x" * 2000, "\x1b[31m"])
def test_a_forbidden_log_line_is_a_violation(line: str) -> None:
    with pytest.raises(Violation):
        check_line(line)


def test_a_logged_traceback_is_a_violation() -> None:
    with LogLines() as lines:
        try:
            Random().choice([])
        except IndexError:
            logging.getLogger("moldau.server").exception("it failed")
        with pytest.raises(Violation, match="traceback"):
            lines.check()
