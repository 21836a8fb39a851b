"""How much is done in one turn of the event loop: what takes two to four milliseconds on the machine of decision 030.

Work is counted, not timed: the same seed of a simulation must give the same turns. So there is one budget, and a number
of items for each price. Where an item costs several times as much as others of its kind, it counts as several.
"""

from __future__ import annotations

from typing import Final

CHECKS_A_TURN: Final = 2_000
"""Of a microsecond or two: what is answered from what is known already, such as the same error for each partition."""
LISTED_A_TURN: Final = 1_000
"""Of 2 to 4 microseconds: what is looked up and listed."""
ITEMS_A_TURN: Final = 500
"""Of some 5 microseconds: a partition that is looked at, an ACL, a record of the metadata."""
CHANGES_A_TURN: Final = 200
"""Of 10 to 20 microseconds: a partition that changes, a batch that is appended, a group."""
SLOW_ITEMS_A_TURN: Final = 100
"""Of 20 to 50 microseconds: a marker with its own append, a token, a line of the audit log, a partition whose indexes
retention may have to read."""
CALLS_A_TURN: Final = 50
"""Of up to 0.1 milliseconds: a deadline that removes a member of a group, a fetch that looks at the log again."""

CHARACTERS_A_TURN: Final = 2_000
"""Characters of names that are matched with a pattern: 3 ms with the slowest one."""
ENTRIES_A_TURN: Final = 4_000
"""Entries of a persistent map that are distributed to new buckets."""
RESOURCES_A_TURN: Final = 10
"""Resources whose configs are described. A topic has some forty configs: half a millisecond. A broker has ten times as
many, but describes only itself and the default of all brokers."""

MATCHED_AT_ONCE_MAX: Final = 50
"""Topics times new patterns that are matched within a decision; more are matched in turns before it. The slowest
pattern takes 0.4 ms for a topic."""
TOKENS_A_DECISION: Final = 1_000
"""Expired delegation tokens that one decision of the controller removes."""
PROPOSALS_A_REQUEST: Final = 250
"""Changes of in-sync replicas in one request to the controller, which has the budget of a turn on both nodes. A broker
that was away returns to thousands of in-sync sets at once."""
METADATA_BYTES_MAX: Final = 1 << 20
"""Of the metadata log, or one batch: it is read into memory in one turn and published as one change."""

# What waits for the disk: a busy one is slower than these numbers allow for.
LAID_OUT_A_TURN: Final = 16
"""Partitions whose files are opened, or whose directory is renamed."""
SEGMENTS_READ_A_TURN: Final = 10
"""Segments that the cleaner reads to choose a log: after a start, with a compaction lag. The indexes of each may have
megabytes."""
DISK_TURN_MS: Final = 5
"""When a turn of retention ends early. This alone is timed, because the disk decides what a segment costs and no count
does; in a simulation, no time passes within a turn."""
DELETED_A_TURN: Final = 5
"""Segments that retention deletes: each takes several renames."""
