"""Errors of a stream of changes. The class decides what a pipeline does about it (pipelines/running/failures.py)."""

from __future__ import annotations


class ChangesError(Exception):
    """The sentence says what is wrong and what to do; it never has a password."""


class ChangesRefused(ChangesError):
    """Trying again does not help: somebody has to change the table, the database or the pipeline."""


class ChangesLost(ChangesRefused):
    """The database no longer has the changes since the stream's position."""


class TableChanged(ChangesError):
    """The table has other columns than the stream: a new plan of the query has them too."""
