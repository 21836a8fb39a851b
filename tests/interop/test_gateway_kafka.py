"""The gateway's accounts before real brokers: who is let in, what each may do, and that no acknowledged record is lost
or there twice when a leader is killed."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from typing import Any

import pytest
from harness.append_history import AppendCall, check
from harness.login_broker import LoginBroker, login_broker, run_with_accounts
from harness.patience import PATIENCE_S, wait_until

from moldau.base.acl_operations import AclOperation
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.topics import create_topic
from moldau.client.cluster import Cluster
from moldau.gateway.kafka import accounts as accounts_module
from moldau.gateway.kafka.account import KafkaAccount
from moldau.gateway.kafka.accounts import IDLE_S, KafkaAccounts
from moldau.gateway.kafka.device_tokens import DeviceToken
from moldau.gateway.ports import Certificate, Credentials, NewRecord, Password, Place, Token
from moldau.security.acls.bindings import ResourceType
from moldau.testing.cluster import TestCluster

pytestmark = pytest.mark.moldau_only
Test = Callable[[KafkaAccounts], Coroutine[Any, Any, None]]
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
RULES = {"ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginBroker]:
    with login_broker(tmp_path_factory.mktemp("logins")) as running:
        for user, password in (("gate", "pw-gate"), ("anna", "pw-anna"), ("bob", "pw-bob")):
            running.set_password(user, password)
        for topic in ("telemetry", "secret"):
            running.create_topic(topic)
        for user in ("anna", "pump-7"):
            running.allow(user, READ, WRITE, kind=ResourceType.TOPIC, name="telemetry")
        running.allow("watcher", DESCRIBE, kind=ResourceType.TOPIC, name="telemetry")
        running.allow("reader", READ, kind=ResourceType.TOPIC, name="telemetry")
        running.allow("pump-7", DESCRIBE, kind=ResourceType.TOPIC, name="secret")
        for device in ("pump-7", "pump-8"):
            running.allow("gate", AclOperation.CREATE_TOKENS, kind=ResourceType.USER, name=f"User:{device}")
        yield running


async def refusal(accounts: KafkaAccounts, credentials: Credentials) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await accounts.account(credentials)
    return raised.value.code


async def append_one(account: KafkaAccount, topic: str = "telemetry") -> Place | ErrorCode:
    """Return its place, or why it was refused."""
    try:
        (outcome,) = await account.append(topic, [NewRecord(b"1", partition=0)])
    except KafkaError as error:
        return error.code
    return outcome.code if isinstance(outcome, KafkaError) else outcome


async def check_read(account: KafkaAccount, topic: str) -> ErrorCode | None:
    try:
        await account.check_read(topic)
    except KafkaError as error:
        return error.code
    return None


def pump(number: int) -> Certificate:
    return Certificate(f"CN=pump-{number},O=Waterworks")


# --- who is let in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_users_log_in_with_their_passwords_and_have_their_own_rights(broker: LoginBroker, mechanism: str) -> None:
    async def test(accounts: KafkaAccounts) -> None:
        anna = await accounts.account(Password("anna", "pw-anna"))
        assert anna is await accounts.account(Password("anna", "pw-anna"))
        assert anna.user == "anna"
        place = await append_one(anna)
        assert isinstance(place, Place)
        assert (await anna.bounds("telemetry"))[0][1] == place.offset + 1
        assert await append_one(anna, "secret") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await append_one(anna, "missing") in (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        bob = await accounts.account(Password("bob", "pw-bob"))
        assert await append_one(bob) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for wrong in (("anna", "wrong"), ("nobody", "pw-anna"), ("anna", ""), ("", "pw"), ("an\0na", "pw"), ("ä", "ö")):
            assert await refusal(accounts, Password(*wrong)) is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await refusal(accounts, None) is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert accounts.count == 2
        assert isinstance(await append_one(anna), Place)

    run_with_accounts(broker.bootstrap, broker.properties("gate", mechanism), test)


def test_those_without_credentials_are_the_gateway_if_they_may_be(broker: LoginBroker) -> None:
    async def test(accounts: KafkaAccounts) -> None:
        assert await accounts.account(None) is accounts.own
        assert isinstance(await append_one(accounts.own), Place)

    run_with_accounts(broker.bootstrap, broker.properties("anna"), test, anonymous=True)


def test_a_refusal_is_remembered_for_a_while_without_its_traces(broker: LoginBroker) -> None:
    async def test(accounts: KafkaAccounts) -> None:
        depths = set()
        for _ in range(20):
            try:
                await accounts.account(Password("anna", "guessed"))
            except KafkaError as error:
                depths.add(len(traceback.extract_tb(error.__traceback__)))
        assert max(depths) < 15
        await accounts.sweep(asyncio.get_running_loop().time() + accounts_module.REFUSED_S + 1)
        assert await refusal(accounts, Password("anna", "guessed")) is ErrorCode.SASL_AUTHENTICATION_FAILED

    run_with_accounts(broker.bootstrap, broker.properties("gate"), test)


def test_many_who_come_at_the_same_time_are_checked_once(broker: LoginBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    logins = []
    log_in = KafkaAccount.log_in

    async def counted(account: KafkaAccount) -> None:
        logins.append(account.user)
        await log_in(account)

    monkeypatch.setattr(KafkaAccount, "log_in", counted)

    async def test(accounts: KafkaAccounts) -> None:
        coming = [asyncio.create_task(accounts.account(Password("anna", "pw-anna"))) for _ in range(50)]
        await asyncio.sleep(0)
        coming[0].cancel()
        found = await asyncio.gather(*coming[1:])
        assert len(set(found)) == 1
        assert logins == ["anna"]

    run_with_accounts(broker.bootstrap, broker.properties("gate"), test)


def test_a_password_that_was_changed_is_refused_after_a_while(
    broker: LoginBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.set_password("carl", "old")
    broker.allow("carl", WRITE, kind=ResourceType.TOPIC, name="telemetry")

    async def test(accounts: KafkaAccounts) -> None:
        carl = await accounts.account(Password("carl", "old"))
        assert isinstance(await append_one(carl), Place)
        await asyncio.to_thread(broker.set_password, "carl", "new")
        assert await accounts.account(Password("carl", "old")) is carl
        monkeypatch.setattr(accounts_module, "CHECK_S", 0.0)
        assert await refusal(accounts, Password("carl", "old")) is ErrorCode.SASL_AUTHENTICATION_FAILED
        again = await accounts.account(Password("carl", "new"))
        assert again is not carl
        assert isinstance(await append_one(again), Place)
        # A device that is still connected with the old one is refused too.
        assert await append_one(carl) is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert accounts.bytes_under_way == 0

    run_with_accounts(broker.bootstrap, broker.properties("gate", "SCRAM-SHA-256"), test)


def test_tokens_of_oauth_are_checked_by_the_brokers(broker: LoginBroker) -> None:
    async def test(accounts: KafkaAccounts) -> None:
        anna = await accounts.account(Token(broker.issuer.token("anna")))
        assert anna.user == "anna"
        assert isinstance(await append_one(anna), Place)
        bob = await accounts.account(Token(broker.issuer.token("bob")))
        assert await append_one(bob) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        token = broker.issuer.token("anna")
        for wrong in (
            broker.issuer.token("anna", lifetime_s=-100),
            broker.issuer.token("anna", aud="other"),
            token[:-8] + "AAAAAAAA",
            "nonsense",
            "a.b.c",
            "no token\n",
            "",
        ):
            assert await refusal(accounts, Token(wrong)) is ErrorCode.SASL_AUTHENTICATION_FAILED

    run_with_accounts(broker.bootstrap, broker.properties("gate"), test)


# --- what each may do -------------------------------------------------------------------------------------------


def test_a_gateway_that_may_not_create_its_topics_uses_those_that_are_there(broker: LoginBroker) -> None:
    broker.create_topic("_made_before")
    broker.allow("gate", READ, WRITE, kind=ResourceType.TOPIC, name="_made_before")

    async def test(accounts: KafkaAccounts) -> None:
        await accounts.create_topics(["_made_before"])
        with pytest.raises(KafkaError, match="the topic _not_made cannot be created") as raised:
            await accounts.create_topics(["_made_before", "_not_made"])
        assert raised.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    run_with_accounts(broker.bootstrap, broker.properties("gate"), test)


def test_to_see_a_topic_is_not_to_read_it(broker: LoginBroker) -> None:
    for user in ("watcher", "reader"):
        broker.set_password(user, "pw")

    async def test(accounts: KafkaAccounts) -> None:
        watcher = await accounts.account(Password("watcher", "pw"))
        reader = await accounts.account(Password("reader", "pw"))
        for account in (watcher, reader):
            assert (await account.bounds("telemetry")).keys() == {0, 1}
            assert await check_read(account, "secret") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert await append_one(account) in (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            )
        assert await check_read(watcher, "telemetry") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await check_read(reader, "telemetry") is None
        following = watcher.follow("telemetry", {0: 0})
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            await following.next()
        following.close()

    run_with_accounts(broker.bootstrap, broker.properties("gate", "SCRAM-SHA-256"), test)


# --- certificates -----------------------------------------------------------------------------------------------


def test_a_device_with_a_certificate_has_a_token_of_which_it_is_the_owner(broker: LoginBroker) -> None:
    async def test(accounts: KafkaAccounts) -> None:
        device = await accounts.account(pump(7))
        assert device.user == "pump-7"
        assert isinstance(await append_one(device), Place)
        assert await append_one(device, "secret") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        (found,) = await asyncio.to_thread(broker.tokens)
        token = found.token
        assert (str(token.owner), str(token.requester)) == ("User:pump-7", "User:gate")
        assert [str(renewer) for renewer in token.renewers] == ["User:gate"]

    run_with_accounts(broker.bootstrap, broker.properties("gate") | RULES, test)
    assert broker.tokens() == [], "the gateway leaves none behind"


def test_a_certificate_without_a_user_or_without_a_right_to_tokens_is_refused(broker: LoginBroker) -> None:
    async def test(accounts: KafkaAccounts) -> None:
        assert await refusal(accounts, Certificate("O=Waterworks")) is ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(KafkaError, match="no delegation token for User:pump-9"):
            await accounts.account(pump(9))
        assert accounts.count == 0

    run_with_accounts(broker.bootstrap, broker.properties("gate") | RULES, test)


def test_a_device_that_comes_again_and_again_has_one_token(broker: LoginBroker) -> None:
    async def test(accounts: KafkaAccounts) -> None:
        for _ in range(3):
            device = await accounts.account(pump(7))
            assert isinstance(await append_one(device), Place)
            await accounts.sweep(asyncio.get_running_loop().time() + IDLE_S + 1)
            assert accounts.count == 0
        await accounts.account(pump(8))
        assert len(await asyncio.to_thread(broker.tokens)) == 2
        assert isinstance(await append_one(device), Place)  # who is still connected goes on

    run_with_accounts(broker.bootstrap, broker.properties("gate") | RULES, test)
    assert broker.tokens() == []


def test_tokens_are_renewed_after_half_of_their_time(broker: LoginBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(accounts: KafkaAccounts) -> None:
        await accounts.account(pump(7))
        (before,) = await asyncio.to_thread(broker.tokens)
        await accounts.sweep(asyncio.get_running_loop().time())
        assert (await asyncio.to_thread(broker.tokens)) == [before]
        half = (before.token.expires_ms - before.token.issued_ms) // 2
        monkeypatch.setattr("moldau.gateway.kafka.device_tokens._now_ms", lambda: before.token.issued_ms + half + 1_000)
        await accounts.sweep(asyncio.get_running_loop().time())
        (after,) = await asyncio.to_thread(broker.tokens)
        assert after.token.expires_ms > before.token.expires_ms

    run_with_accounts(broker.bootstrap, broker.properties("gate") | RULES, test)


def test_a_device_has_another_account_before_its_token_can_be_renewed_no_more(
    broker: LoginBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(accounts: KafkaAccounts) -> None:
        before = await accounts.account(pump(7))
        (old,) = await asyncio.to_thread(broker.tokens)
        monkeypatch.setattr(DeviceToken, "is_fresh", property(lambda token: token.hmac != old.hmac))
        after = await accounts.account(pump(7))
        assert after is not before
        assert after is await accounts.account(pump(7))
        assert len(await asyncio.to_thread(broker.tokens)) == 2
        for device in (before, after):
            assert isinstance(await append_one(device), Place)

    run_with_accounts(broker.bootstrap, broker.properties("gate") | RULES, test)
    assert broker.tokens() == []


# --- quiet users ------------------------------------------------------------------------------------------------


def test_quiet_users_are_forgotten_and_those_who_follow_are_not(broker: LoginBroker) -> None:
    async def test(accounts: KafkaAccounts) -> None:
        anna = await accounts.account(Password("anna", "pw-anna"))
        await accounts.account(Password("bob", "pw-bob"))
        following = anna.follow("telemetry", {0: 0})
        now = asyncio.get_running_loop().time()
        await accounts.sweep(now + IDLE_S - 10)
        assert accounts.count == 2
        await accounts.sweep(now + IDLE_S + 10)
        assert accounts.count == 1
        following.close()
        await accounts.sweep(now + IDLE_S + 10)
        assert accounts.count == 0
        assert isinstance(await append_one(anna), Place)  # a device that is still connected goes on
        assert await accounts.account(Password("anna", "pw-anna")) is not anna

    run_with_accounts(broker.bootstrap, broker.properties("gate"), test)


@pytest.mark.parametrize("turns", [0, 1, 5, 20])
def test_whoever_logs_in_when_the_gateway_stops_is_told(broker: LoginBroker, turns: int) -> None:
    async def test(accounts: KafkaAccounts) -> None:
        logins = [Password("anna", "pw-anna"), Password("bob", "pw-bob"), Password("bob", "wrong"), pump(7)]
        coming = [asyncio.create_task(accounts.account(each)) for each in logins * 2]
        for _ in range(turns):
            await asyncio.sleep(0)
        await accounts.close()
        for each in await asyncio.gather(*coming, return_exceptions=True):
            assert isinstance(each, KafkaAccount | KafkaError), repr(each)

    run_with_accounts(broker.bootstrap, broker.properties("gate") | RULES, test)


# --- three brokers ----------------------------------------------------------------------------------------------

TASKS, TOPIC, PARTITIONS = 20, "orders", 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    running = TestCluster(tmp_path_factory.mktemp("cluster"), 3, {"min.insync.replicas": "2"}, secure=True).start()
    running.add_user("anna")
    running.allow("anna", "read,write", topic=TOPIC)
    yield running
    running.kill_all()


def test_a_device_logs_in_at_a_broker_that_learns_late_of_its_token(cluster: TestCluster) -> None:
    async def test(accounts: KafkaAccounts) -> None:
        devices = await asyncio.gather(*(accounts.account(pump(number)) for number in range(5)))
        assert {device.user for device in devices} == {f"pump-{number}" for number in range(5)}

    controller = wait_until(cluster.controller, "a controller")
    far, others = next(node for node in cluster.nodes if node != controller), set(cluster.nodes)
    cluster.delay(far, others - {far}, 100)
    try:
        run_with_accounts(cluster.nodes[far].address, cluster.java_properties() | RULES, test)
    finally:
        cluster.heal()


class Orders:
    """Tasks that append until they are told to stop, and one that reads all the while."""

    def __init__(self, account: KafkaAccount) -> None:
        self._account = account
        self.calls: list[AppendCall] = []
        self.read: dict[TopicPartition, list[bytes | None]] = {
            TopicPartition(TOPIC, partition): [] for partition in range(PARTITIONS)
        }
        self.acknowledged = 0
        self.is_over = False
        self._progress = asyncio.Event()

    async def append(self, task: int) -> None:
        previous: AppendCall | None = None
        number = 0
        while not self.is_over:
            call = AppendCall(TOPIC, [b"%d-%d" % (task, number + each) for each in range(3)], None, previous)
            number += 3
            self.calls.append(call)
            records = [NewRecord(value, partition=(number + task) % PARTITIONS) for value in call.values]
            try:
                call.outcome = await self._account.append(TOPIC, records)
            except KafkaError as error:
                call.outcome = error
            else:
                self.acknowledged += sum(isinstance(each, Place) for each in call.outcome)
                self._progress.set()
            previous = call
            await asyncio.sleep(0.01)

    async def follow(self) -> None:
        following = self._account.follow(TOPIC, dict.fromkeys(range(PARTITIONS), 0))
        try:
            while True:
                for record in await following.next():
                    values = self.read[TopicPartition(TOPIC, record.partition)]
                    assert record.offset == len(values), "each once, and in order"
                    values.append(record.value)
                self._progress.set()
        finally:
            following.close()

    async def read_to_end(self) -> None:
        """Wait until all that was appended is read."""
        bounds = await self._account.bounds(TOPIC)
        while any(len(values) < bounds[partition.partition][1] for partition, values in self.read.items()):
            await self._wait()

    async def acknowledge(self, count: int) -> None:
        """Wait until so many more records are acknowledged."""
        goal = self.acknowledged + count
        while self.acknowledged < goal:
            await self._wait()

    async def _wait(self) -> None:
        self._progress.clear()
        await asyncio.wait_for(self._progress.wait(), PATIENCE_S)


def test_no_acknowledged_record_is_lost_or_there_twice_when_leaders_are_killed(cluster: TestCluster) -> None:
    with closing(Cluster(cluster.bootstrap_servers, cluster.java_properties())) as connection:
        create_topic(ClusterAdmin(connection, 30_000), TOPIC, PARTITIONS, 3)
    cluster.wait_for_topic(TOPIC)

    async def test(accounts: KafkaAccounts) -> None:
        orders = Orders(await accounts.account(Password("anna", cluster.password("anna"))))
        reading = asyncio.create_task(orders.follow())
        appending = [asyncio.create_task(orders.append(number)) for number in range(TASKS)]
        await orders.acknowledge(300)
        leader = await asyncio.to_thread(cluster.wait_for_leader, TOPIC, 0)
        await asyncio.to_thread(cluster.kill, leader)
        await asyncio.to_thread(cluster.wait_for_leader, TOPIC, 0, leader)
        await orders.acknowledge(600)
        await asyncio.to_thread(cluster.restart, leader)
        await orders.acknowledge(300)
        orders.is_over = True
        await asyncio.gather(*appending)
        await orders.read_to_end()
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled(), reading
        check(orders.calls, orders.read)
        refused = [each for call in orders.calls for each in call.outcome or () if isinstance(each, KafkaError)]
        assert not refused, "thirty seconds are enough for another leader"
        assert accounts.bytes_under_way == 0

    run_with_accounts(cluster.bootstrap_servers, cluster.java_properties(), test)
