"""The id of the current boot of the machine."""

from __future__ import annotations

from typing import Final

BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


def boot_id(path: str = BOOT_ID) -> str:
    """Return the id of the current boot, which only Linux has. Elsewhere it is empty, and a killed node is treated as
    after a power loss. macOS has `kern.bootsessionuuid`, but it is not verified that it changes with every boot: if it
    did not, a node could claim records that the machine has lost.
    """
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
