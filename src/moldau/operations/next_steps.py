"""What helps after a failure or a note. Pure.

Each front end has a table with its own words for each step: `cli.next_steps` names commands and flags,
`console.next_steps` pages and fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple


class NextStep(Enum):
    SEE_TOPICS = auto()
    SEE_GROUPS = auto()
    SEE_TRANSACTIONS = auto()
    SEE_BROKERS = auto()
    STOP_MEMBERS = auto()
    """The members of the group can be seen, and have to be stopped."""
    MAKE_GROUP = auto()
    """The group can be seen not to exist; its offsets can be set before it does."""
    NAME_TOPICS = auto()
    """Nothing says in which topics to set offsets."""
    CHOOSE_WITH_OFFSETS = auto()
    """Other partitions can be chosen, or an offset that is not counted from the committed one."""
    SEE_PRODUCERS = auto()
    """Of the topic, which is the subject."""
    SEE_ACLS = auto()
    """Of the user, who is the subject; so in the next ones."""
    ALLOW = auto()
    ADD_USER = auto()
    NAME_SIMILAR_USER = auto()
    EXPIRE_TOKENS = auto()


class Note(NamedTuple):
    """A sentence, and what helps. `subject` is the name that the words of the step need, if they need one."""

    text: str
    step: NextStep | None = None
    subject: str = ""

    def worded(self, words: Mapping[NextStep, str]) -> str:
        """Return the sentence with the words of a front end for the step; `{subject}` in them is the name."""
        return self.text if self.step is None else self.text + words[self.step].format(subject=self.subject)
