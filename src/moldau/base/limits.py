"""Limits of the server that are not settings of Kafka. Those that are defaults of settings of our own are in
`settings.own` too."""

from __future__ import annotations

from typing import Final

INT32_MAX: Final = 2**31 - 1
"""Largest number in a field of 32 bits."""

INT64_MAX: Final = 2**63 - 1
"""Largest number in a field of 64 bits."""

PARTITION_MAX: Final = INT32_MAX
"""Largest number of a partition: requests have 32 bits for it."""

OFFSET_MAX: Final = INT64_MAX
"""Largest offset: requests have 64 bits for it."""

PORT_MAX: Final = 65_535
"""Largest TCP port."""

TOPIC_NAME_LENGTH_MAX: Final = 249
"""Kafka's limit: with a dash and a partition number the directory name still fits into 255 bytes."""

STRING_BYTES_MAX: Final = 32_767
"""Longest string in a request, as in Kafka. Flexible versions allow longer ones, but older versions could not return
them."""

TAGS_MAX: Final = 64
"""Tagged fields in a request header, or in one struct of a request. Clients send only a few, and a count from a client
is never trusted: skipping each takes time, and decoding cannot be split into turns."""

REQUESTS_IN_FLIGHT_MAX: Final = 64
"""Requests of one connection that may wait for a response; then the socket is not read. Clients pipeline 5."""

REQUESTS_PER_TURN_MAX: Final = 8
"""Requests of one connection that are answered before the others get their turn. A request takes a tenth of a
millisecond, and a client may send many at once."""

PRODUCER_BATCHES_KEPT: Final = 5
"""Batches remembered per producer and partition to detect duplicates (Kafka's own number)."""

REFUSED_PRODUCERS_MAX: Final = 1_000
"""Producers of a partition whose last batch was refused and is expected again, at 200 bytes for each. A partition has
dozens of producers, but anybody who may write to it can invent others."""

DECOMPRESSED_BYTES_MAX: Final = 128 << 20
"""Largest size of one batch after decompression: a decompression bomb is refused."""

OPENED_RECORDS_MAX: Final = 1 << 18
"""Most records of a batch that the broker itself must read, which takes about two microseconds for each. A batch of a
megabyte has at most half as many, unless it is compressed."""

RECORD_ERRORS_OF_BATCH_MAX: Final = 1_000
"""Rejected records of a batch that the response names, with the reason. Kafka names all: a few kilobytes of compressed
records would have a response of 20 MB."""

RECORD_ERRORS_OF_REQUEST_MAX: Final = 10_000
"""The same for all batches of a Produce request."""

DESCRIPTORS_RESERVED_FOR_SHORT_LIVED_FILES: Final = 16
"""Open files that neither connections nor segments may use: a checkpoint, a snapshot or a flush needs one for a
moment, and several threads do so at the same time."""

DESCRIPTORS_RESERVED_FOR_CONNECTIONS: Final = 16
"""Further descriptors that segments may not use: a client that wants to delete topics must be able to connect."""

FRAME_TRUSTED_BYTES: Final = 1 << 20
"""A frame up to this size gets its whole buffer at once; a larger one grows by doubling as its bytes arrive."""

RECEIVE_BUDGET_BYTES: Final = 512 << 20
"""Memory of all incomplete frames together, if `queued.max.request.bytes` is not set."""

REQUEST_BYTES_PER_SECOND_MIN: Final = 1 << 10
"""A request must arrive at this rate. The slowest modem is faster; a client that sends a byte a second is not."""

REQUEST_GRACE_S: Final = 30.0
"""The time over which that rate is measured."""

RESPONSE_BYTES_PER_SECOND_MIN: Final = 1 << 10
"""A response must be read at this rate. It is measured over `connections.max.idle.ms`: a consumer may be busy for
minutes with the records that it has."""

UNAUTHENTICATED_TRUSTED_BYTES: Final = 1 << 10
"""FRAME_TRUSTED_BYTES of a client that has not authenticated yet: its buffer holds little more than it has sent."""

UNAUTHENTICATED_BUDGET_BYTES: Final = 16 << 20
"""Memory of all incomplete frames of clients that have not authenticated yet, apart from that of users. A login has a
few hundred bytes and mostly arrives whole, so that it needs none of it."""

AUTHENTICATION_MS_MAX: Final = 30_000
"""How long a client may take for a TLS handshake, and to authenticate, however slowly it sends; then its connection is
closed."""

SCRATCH_BYTES: Final = 256 << 10
"""The receive buffer that all connections of a listener share: complete frames in it are never copied."""

SEND_TURN_BYTES: Final = 8 << 20
"""What one connection may send before the others get their turn, for fairness."""

SEND_TURN_PIECES: Final = 256
"""Pieces of responses that one connection may send before the others get their turn: each piece is a system call, and a
response with records of thousands of partitions has two for each."""

UNSENT_PIECES_MAX: Final = 16
"""Pieces of responses that may wait for a slow client before its connection is no longer read."""

UNSENT_BYTES_MAX: Final = 1 << 20
"""Bytes of responses, without records in files, that may wait for a slow client before it is no longer read."""

UNSENT_BUDGET_BYTES: Final = 256 << 20
"""The same of all connections together. A single response may have megabytes, and there may be thousands of clients."""

THROTTLED_SOCKETS_MAX: Final = 256
"""Connections above the rate of their address that are open until their pause ends. Further ones are closed at once."""

RESERVE_BYTES: Final = 8 << 20
"""Disk space that a node keeps for the files without which it cannot vote, lead, stop or start."""

TRANSACTIONAL_IDS_MAX: Final = 10_000
"""Transactional ids of one partition of `__transaction_state`: 500,000 in the 50 partitions of a cluster."""

VIEW_WORKERS: Final = 2
"""Processes that evaluate views."""

VIEW_CPU_SECONDS: Final = 10
"""CPU time for one piece of a view's source; all but hostile ones take some hundredths of a second."""

VIEW_MEMORY_BYTES: Final = 1 << 30
"""Memory of each process that evaluates views, beyond what it has loaded."""

VIEW_MEMORY_BYTES_MIN: Final = 128 << 20
"""An ordinary piece of work takes about half of it."""

VIEW_KEPT_BYTES: Final = 64 << 20
"""Bytes of evaluated records that a broker keeps for the next reader."""

SEND_FILE_BYTES: Final = 4 << 20
"""Most bytes of one `sendfile` call: both ends of its range were looked up in the page cache before."""

TLS_TURN_BYTES: Final = 1 << 20
"""What one TLS connection may send or receive before the others get their turn: encryption takes about a millisecond
for a megabyte."""

TLS_SEND_BYTES: Final = 128 << 10
"""Bytes that are encrypted and sent in one call: small responses and the starts of records go together."""

HANDSHAKE_THREADS: Final = 2
"""Steps of TLS handshakes at a time, in threads of a listener: one takes one to three milliseconds. More threads would
take too much of the machine from those who are connected already."""

ACCEPTS_PER_TURN_MAX: Final = 2
"""New connections accepted before existing ones get their turn."""

QUORUM_REQUEST_BYTES_MAX: Final = 64 << 10
"""Largest request between controllers, and of a broker about itself (registration, heartbeat): each concerns one thing
and has a few hundred bytes."""

DESCRIBE_QUORUM_BYTES_MAX: Final = 16 << 10
"""Largest DescribeQuorum. The quorum has one partition, and the response has an error for every other one."""

CONTROLLER_REQUEST_BYTES_MAX: Final = 256 << 10
"""Largest request that the controller decides. A list element of three bytes may cost ten microseconds, and later
requests to the controller wait until it is decided: with 8 MiB a client could hold up all others for half a minute."""

ALTER_PARTITION_BYTES_MAX: Final = 2 << 20
"""Largest AlterPartition: when another broker fails, a leader sends all its partitions at once, up to 30,000 here."""

TRANSACTION_REQUEST_BYTES_MAX: Final = 1 << 20
"""Largest request about transactions. A transaction of 30,000 partitions needs an eighth of it, and brokers send only
as many markers at a time as fit."""

SHARE_STATE_REQUEST_BYTES_MAX: Final = 1 << 20
"""Largest request to a share coordinator. 10,000 state batches, the most of a partition, take a quarter of it, and
brokers send only as many partitions at a time as fit."""

UNVERIFIED_BYTES_MAX: Final = 256 << 20
"""Records that wait for the coordinator of their transaction. Further ones are refused with a retriable error."""

MARKER_PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""Partitions in one WriteTxnMarkers request that a coordinator sends."""

TOKEN_RENEWERS_MAX: Final = 100
"""Principals that may renew one delegation token."""

TOKENS_OF_REQUESTER_MAX: Final = 10_000
"""Delegation tokens that one user has created and that have not been removed: every user may create tokens, and all
nodes keep them in memory."""

LOOKUP_REQUEST_BYTES_MAX: Final = 256 << 10
"""Largest request that looks things up by their ids or names: coordinators, groups, transactions, configs. An id may
have two bytes, and each one's response has a few dozen: with 8 MiB a client could block all others for seconds."""

METADATA_REQUEST_BYTES_MAX: Final = 1 << 20
"""Largest Metadata request: 10,000 topics with names of 100 bytes."""

PARTITIONS_REQUEST_BYTES_MAX: Final = 2 << 20
"""Largest request that lists partitions, such as Fetch: a follower's Fetch of 30,000 partitions, each of another topic,
has 1.5 MB."""

OFFSETS_REQUEST_BYTES_MAX: Final = 1 << 20
"""Largest request about committed offsets: an OffsetCommit of 8,000 partitions has 141 KiB, and the log takes no more
records than one batch."""

FETCH_SESSION_PARTITIONS_MAX: Final = 250_000
"""Partitions in all fetch sessions of consumers together: each takes half a kilobyte until its session is evicted. A
consumer beyond it names its partitions with every fetch, as when `max.incremental.fetch.session.cache.slots` are
taken."""

DEFAULT_REQUEST_BYTES_MAX: Final = 8 << 20
"""Largest request of an API without a limit of its own, except Produce. Decoded objects need up to 56 times its size
(measured). The records of a Produce request stay bytes, so it may be as large as `socket.request.max.bytes`."""

RATES_MAX: Final = 100_000
"""Rates of clients, users or addresses that are remembered for one quota. A client that uses ever new client ids, or an
attacker with ever new addresses, must not use up the memory: then the oldest rate is forgotten."""

REMEMBERED_CONNECTIONS_MAX: Final = 20_000
"""Connections whose software, or whose last push of metrics, is remembered; then the oldest one is forgotten."""

CHANGES_OF_REQUEST_MAX: Final = 10_000
"""Records of one request that changes ACLs or quotas, as in Kafka."""

COMMIT_WAIT_MS: Final = 5_000
"""How long a request about several transactions waits until the log has one of them. A partition or shard that lost its
in-sync replicas may never commit it: the other transactions of the request must not wait for it."""

RETRY_DELAY_MS: Final = 50
"""Pause before a node repeats a request to another node."""

SALT_BYTES: Final = 16
"""Random bytes of the salt of a SCRAM credential."""


def reserved_descriptors(wanted: int, open_files_limit: int) -> int:
    """Return how many descriptors to reserve: `wanted`, but at most a sixteenth of all."""
    return min(wanted, open_files_limit // 16)
