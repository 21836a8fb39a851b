"""What helps, in the words of the command line: a command, or a flag of the present one."""

from __future__ import annotations

from typing import Final

from moldau.operations.failures import OperationFailed
from moldau.operations.next_steps import NextStep, Note

HINT_GROUPS: Final = "`moldau group list` shows the groups there are"
WORDS: Final = {
    NextStep.SEE_TOPICS: "; `moldau topic list` shows the topics there are",
    NextStep.SEE_GROUPS: f"; {HINT_GROUPS}",
    NextStep.SEE_TRANSACTIONS: "; `moldau transaction list` shows the transactional ids there are",
    NextStep.SEE_BROKERS: "; `moldau cluster info` shows the brokers there are",
    NextStep.STOP_MEMBERS: "; `moldau group describe` shows its members; stop them first",
    NextStep.MAKE_GROUP: f"; {HINT_GROUPS}, and --new sets the offsets of a group before it exists",
    NextStep.NAME_TOPICS: "; name the topics to set offsets in with --topic",
    NextStep.CHOOSE_WITH_OFFSETS: "; select other partitions with --topic, or use --to N",
    NextStep.SEE_PRODUCERS: "; `moldau transaction producers {subject}` shows where they do",
    NextStep.SEE_ACLS: ": `moldau acl list --user {subject}`",
    NextStep.ALLOW: ": `moldau acl allow {subject} --role producer --topic TOPIC`",
    NextStep.ADD_USER: " (`moldau user list`); `moldau user add {subject}` adds one",
    NextStep.NAME_SIMILAR_USER: " (`moldau user list`); did you mean {subject}?",
    NextStep.EXPIRE_TOKENS: " (`kafka-delegation-tokens.sh --expire`)",
}


def worded(what: Note | OperationFailed) -> str:
    """Return a note, or why an operation failed, as one line with the next step."""
    return (what.note if isinstance(what, OperationFailed) else what).worded(WORDS)
