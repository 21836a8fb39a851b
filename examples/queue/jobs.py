"""The jobs: a file to make smaller, say. Some need another moment, some can never be done."""

from __future__ import annotations


class Busy(Exception):
    """Not now: try again."""


def do(job: str, delivery: int) -> None:
    """Do a job. `busy-3` can be done when it comes for the third time, `broken` never."""
    kind, _, needed = job.partition("-")
    if kind == "broken":
        raise ValueError(f"{job} cannot be done")
    if kind == "busy" and delivery < int(needed):
        raise Busy
