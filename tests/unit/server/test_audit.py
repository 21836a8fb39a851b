"""The audit log: one line for each refusal, readable by a program, and never more than a disk can take."""

from __future__ import annotations

import logging

import pytest
from restricted_node import RestrictedNode

from moldau.base.acl_operations import AclOperation
from moldau.security.acls.access import Needs
from moldau.security.acls.authorizer import Decision
from moldau.security.acls.bindings import ResourceType
from moldau.server import audit
from moldau.testing.clock import FakeClock
from moldau.wire.apis import ApiKey
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

READ_TOPIC = Needs(AclOperation.READ, ResourceType.TOPIC)


def decide() -> Decision:
    return Decision(False, "no ACL allows it")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "moldau.audit"]


def test_a_denied_request_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    node = RestrictedNode()
    node.start()
    node.create_topic("secret")
    caplog.set_level(logging.INFO, "moldau.audit")
    node.ask(ApiKey.METADATA, MetadataRequest([MetadataRequestTopic(name="secret")]), 12)
    assert lines(caplog) == [
        "denied principal=User:ann host=10.0.0.1 operation=describe resource=topic:secret"
        ' rule="no ACL covers the resource"'
    ]
    caplog.clear()
    node.ask(ApiKey.METADATA, MetadataRequest(None), 12)
    assert lines(caplog) == [], "a list of all topics only leaves topics out"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain", "topic:plain"),
        ("a b", '"topic:a b"'),
        ('a"b', '"topic:a\\"b"'),
        ("a\nadmin principal=root", '"topic:a\\nadmin principal=root"'),
        ("\x1b[31m", "topic:\\x1b[31m"),
        ("x" * 10_000, f"topic:{'x' * 294}\\u2026"),
    ],
)
def test_a_hostile_name_cannot_forge_a_line(caplog: pytest.LogCaptureFixture, name: str, shown: str) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    audit.AuditLog(FakeClock()).denied("User:ann", "h", READ_TOPIC, name, decide)
    (line,) = lines(caplog)
    assert line == f'denied principal=User:ann host=h operation=read resource={shown} rule="no ACL allows it"'


def test_a_flood_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    clock = FakeClock()
    log = audit.AuditLog(clock)
    decisions = []
    for _ in range(1000):
        log.denied("User:ann", "h", READ_TOPIC, "t", lambda: decisions.append(1) or decide())
    assert len(decisions) == audit.LINES_PER_SECOND_MAX, "nothing is decided for a line that is left out"
    assert len(lines(caplog)) == audit.LINES_PER_SECOND_MAX
    clock.move(1000)
    log.denied("User:bob", "h", READ_TOPIC, "t", decide)
    assert lines(caplog)[-2:] == [
        f"{1000 - audit.LINES_PER_SECOND_MAX} more lines of the audit log were left out",
        'denied principal=User:bob host=h operation=read resource=topic:t rule="no ACL allows it"',
    ]
