"""Benchmarks: which options are refused, how errors end them, and which numbers are written."""

from __future__ import annotations

import ssl
import sys

import pytest

from bench import tls
from bench.cluster import __main__ as cluster_program
from bench.measuring import beside, options
from bench.measuring.results import Quantity, Result, Samples
from bench.measuring.versus import WITH, WITHOUT, Compared


@pytest.mark.parametrize("scale", ["0", "-1", "nan", "inf", "much"])
def test_an_invalid_scale_is_refused(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parser("", rounds=1).parse_args(["--scale", scale])
    assert "--scale" in capsys.readouterr().err
    assert options.parser("", rounds=1).parse_args(["--scale", "0.01"]).scale == 0.01


def test_an_empty_variable_names_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOLDAU_PEERS", "")
    parser = options.parser("", rounds=1)
    beside.add_peer(parser)
    assert parser.parse_args([]).peers is None
    monkeypatch.setattr(sys, "argv", ["bench.cluster"])
    assert cluster_program._arguments().peers is None


def test_the_memory_after_load_is_measured_after_all_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(*only: str) -> int:
        monkeypatch.setattr(sys, "argv", ["bench.cluster", *(part for each in only for part in ("--only", each))])
        return len(cluster_program._workloads(cluster_program._arguments()))

    assert chosen("after load") == chosen() > 1
    assert chosen("1x100B") == 1
    assert chosen("memory of a node, idle") == 0


def test_a_failed_tls_handshake_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def main() -> None:
        raise ssl.SSLError("certificate verify failed")

    monkeypatch.setattr(options.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit, match=r"^bench: .*certificate verify failed"):
        options.run(main)


def test_the_tls_results_have_all_workloads_of_each_system() -> None:
    compared = [
        Compared(system, Result(Quantity(name, "MB/s"), {WITHOUT: Samples([2.0]), WITH: Samples([1.0])}), 0.5)
        for name in ("produce", "fetch")
        for system in ("ours", "theirs")
    ]
    written = {
        part: [result.quantity.name for result in results] for part, (results, _) in tls.json_parts(compared).items()
    }
    assert written == {
        "with against without, ours": ["produce", "fetch"],
        "with against without, theirs": ["produce", "fetch"],
        "with TLS": ["produce", "fetch"],
    }


def test_a_plot_of_tls_ratios_is_refused_without_kafka(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.tls", "--plot", "ratios.png"])
    with pytest.raises(SystemExit):
        tls.main()
    assert "--plot draws ratios to Kafka: give its jars with --kafka-libs" in capsys.readouterr().err
