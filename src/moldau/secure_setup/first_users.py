"""The first users of a new cluster: records in `bootstrap.checkpoint`, which the first active controller takes over."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from typing import Final

from moldau.base.limits import SALT_BYTES
from moldau.base.secure_files import FIRST_RECORDS_FILE
from moldau.log.checkpoints import replace_file
from moldau.log.files import Files
from moldau.metadata.records import encode_record
from moldau.raft.snapshots import snapshot_batches
from moldau.security.sasl.mechanism import SCRAM_MECHANISMS
from moldau.security.sasl.scram_messages import ITERATIONS_MIN, ScramKeys
from moldau.wire.log_records.metadata import UserScramCredentialRecord

PASSWORD_BYTES: Final = 18
"""Random bytes of a password: 24 letters, digits, dashes and underscores."""


def new_password() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)


def credential_records(
    user: str, password: str, mechanisms: Iterable[str], iterations: int = ITERATIONS_MIN
) -> list[UserScramCredentialRecord]:
    """Return a record for each mechanism. The fewest hashes are enough for a password that nobody can guess."""
    records = []
    for name in mechanisms:
        mechanism, salt = SCRAM_MECHANISMS[name], os.urandom(SALT_BYTES)
        keys = ScramKeys(mechanism)
        credential = keys.credential(keys.salted_password(password, salt, iterations), salt, iterations)
        records.append(UserScramCredentialRecord(user, mechanism, *credential))
    return records


def write_first_records(files: Files, log_dir: str, records: Iterable[UserScramCredentialRecord], now_ms: int) -> None:
    values = [encode_record(record) for record in records]
    batches = snapshot_batches(0, values, last_contained_ms=0, now_ms=now_ms)
    files.mkdir(log_dir)
    replace_file(files, log_dir, FIRST_RECORDS_FILE, b"".join(batches))
