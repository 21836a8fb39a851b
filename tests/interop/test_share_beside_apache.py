"""Random conversations of share groups get the same answers from Apache Kafka and from Moldau. It needs
MOLDAU_TEST_KAFKA_LIBS."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from apache_node import Side, await_coordinators, needs_apache, side_by_side
from harness.depth import DEPTH
from share_conversation import MEMBERS, Answer, Conversation, Held, Talk

pytestmark = [pytest.mark.moldau_only, needs_apache]
SEEDS = 2 * DEPTH
STEPS = 60


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with side_by_side(tmp_path_factory.mktemp("shares-beside-apache"), []) as both:
        for side in both:
            await_coordinators(side, "shares")
        yield both


def ask(talk: Talk, kind: str, member: str, details: dict[str, Any]) -> Answer | None:
    """Do one step at one broker."""
    epoch = talk.epochs[member]
    if kind == "produce":
        talk.produce(details["count"])
        return None
    if kind == "epoch":
        return talk.fetch(member, [], epoch + 7, max_records=1, batch_size=1)
    if kind == "final":
        answer = talk.fetch(member, [], -1, max_records=1, batch_size=1)
        talk.epochs[member] = 0
        return answer
    if kind == "acknowledge":
        answer = talk.acknowledge(member, details["said"], epoch)
    else:
        answer = talk.fetch(member, details["said"], epoch, **details["wanted"])
    if not answer.error:
        talk.epochs[member] = epoch + 1
    return answer


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_conversations_get_the_same_answers(sides: tuple[Side, Side], seed: int) -> None:
    group_id = f"shared-{seed}-{uuid.uuid4().hex[:6]}"
    theirs, ours = (Talk(side, group_id) for side in sides)
    conversation = Conversation(seed)
    history: list[Any] = []
    try:
        for talk in (theirs, ours):
            talk.begin()
        for kind, member, details in conversation.steps(STEPS):
            answers = [ask(talk, kind, member, details) for talk in (theirs, ours)]
            history.append((kind, member, details, *answers))
            assert answers[0] == answers[1], "\n".join(map(str, history))
            if kind == "produce":
                conversation.end += details["count"]
            elif answers[0] is not None:
                conversation.held[member] += [Held(first, last) for first, last, _ in answers[0].acquired]
        assert any(answer is not None and answer.acquired for *_, answer in history)
        assert set(theirs.epochs) == set(MEMBERS)
    finally:
        theirs.close()
        ours.close()
