"""Every limit that is ours and not a setting of Kafka's, with the reason for its size."""

from __future__ import annotations

from typing import Final

TOPIC_NAME_LENGTH_MAX: Final = 249
"""Kafka's: with a dash and a partition number the directory name still fits 255 bytes."""

HEADER_TAGS_MAX: Final = 64
"""Tagged fields a request header may carry. No client sends more than a handful; a count is never trusted."""

REQUESTS_IN_FLIGHT_MAX: Final = 64
"""Requests of one connection that may wait for their reply; beyond it the socket is not read. Clients pipeline 5."""

PRODUCER_BATCHES_KEPT: Final = 5
"""Batches remembered per producer and partition to recognise a repeat (Kafka's own number)."""

DECOMPRESSED_BYTES_MAX: Final = 128 << 20
"""Largest size one compressed batch may expand to when a batch must be opened: a bomb is refused, not inflated."""

DESCRIPTORS_RESERVED_FOR_FILES: Final = 16
"""Open files that neither connections nor segments may take: a checkpoint, a snapshot or a flush needs one for a
moment, and threads do so at once."""

DESCRIPTORS_RESERVED_FOR_CONNECTIONS: Final = 16
"""Open files beside those that segments may not take: whoever comes to delete topics must be let in."""

FRAME_TRUSTED_BYTES: Final = 1 << 20
"""A frame up to this size gets its whole buffer at once; a larger one grows by doubling as its bytes arrive."""

RECEIVE_BUDGET_BYTES: Final = 512 << 20
"""Memory of all half-received frames together."""

SCRATCH_BYTES: Final = 256 << 10
"""The receive buffer that all connections of a listener share: what is whole in it never gets copied."""

SEND_TURN_BYTES: Final = 8 << 20
"""What one connection may send before the others get their turn."""

UNSENT_PIECES_MAX: Final = 16
"""Pieces of replies that may wait for a slow reader before its connection is not read from any more."""

UNSENT_BYTES_MAX: Final = 1 << 20
"""Bytes of replies, records in files not counted, that may wait for a slow reader before it is not read from."""

SEND_FILE_BYTES: Final = 4 << 20
"""What one `sendfile` is asked for: both ends of the range are looked up in the page cache first."""

ACCEPTS_PER_TURN_MAX: Final = 64
"""New connections taken before the others get their turn."""

QUORUM_REQUEST_BYTES_MAX: Final = 64 << 10
"""Largest request of controllers to each other, and of brokers about themselves: they speak of one thing, in some
hundred bytes."""

CONTROLLED_REQUEST_BYTES_MAX: Final = 256 << 10
"""Largest request that the controller decides. An element of a list may be three bytes and cost ten microseconds, and
all of a request is decided in one go: with 8 MiB a client could hold up a controller until it is thought dead."""

ALTER_PARTITION_BYTES_MAX: Final = 2 << 20
"""When another broker has died, a leader speaks of all its partitions at once: this is room for thirty thousand."""

TRANSACTION_REQUEST_BYTES_MAX: Final = 1 << 20
"""Largest request about transactions. A transaction of thirty thousand partitions fits in an eighth of it, and brokers
send no more markers at a time than fit."""

UNVERIFIED_BYTES_MAX: Final = 256 << 20
"""Records that wait for the coordinator of their transaction. Those beyond are refused, to be sent again."""

MARKERS_SENT_MAX: Final = 10_000
"""Partitions of which one request tells how transactions ended."""

COORDINATORS_FOUND_BYTES_MAX: Final = 256 << 10
"""Largest request of who coordinates what, or how transactions are, by their ids. An id may be two bytes, and each is
answered with some tens: with 8 MiB a client could hold up all others for seconds."""

PLAIN_REQUEST_BYTES_MAX: Final = 8 << 20
"""Largest request of any API but Produce. Its bytes become objects of up to 56 times their size (measured); records in
a Produce request stay bytes, so that one may be as large as `socket.request.max.bytes`."""


def reserved_descriptors(wanted: int, open_files_max: int) -> int:
    """Of few descriptors fewer are kept back: at most a sixteenth for each purpose."""
    return min(wanted, open_files_max // 16)
