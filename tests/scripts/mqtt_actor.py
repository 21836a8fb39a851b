"""Runs scripts about MQTT sessions: connections of clients, their sessions, and what is under way to them.

connect C1 client=a version=5 clean=1 keep-alive=10 expiry=60 user=u password=p will=w/t:gone will-delay=5
                                        a connection C1 and its CONNECT; the password "wrong" is wrong, the user
                                        "slow" is answered by `accept C1`
publish C1 a/b:x a/c:y qos=1 id=5 alias=2 retain=1
subscribe C1 a/# qos=1 no-local=1       the subscription is only noted in the session
deliver C1 a-0@5 a-0@6 qos=1            records of a Kafka topic that a tail offers
send C1 PINGREQ                         any other packet: PINGREQ, PUBACK:5, PUBREL:5, CONNACK, AUTH, malformed
appended C1 count=2                     their acknowledgements have been sent
disconnect C1 reason=4 expiry=0
drop C1                                 the connection is lost
again C1                                what the session would deliver again, and from where
advance s=10
list                                    the sessions
"""

from __future__ import annotations

from script import Command

from moldau.gateway.mqtt.conversation import (
    Acknowledged,
    Action,
    Append,
    Change,
    Conversation,
    End,
    LogIn,
    Send,
)
from moldau.gateway.mqtt.limits import MqttLimits
from moldau.gateway.mqtt.messages import Message
from moldau.gateway.mqtt.outbox import Outbox
from moldau.gateway.mqtt.packets import (
    V5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Malformed,
    Packet,
    PacketReader,
    Pingreq,
    Publish,
    Requested,
    Suback,
    Will,
)
from moldau.gateway.mqtt.properties import NO_PROPERTIES, PacketType, Properties
from moldau.gateway.mqtt.reasons import Reason
from moldau.gateway.mqtt.session import Mark, Progress, Session, Subscription, session_key
from moldau.gateway.mqtt.sessions import Sessions
from moldau.gateway.ports import Account

LIMITS = MqttLimits(publishes_in_flight_max=3, topic_aliases_max=2, session_expiry_s_max=100, keep_alive_s_max=60)


class _Client:
    def __init__(self, name: str, now_s: float) -> None:
        self.name = name
        self.conversation = Conversation(LIMITS, now_s)
        self.session: Session | None = None
        self.outbox: Outbox | None = None
        self.connect: Connect | None = None
        self.has_left = False


class MqttActor:
    def __init__(self) -> None:
        self._now_s = 1000.0
        self._sessions: Sessions[_Client] = Sessions(10)
        self._clients: dict[str, _Client] = {}
        self._lines: list[str] = []

    def answer(self, command: Command) -> str:
        self._lines = []
        getattr(self, "_" + command.name.replace("-", "_"))(command)
        return "\n".join(self._lines) or "ok"

    # --- connections ------------------------------------------------------------------------------------------------

    def _connect(self, command: Command) -> None:
        client = self._clients[command.words[0]] = _Client(command.words[0], self._now_s)
        values, version = command.values, command.number("version", V5)
        properties = self._properties(
            version,
            session_expiry_s=values.get("expiry"),
            receive_maximum=values.get("receive-maximum"),
            maximum_packet_size=values.get("packet-size"),
        )
        if "method" in values:
            properties.authentication_method = values["method"]
        will = None
        if "will" in values:
            topic, _, payload = values["will"].partition(":")
            of_will = self._properties(version, will_delay_s=values.get("will-delay"))
            will = Will(topic, payload.encode(), command.number("will-qos", 0), properties=of_will)
        password = values.get("password")
        connect = Connect(
            version,
            values.get("client", ""),
            values.get("clean", "1") == "1",
            command.number("keep-alive", 0),
            values.get("user"),
            None if password is None else password.encode(),
            will,
            properties,
        )
        self._receive(client, connect)

    def _accept(self, command: Command) -> None:
        client = self._clients[command.words[0]]
        assert client.connect is not None
        self._let_in(client, client.connect)

    def _let_in(self, client: _Client, connect: Connect) -> None:
        key = session_key(connect.user or "", connect.client_id or "assigned")
        begun = self._sessions.begin(key, connect.clean_start, client.conversation.expiry_s(), client)
        client.session = begun.session
        if begun.ended is not None and begun.ended.will is not None:
            self._lines.append(f"will {begun.ended.will.will.topic}")
        if begun.taken_from is not None:
            self._do(begun.taken_from, begun.taken_from.conversation.end(Reason.SESSION_TAKEN_OVER, ""))
        conversation = client.conversation
        client.outbox = Outbox(
            conversation.version,
            conversation.delivery_window(),
            conversation.client_packet_bytes_max(),
            begun.session.again,
        )
        for progress in begun.session.progress.values():
            progress.begin_again({0: (0, 1000)})
        assigned = None if connect.client_id else "assigned"
        self._do(client, conversation.accept(begun.is_present, begun.session.expiry_s, assigned, self._now_s))

    def _drop(self, command: Command) -> None:
        client = self._clients[command.words[0]]
        self._leave(client, client.conversation.lost())

    def _leave(self, client: _Client, will: Will | None) -> None:
        if client.session is None or client.has_left:
            return
        client.has_left = True
        if client.outbox is not None:
            client.session.again = client.outbox.unacknowledged()
        if self._sessions.holder(client.session.key) is client:
            client.session.expiry_s = client.conversation.session_expiry_s
        account: Account = None  # type: ignore[assignment] # the table only keeps it
        due, has_ended = self._sessions.leave(client.session, client, will, account, int(1000 * self._now_s))
        if due is not None:
            self._lines.append(f"will {due.topic}")
        if has_ended:
            self._lines.append("session ends")

    def _advance(self, command: Command) -> None:
        self._now_s += command.number("s", 0)
        for client in self._clients.values():
            self._do(client, client.conversation.expire(self._now_s))
        due = self._sessions.due(int(1000 * self._now_s))
        self._lines += [f"will {pending.will.topic}" for pending in due.wills]
        self._lines += [f"session of {session.key[1:]} expires" for session in due.expired]

    def _list(self, command: Command) -> None:
        for session in self._sessions:
            name = session.key.replace("\0", " ").strip()
            self._lines.append(f"{name} is {'here' if session.away_since_ms is None else 'away'}")

    # --- packets of clients -----------------------------------------------------------------------------------------

    def _publish(self, command: Command) -> None:
        packets: list[Packet | Malformed] = []
        qos, number = command.number("qos", 0), command.number("id", 1)
        properties = self._properties(V5, topic_alias=command.values.get("alias"))
        for place, word in enumerate(command.words[1:]):
            topic, _, payload = word.partition(":")
            packet_id = number + place if qos else 0
            packets.append(Publish(topic, payload.encode(), qos, packet_id=packet_id, properties=properties))
        self._receive(self._clients[command.words[0]], *packets)

    def _send(self, command: Command) -> None:
        kind, _, number = command.words[1].partition(":")
        packets: dict[str, Packet | Malformed] = {
            "PINGREQ": Pingreq(),
            "CONNACK": Connack(False, 0),
            "AUTH": Auth(0x18),
            "malformed": Malformed(Reason.MALFORMED_PACKET, "bad"),
        }
        packet = packets[kind] if kind in packets else Ack(PacketType[kind], int(number))
        self._receive(self._clients[command.words[0]], packet)

    def _disconnect(self, command: Command) -> None:
        properties = self._properties(V5, session_expiry_s=command.values.get("expiry"))
        self._receive(self._clients[command.words[0]], Disconnect(command.number("reason", 0), properties))

    def _receive(self, client: _Client, *packets: Packet | Malformed) -> None:
        self._do(client, client.conversation.receive(packets, self._now_s))

    def _properties(self, version: int, **values: str | None) -> Properties:
        found = {name: int(value) for name, value in values.items() if value is not None}
        return Properties(**found) if version == V5 else NO_PROPERTIES

    # --- what is under way ------------------------------------------------------------------------------------------

    def _appended(self, command: Command) -> None:
        self._clients[command.words[0]].conversation.answered(command.number("count", 1))

    def _subscribe(self, command: Command) -> None:
        client, text = self._clients[command.words[0]], command.words[1]
        assert client.session is not None
        request = Requested(text, command.number("qos", 0), command.number("no-local", 0) == 1)
        client.session.subscriptions[text] = Subscription.of(request, ("a",), None)
        client.session.progress["a"] = Progress({0: command.number("from", 0)})

    def _deliver(self, command: Command) -> None:
        client = self._clients[command.words[0]]
        session, outbox = client.session, client.outbox
        assert session is not None
        assert outbox is not None
        progress = session.progress["a"]
        qos = command.number("qos", 1)
        for word in command.words[1:]:
            offset = int(word.partition("@")[2])
            if progress.is_due(0, offset):
                mark = Mark(progress, 0, offset) if qos and session.is_persistent else None
                payload = b"x" * command.number("bytes", 1)
                outbox.add(Message(f"a/{offset}", payload, ()), qos, False, (), mark, 0)
        self._written(client)
        if outbox.waiting_bytes:
            self._lines.append("some wait")

    def _again(self, command: Command) -> None:
        session = self._clients[command.words[0]].session
        assert session is not None
        numbers = ", ".join(f"a-0@{mark.offset} as {number}" for mark, number in session.again.items())
        self._lines.append(f"from {session.places()['a'][0]}; {numbers or 'nothing'}")

    def _written(self, client: _Client) -> None:
        assert client.outbox is not None
        self._show(client, b"".join(client.outbox.take()))

    # --- actions ----------------------------------------------------------------------------------------------------

    def _do(self, client: _Client, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case LogIn(connect):
                    client.connect = connect
                    if connect.password == b"wrong":
                        self._do(client, client.conversation.end(Reason.BAD_USER_NAME_OR_PASSWORD, ""))
                    elif connect.user != "slow":
                        self._let_in(client, connect)
                case Append(publishes):
                    words = (f"{each.topic}={each.payload.decode()}" for each in publishes)
                    self._lines.append(f"append {' '.join(words)}")
                case Acknowledged(packet_ids):
                    if client.outbox is not None:
                        for packet_id in packet_ids:
                            if not client.outbox.acknowledge(packet_id, 0):
                                self._lines.append(f"{packet_id} is not in use")
                        self._written(client)
                case Send(data):
                    self._show(client, data)
                case Change(packet):
                    self._lines.append(type(packet).__name__)
                case End():
                    self._show(client, action.data)
                    self._lines.append(f"{client.name} closes" + (f": {action.what}" if action.what else ""))
                    self._leave(client, action.will)

    def _show(self, client: _Client, data: bytes) -> None:
        for packet in PacketReader(1 << 20, 1 << 20, client.conversation.version).feed(data):
            self._lines.append(f"{client.name}: {_described(packet)}")


def _described(packet: Packet | Malformed) -> str:
    match packet:
        case Connack(is_present, reason, properties):
            words = ["CONNACK", _reason(reason), *(["session present"] if is_present else [])]
            return " ".join([*words, *_set(properties)])
        case Publish():
            shown = f"PUBLISH {packet.topic} qos={packet.qos}"
            return shown + (f" id={packet.packet_id}" if packet.qos else "") + (" DUP" if packet.dup else "")
        case Ack(kind, packet_id, reason, _):
            return f"{kind.name} {packet_id} {_reason(reason)}"
        case Disconnect(reason, _):
            return f"DISCONNECT {_reason(reason)}"
        case Suback(packet_id, reasons, _):
            return f"SUBACK {packet_id} {reasons.hex(' ')}"
        case _:
            return type(packet).__name__.upper()


def _reason(reason: int) -> str:
    return f"0x{reason:02x}"


def _set(properties: Properties) -> list[str]:
    names = ("session_expiry_s", "server_keep_alive_s", "assigned_client_id", "receive_maximum", "maximum_qos")
    return [f"{name}={value}" for name in names if (value := getattr(properties, name)) is not None]
