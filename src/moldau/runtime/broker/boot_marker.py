"""Whether what the last process wrote is still there, although it did not stop cleanly.

A process that is killed leaves its writes to the kernel, which loses them only with the machine. So a node notes its
epoch together with the machine's boot: found again under the same boot, nothing is lost, and its replicas may stay in
sync. After a disk that would not sync, nothing is certain, and the note goes.
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
    """`boot_id` is another after every start of the machine; empty where nobody knows."""

    def __init__(self, files: Files, directory: str, boot_id: str) -> None:
        self._files = files
        self._directory = directory
        self._boot_id = boot_id

    def broker_epoch(self) -> int:
        """Of a life under the same boot, or -1."""
        content = self._files.read(f"{self._directory}/{FILE}")
        try:
            found = json.loads(content or b"")
            is_same = bool(self._boot_id) and found["bootId"] == self._boot_id
            return int(found["brokerEpoch"]) if is_same else UNKNOWN
        except (ValueError, KeyError, TypeError):
            return UNKNOWN

    def note(self, broker_epoch: int) -> None:
        """A note that the disk refuses is no harm: the one that is there names an epoch that is over."""
        content = json.dumps({"version": 0, "bootId": self._boot_id, "brokerEpoch": broker_epoch})
        try:
            replace_file(self._files, self._directory, FILE, content.encode())
        except StorageFault as fault:
            log.warning("if this process is killed, its replicas will have to catch up: %s", fault)

    def forget(self) -> None:
        self._files.unlink(f"{self._directory}/{FILE}")
        self._files.sync_directory(self._directory)
