"""The result of a request to the controller: a response, and the records to write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from moldau.wire.schema import MetadataRecord

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """The `decide_…` functions never change the image; only applying the records does."""

    response: R
    records: tuple[MetadataRecord, ...] = ()
