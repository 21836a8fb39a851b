"""The texts for groups in which Spark's exactly-once sink stores micro-batch ids in the place of offsets."""

from __future__ import annotations

from typing import Final

MICRO_BATCH_IDS_STATE: Final = "micro-batch ids"
"""Shown in the place of the group's state."""
STORES_MICRO_BATCH_IDS: Final = "stores the id of the last micro-batch that a Spark query wrote to each topic"
"""The rest of a sentence that begins with the group."""
