"""Encodes and decodes the records of the share coordinator."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.serde import RecordCodec
from moldau.wire.log_records.share_states import RECORDS

_CODEC: Final = RecordCodec(RECORDS)
encode_record: Final = _CODEC.encode
decode_record: Final = _CODEC.decode
