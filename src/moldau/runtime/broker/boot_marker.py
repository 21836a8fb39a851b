"""Tells whether the writes of the last process survived, although it did not stop cleanly.

The writes of a killed process are in the kernel, which loses them only if the machine stops. So a node writes its
broker epoch and the machine's boot id to a file. If it finds the same boot id at its next start, nothing is lost, and
its replicas may stay in sync. After a failed sync nothing is certain, and a damaged log lacks records whatever the boot
id: then the file is removed.
"""

from __future__ import annotations

import json
import logging
from typing import Final

from moldau.base.errors import StorageFault
from moldau.log.checkpoints import replace_file
from moldau.log.files import Files

log = logging.getLogger("moldau.lifecycle")
FILE: Final = ".moldau_last_life"
UNKNOWN: Final = -1


class BootMarker:
    """`boot_id` differs after every start of the machine; empty if it is unknown."""

    def __init__(self, files: Files, directory: str, boot_id: str) -> None:
        self._files = files
        self._directory = directory
        self._boot_id = boot_id

    def broker_epoch(self) -> int:
        """Return the broker epoch of the last process since the machine booted, or -1."""
        content = self._files.read(f"{self._directory}/{FILE}")
        try:
            marker = json.loads(content or b"")
            is_same_boot = bool(self._boot_id) and marker["bootId"] == self._boot_id
            return int(marker["brokerEpoch"]) if is_same_boot else UNKNOWN
        except (ValueError, KeyError, TypeError):
            return UNKNOWN

    def note(self, broker_epoch: int) -> None:
        """Write the marker. If that fails, an old marker does no harm: its epoch is no longer valid."""
        content = json.dumps({"version": 0, "bootId": self._boot_id, "brokerEpoch": broker_epoch})
        try:
            replace_file(self._files, self._directory, FILE, content.encode())
        except StorageFault as fault:
            log.warning("boot marker not written, replicas must catch up if this process is killed: %s", fault)

    def forget(self) -> None:
        self._files.unlink(f"{self._directory}/{FILE}")
        self._files.sync_directory(self._directory)
