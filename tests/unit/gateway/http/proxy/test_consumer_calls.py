"""Who may make how many consumers, whose they are, and when they end. Nobody answers these consumers: the cluster is in
memory, and they are librdkafka's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from harness.gateway_accounts import MemoryAccount, MemoryAccounts, MemoryCluster
from harness.gateway_http import RunningGateway, http_gateway
from harness.patience import PATIENCE_S, wait_until
from harness.rest_proxy import JSON, V2, V2_JSON, RestClient

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.http.limits import HttpLimits
from moldau.gateway.http.proxy.consumer_config import ConsumerConfig, consumer_config
from moldau.gateway.http.proxy.failures import ProxyError

LOGIN = KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "no login")
LIMITS = HttpLimits(consumers=3, consumers_of_user=2)


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with http_gateway(lambda: MemoryAccounts(MemoryCluster(telemetry=1), "nobody"), limits=LIMITS) as running:
        yield running


@pytest.fixture
def anna(gateway: RunningGateway) -> Iterator[RestClient]:
    with RestClient(gateway.port, "anna", "secret") as client:
        yield client


@pytest.fixture(autouse=True)
def no_consumers_are_left(gateway: RunningGateway) -> Iterator[None]:
    yield
    gateway.call(lambda: gateway.server.consumers.sweep(float("inf")))
    assert gateway.server.consumers.count == 0


def made(client: RestClient, name: str, **config: Any) -> str:
    answer = client.post("/consumers/g", {"name": name, **config})
    assert answer.status == 200, answer
    return "/" + str(answer.json["base_uri"]).split("/", 3)[3]


def test_a_consumer_belongs_to_its_user(gateway: RunningGateway, anna: RestClient) -> None:
    path = made(anna, "one")
    assert anna.get(f"{path}/subscription").json == {"topics": []}
    assert anna.post("/consumers/g", {"name": "one"}).json["error_code"] == 40902
    with RestClient(gateway.port, "bert") as bert:
        for method, call in (("GET", "/records"), ("GET", "/subscription"), ("POST", "/offsets"), ("DELETE", "")):
            answer = bert.ask(method, path + call)
            assert (answer.status, answer.json["error_code"]) == (404, 40403)
        assert bert.post("/consumers/g", {"name": "one"}).status == 200
    assert anna.delete(path).status == 204
    assert anna.get(f"{path}/records").json["error_code"] == 40403


def test_consumers_are_limited(gateway: RunningGateway, anna: RestClient) -> None:
    paths = [made(anna, str(number)) for number in range(2)]
    answer = anna.post("/consumers/g")
    assert (answer.status, answer.json["error_code"]) == (429, 42901)
    with RestClient(gateway.port, "bert") as bert:
        assert bert.post("/consumers/g").status == 200
        assert "there are 3 consumers" in bert.post("/consumers/g").json["message"]
    assert anna.delete(paths[0]).status == 204
    assert anna.post("/consumers/g").json["instance_id"].startswith("rest-consumer-")


def test_a_consumer_without_a_request_ends(gateway: RunningGateway, anna: RestClient) -> None:
    path = made(anna, "idle")
    now = gateway.loop.time()
    gateway.call(lambda: gateway.server.consumers.sweep(now + LIMITS.consumer_idle_s - 60))
    assert anna.get(f"{path}/subscription").status == 200
    gateway.call(lambda: gateway.server.consumers.sweep(now + LIMITS.consumer_idle_s + 60))
    assert anna.get(f"{path}/subscription").json["error_code"] == 40403
    wait_until(lambda: not threads(), "its thread has ended")


def test_a_consumer_may_be_deleted_while_it_is_made(
    gateway: RunningGateway, anna: RestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, deleted = threading.Event(), threading.Event()

    def login(_: MemoryAccount) -> None:
        begun.set()
        deleted.wait(PATIENCE_S)
        raise LOGIN

    monkeypatch.setattr(MemoryAccount, "client_settings", login)
    answers: list[Any] = []

    def make() -> None:
        with RestClient(gateway.port, "anna", "secret") as other:
            answers.append(other.post("/consumers/g", {"name": "soon"}))

    maker = threading.Thread(target=make)
    maker.start()
    assert begun.wait(PATIENCE_S)
    remover = threading.Thread(target=lambda: anna.delete("/consumers/g/instances/soon"))
    remover.start()
    wait_until(lambda: gateway.server.consumers.count == 0, "it is deleted")
    deleted.set()
    for each in (maker, remover):
        each.join(PATIENCE_S)
    assert (answers[0].status, answers[0].json["message"]) == (500, "no login")
    assert not caplog.records


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("consumer of ")]


def test_a_consumer_that_waits_is_in_use_and_ends_when_it_is_deleted(gateway: RunningGateway, anna: RestClient) -> None:
    path = made(anna, "waiting", **{"consumer.request.timeout.ms": 60_000})
    anna.post(f"{path}/subscription", {"topics": ["telemetry"]})
    answers: list[Any] = []

    def read() -> None:
        with RestClient(gateway.port, "anna", "secret") as other:
            answers.append(other.get(f"{path}/records"))

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(lambda: gateway.server.consumers.pending, "the reader waits")
    gateway.call(lambda: gateway.server.consumers.sweep(float("inf")))
    assert gateway.server.consumers.count == 1
    assert anna.delete(path).status == 204
    reader.join(PATIENCE_S)
    assert answers[0].json == []


@pytest.mark.parametrize(
    ("call", "body", "content_type", "status", "code"),
    [
        ("subscription", b"{", V2, 400, 400),
        ("subscription", b"", V2, 400, 400),
        ("subscription", {}, V2, 422, 422),
        ("subscription", {"topics": ["a"], "topic_pattern": "b"}, V2, 422, 422),
        ("subscription", {"topics": ["a"]}, JSON, 415, 415),
        ("subscription", b"x" * 3_000_000, V2, 413, 413),
        ("assignments", {"partitions": [{"topic": "a", "partition": -1}]}, V2, 422, 422),
        ("positions", {"offsets": [{"topic": "a", "partition": 0, "offset": 1 << 63}]}, V2, 422, 422),
        ("positions", {"timestamps": [{"topic": "missing", "partition": 0, "timestamp": 1}]}, V2, 404, 40401),
        ("positions", {"timestamps": [{"topic": "telemetry", "partition": 0, "timestamp": "now"}]}, V2, 400, 400),
        ("positions/end", {"partitions": [{"topic": "telemetry", "partition": 0}]}, V2_JSON, 409, 40903),
        ("positions/beginning", {"partitions": [{"topic": "telemetry", "partition": 1}]}, V2, 404, 40402),
        ("positions/beginning", {"partitions": [{"topic": "missing", "partition": 0}]}, V2, 404, 40401),
        ("positions", {"timestamps": [{"topic": "telemetry", "partition": 1, "timestamp": 0}]}, V2, 404, 40402),
        ("offsets", {"offsets": 1}, V2, 422, 422),
        ("nothing", {}, V2, 404, 404),
        ("records", {}, V2, 405, 405),
    ],
)
def test_bad_calls_are_refused(
    gateway: RunningGateway, call: str, body: Any, content_type: str, status: int, code: int
) -> None:
    with RestClient(gateway.port, "anna", "secret") as anna:
        path = made(anna, "one")
        try:
            answer = anna.post(f"{path}/{call}", body, content_type)
        except (BrokenPipeError, ConnectionResetError):  # what is too large is not read
            assert status == 413
        else:
            assert (answer.status, answer.json["error_code"]) == (status, code), answer


def test_calls_of_one_consumer_do_not_pile_up(gateway: RunningGateway, anna: RestClient) -> None:
    path = made(anna, "busy")
    gate = threading.Event()

    async def ask_at_once() -> list[Any]:
        account = MemoryCluster().account("anna")
        consumers = gateway.server.consumers
        waiting = consumers.call(account, "g", "busy", lambda _: gate.wait(PATIENCE_S))
        others = [consumers.call(account, "g", "busy", lambda consumer: consumer.subscription()) for _ in range(20)]
        tasks = [asyncio.create_task(each) for each in (waiting, *others)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    *answered, last = asyncio.run_coroutine_threadsafe(ask_at_once(), gateway.loop).result(PATIENCE_S)
    assert answered == [True, *[[]] * 19]
    assert isinstance(last, ProxyError)
    assert last.code == 42901
    assert anna.get(f"{path}/subscription").status == 200


# --- what a client may choose -----------------------------------------------------------------------------------------


def test_a_consumer_is_as_the_client_chooses() -> None:
    body = b'{"name": "a", "format": "JSON", "auto.offset.reset": "none", "auto.commit.enable": "false",'
    body += b' "fetch.min.bytes": "100", "consumer.request.timeout.ms": 3000}'
    assert consumer_config("g", body) == ConsumerConfig("g", "a", True, "error", False, 100, 3_000)
    named = consumer_config("g", b'{"id": "b", "name": "a", "consumer.request.timeout.ms": 9999999}')
    assert named == ConsumerConfig("g", "b", False, "latest", True, -1, 60_000)
    assert consumer_config("g", b"").name.startswith("rest-consumer-")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[]", 422),
        (b"{", 400),
        (b'{"unknown": 1}', 422),
        (b'{"format": "xml"}', 422),
        (b'{"format": "avro"}', 42206),
        (b'{"name": "a/b"}', 42204),
        (b'{"name": "%b"}' % (b"x" * 201), 42204),
        (b'{"auto.offset.reset": "smallest"}', 42204),
        (b'{"auto.commit.enable": "maybe"}', 42204),
        (b'{"fetch.min.bytes": -2}', 40001),
        (b'{"fetch.min.bytes": 10000001}', 40001),
        (b'{"fetch.min.bytes": "many"}', 42204),
        (b'{"fetch.min.bytes": %b}' % (b"9" * 5_000), 422),
        (b'{"fetch.min.bytes": %b}' % (b"9" * 50), 42204),
        (b'{"consumer.request.timeout.ms": -1}', 42204),
    ],
)
def test_what_cannot_be_chosen_is_refused(body: bytes, code: int) -> None:
    with pytest.raises(ProxyError) as refused:
        consumer_config("g", body)
    assert refused.value.code == code
