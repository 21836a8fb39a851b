"""Sinks that are backends in a pipeline's file: what is read, what is refused and where; secrets stay secret."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from moldau.backends.catalog import KINDS
from moldau.backends.delivery import Delivery
from moldau.backends.interface import Away, Row
from moldau.backends.policy import Traffic
from moldau.backends.sending import BackendGivenUp
from moldau.client.secret_properties import MASK
from moldau.pipelines.cases.case import recorded
from moldau.pipelines.planning import backend_rows
from moldau.pipelines.planning.backend_rows import ORIGIN, Batch, Delivering
from moldau.pipelines.problems import InvalidPipeline
from moldau.pipelines.reading.loading import load
from moldau.pipelines.running.outputs import outputs_of
from moldau.pipelines.spec import BackendSink, Pipeline

PIPELINE = """
name: p
sources: {orders: {topic: orders, schema: "id string, n int", dead_letter: drop}}
sinks:
  - {from: orders, """


def read(folder: Path, sink: str, environ: dict[str, str] | None = None, connects: bool = True) -> Pipeline:
    file = folder / "pipeline.yaml"
    file.write_text(PIPELINE + sink + "}\n")
    (folder / "mine.py").write_text("class Mine: ...\n")
    return load(file, environ=environ or {}, connects=connects)


def sink_of(pipeline: Pipeline) -> BackendSink:
    (sink,) = pipeline.sinks
    assert isinstance(sink, BackendSink)
    return sink


def refused(folder: Path, sink: str) -> str:
    with pytest.raises(InvalidPipeline) as raised:
        read(folder, sink)
    return "\n".join(str(problem) for problem in raised.value.problems)


def test_a_webhook_with_everything(tmp_path: Path) -> None:
    sink = sink_of(
        read(
            tmp_path,
            "backend: http, url: https://shop.example/hooks, key: id, body: n, path: id, headers: {X-N: n}, rate: 2.5,"
            " retries: 0, retry_for: 1 day, timeout: 5 seconds, parallel: 3, tasks: 2, give_up: dead_letter,"
            " dead_letter: fail, options: {method: PUT, header.X-Key: abc}, mode: update, trigger: 1 minute",
        )
    )
    assert (sink.name, sink.url, sink.key) == ("orders-to-http", "https://shop.example/hooks", "id")
    assert (sink.parts, sink.headers) == ({"body": "n", "path": "id"}, {"X-N": "n"})
    assert sink.delivery == Delivery(
        rate=2.5, parallel=3, tasks=2, retries=0, retry_for_s=86_400.0, timeout_s=5.0, give_up="dead_letter"
    )
    assert sink.delivery.limits().rate == 1.25, "each task has its share"
    assert (sink.dead_letter, sink.dead_letter_topic) == ("fail", None)
    assert (sink.mode, sink.trigger) == ("update", "1 minute")


def test_defaults(tmp_path: Path) -> None:
    sink = sink_of(read(tmp_path, "backend: http, url: http://localhost/"))
    assert sink.delivery == KINDS["http"].defaults
    assert sink.dead_letter_topic == "orders-to-http.dead"
    own = sink_of(read(tmp_path, "backend: mine:Mine, args: {n: 3, list: [a]}"))
    assert (own.name, own.user_class, own.args) == ("orders-to-Mine", ("mine", "Mine"), {"n": 3, "list": ["a"]})
    assert own.delivery.batch_rows == 100


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ("backend: htpp, url: http://h/", "there is no backend 'htpp', did you mean 'http'?"),
        ("backend: http", "missing key 'url'"),
        ("backend: http, url: ftp://h/", "the URL must begin with http:// or https://"),
        ("backend: http, url: http://h/, batch_rows: 5", "'batch_rows' is not for HTTP"),
        ("backend: http, url: http://h/, subject: n", "'subject' is not for HTTP"),
        ("backend: http, url: http://h/, args: {a: 1}", "settings of HTTP are under 'options'"),
        ("backend: http, url: http://h/, keys: [id]", "'keys' is not for backends"),
        ("backend: http, url: http://h/, headers: {Host: id}", "the header Host is not for the user to set"),
        ("backend: http, url: http://h/, headers: {'a b': id}", "cannot be a header's name"),
        ("backend: http, url: http://h/, options: {metod: PUT}", "there is no option 'metod', did you mean 'method'?"),
        ("backend: http, url: http://h/, options: {method: GET}", "the option 'method' must be one of"),
        ("backend: http, url: http://h/, rate: 0", "'rate' must be a number of rows a second"),
        ("backend: http, url: http://h/, retries: -1", "'retries' must be a whole number"),
        ("backend: http, url: http://h/, parallel: 1000", "'parallel' is at most 256"),
        ("backend: http, url: http://h/, timeout: 0 s", "'timeout' must be longer than nothing"),
        ("backend: http, url: http://h/, give_up: fail", "'give_up' says what happens after 'retry_for'"),
        ("backend: http, url: http://h/, dead_letter: orders", "the pipeline would feed itself"),
        ("backend: mail, url: 'smtp://h', to: id, options: {from: a@b}", "missing key 'subject'"),
        ("backend: mail, url: 'smtp://h', to: id, subject: id", "the option 'from' is missing"),
        ("backend: absent:Mine", "there is no module 'absent.py'"),
        ("backend: mine:Absent", "mine.py has no class 'Absent'"),
        ("backend: mine:Mine, url: http://h/", "'url' is not for a class"),
        ("backend: mine:Mine, body: id", "'body' is not for a class"),
        ("backend: http, topic: x, url: http://h/", "'topic' and 'backend' do not go together"),
        ("topic: x, rate: 5", "unknown key 'rate'"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, sink: str, message: str) -> None:
    assert message in refused(tmp_path, sink)


@pytest.mark.parametrize(
    "sink",
    [
        "backend: http, url: https://h/, options: {authorization: 'Bearer ${env:SECRET}'}",
        "backend: http, url: https://h/, options: {header.X-Api: '${env:SECRET}'}",
        "backend: http, url: https://h/, options: {user: ann, password: '${env:SECRET}'}",
        "backend: http, url: 'https://h/services/${env:SECRET}/x'",
        "backend: http, url: 'https://h/?token=${env:SECRET}'",
        "backend: mine:Mine, args: {login: {api_key: '${env:SECRET}'}}",
        "backend: mine:Mine, args: {tokens: ['${env:SECRET}']}",
    ],
)
def test_secrets_are_masked(tmp_path: Path, sink: str) -> None:
    planted = "pl4nted-secret-value"
    pipeline = read(tmp_path, sink, {"SECRET": planted})
    assert planted not in repr(pipeline)
    shown = pipeline.masked(f"POST failed: {planted}" if "?token" not in sink else f"failed: token={planted}")
    assert planted not in shown
    assert MASK in shown
    assert planted not in str(outputs_of(pipeline, ["orders-to-http"]))
    read(tmp_path, sink, {}, connects=False)  # a command that does not connect needs no secret


def test_outputs_tell_backends_apart_by_their_host(tmp_path: Path) -> None:
    pipeline = read(tmp_path, "backend: http, url: 'https://h:8443/path?x=y'")
    assert outputs_of(pipeline, ["orders-to-http"]) == ["backend http https://h:8443"]


@pytest.mark.parametrize(
    ("sink", "value"),
    [
        ("backend: http, url: http://h/", None),
        ("backend: http, url: http://h/, body: n", "n"),
        ("backend: http, url: http://h/, path: id", "to_json(named_struct('path', string(id)))"),
        ("backend: mine:Mine", None),
        (
            "backend: mail, url: 'smtp://h', to: id, subject: n, options: {from: a@b}",
            "to_json(named_struct('to', string(id), 'subject', string(n)))",
        ),
    ],
)
def test_a_test_case_records_what_would_be_sent(tmp_path: Path, sink: str, value: str | None) -> None:
    topic = recorded(sink_of(read(tmp_path, f"{sink}, key: id")))
    assert (topic.value, topic.key) == (value, "id")
    assert topic.topic == f"backend.{topic.name}"


class AwayForEver:
    """A backend that repeats a secret."""

    def open(self) -> None: ...

    def close(self) -> None: ...

    def write(self, rows: Sequence[Row]) -> None:
        raise Away("not with pl4nted-secret")


def test_a_task_that_gives_up_shows_no_secret(tmp_path: Path) -> None:
    delivering = Delivering(
        sink="s", pipeline="p", make=AwayForEver, delivery=Delivery(retry_for_s=0.01), drops=False, fails=False,
        secrets=frozenset({"pl4nted-secret"}),
    )  # fmt: skip
    batch = pa.RecordBatch.from_pydict({name: ["x"] for name in ("id", "row", *ORIGIN, "value:body")})
    with pytest.raises(BackendGivenUp) as raised:
        list(delivering.deliver(Batch("query", 0, tmp_path), [batch]))
    assert str(raised.value).startswith(f"not with {MASK} (for ")


class Taking:
    def open(self) -> None:
        pass

    close = open

    def write(self, rows: Sequence[Row]) -> None:
        pass


def test_the_rate_goes_on_in_the_next_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each micro-batch, however small, could send a row at once."""
    traffics: list[tuple[Traffic, float]] = []

    def traffic(*arguments: Any, free_at_s: float) -> Traffic:
        traffics.append((Traffic(*arguments, free_at_s=free_at_s), free_at_s))
        return traffics[-1][0]

    monkeypatch.setattr(backend_rows, "Traffic", traffic)
    delivering = Delivering(
        sink="s", pipeline="p", make=Taking, delivery=Delivery(rate=1000), drops=True, fails=False, secrets=frozenset()
    )
    rows = pa.RecordBatch.from_pydict({name: ["x"] for name in ("id", "row", *ORIGIN, "value:body")})
    for number, state in enumerate((tmp_path / "one", tmp_path / "one", tmp_path / "other")):
        list(delivering.deliver(Batch("query", number, state), [rows]))
    assert [began for _, began in traffics] == [0.0, traffics[0][0].free_at_s, 0.0]
    assert traffics[0][0].free_at_s > 0
