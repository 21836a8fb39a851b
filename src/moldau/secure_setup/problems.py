"""The error of this package."""

from __future__ import annotations


class SetupFailed(Exception):
    """Security cannot be set up: what is wrong and what to do, in one line without secrets."""
