"""Errors in the words of the gateway."""

from __future__ import annotations

from typing import Final

from moldau.operations.failures import OperationFailed
from moldau.operations.next_steps import Note
from moldau.web.failures import ApiErrors

NAME: Final = "the gateway"


def worded(what: Note | OperationFailed) -> str:
    """Return the sentence alone: a device cannot do what would help."""
    return (what.note if isinstance(what, OperationFailed) else what).text


API_ERRORS: Final = ApiErrors(NAME, worded)
