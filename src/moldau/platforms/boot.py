"""Which start of the machine this is."""

from __future__ import annotations

from typing import Final

BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


def boot_id(path: str = BOOT_ID) -> str:
    """Linux gives every start of the machine an id; elsewhere it is empty, and a killed node counts as one that lost
    its power. macOS has `kern.bootsessionuuid`, which is not used before it was seen to change with every start: one
    that did not would let a node claim records that the machine has lost.
    """
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
