"""What a request to the controller comes to: an answer, and the records that make it true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from moldau.metadata.records import MetadataRecord

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """`decide` reads and never changes; only applying the records does."""

    response: R
    records: tuple[MetadataRecord, ...] = ()
