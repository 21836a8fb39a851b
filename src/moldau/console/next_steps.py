"""What helps, in the words of the console: a page, or a field of the request; and errors in these words."""

from __future__ import annotations

from typing import Final

from moldau.operations.failures import OperationFailed
from moldau.operations.next_steps import NextStep, Note
from moldau.web.failures import ApiErrors

NAME: Final = "the console"
WORDS: Final = {
    NextStep.SEE_TOPICS: "; the page Topics shows the topics there are",
    NextStep.SEE_GROUPS: "; the page Groups shows the groups there are",
    NextStep.SEE_TRANSACTIONS: "; the page Transactions shows the transactional ids there are",
    NextStep.SEE_BROKERS: "; the page Cluster shows the brokers there are",
    NextStep.STOP_MEMBERS: "; its page shows its members; stop them first",
    NextStep.MAKE_GROUP: (
        "; the page Groups shows the groups there are, and `new` sets the offsets of a group before it exists"
    ),
    NextStep.NAME_TOPICS: "; name in `topics` where to set offsets",
    NextStep.CHOOSE_WITH_OFFSETS: "; choose other partitions in `topics`, or give an offset in `to`",
    NextStep.SEE_PRODUCERS: "; the list of hanging ones is old",
    NextStep.SEE_ACLS: "; the page Access shows them",
    NextStep.ALLOW: "; add ACLs for it on the page Access",
    NextStep.ADD_USER: "; the page Access adds one",
    NextStep.NAME_SIMILAR_USER: "; did you mean {subject}?",
    NextStep.EXPIRE_TOKENS: " with Kafka's tools",
}


def worded(what: Note | OperationFailed) -> str:
    """Return a note, or why an operation failed, as one sentence with the next step."""
    return (what.note if isinstance(what, OperationFailed) else what).worded(WORDS)


API_ERRORS: Final = ApiErrors(NAME, worded)
