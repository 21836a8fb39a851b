"""The users of a new cluster: `bootstrap.checkpoint` in the data directory, which `kafka-storage format --add-scram`
writes. The first active controller appends them to the metadata log; later ones find the log not empty.
"""

from __future__ import annotations

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.secure_files import FIRST_RECORDS_FILE
from moldau.log.files import Files
from moldau.metadata.records import decode_record
from moldau.raft.snapshots import snapshot_values
from moldau.wire.batch import split_batches
from moldau.wire.log_records.metadata import UserScramCredentialRecord
from moldau.wire.schema import MetadataRecord


def read_first_records(files: Files, log_dir: str) -> tuple[MetadataRecord, ...]:
    """Return the credentials in the file, if there is one. The levels of features in it, as Kafka's tool writes them,
    are those of this release anyway."""
    path = f"{log_dir}/{FIRST_RECORDS_FILE}"
    content = files.read(path)
    if content is None:
        return ()
    try:
        values = snapshot_values(split_batches(memoryview(content)))
        return tuple(decode_record(value) for value in values if value[1:2] == bytes([UserScramCredentialRecord.TYPE]))
    except MalformedData as malformed:
        raise StorageFault(path, OSError(str(malformed))) from malformed
