"""What a node needs of the world around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from moldau.base.clock import Clock, Timers
from moldau.client.peers import Peers
from moldau.log.files import Files
from moldau.replica.flushing import Flusher
from moldau.runtime.cleaning.ports import Cleans
from moldau.runtime.housekeeping import RunInThread
from moldau.server.handlers.describe_log_dirs import DiskSpace


@dataclass(frozen=True, slots=True)
class World:
    clock: Clock
    timers: Timers
    files: Files
    rng: Random
    flusher: Flusher
    peers: Peers
    run_in_thread: RunInThread
    disk_space: DiskSpace
    on_fault: Callable[[Exception], None]
    """Told of what this node cannot go on after."""
    boot_id: str = ""
    """Another after every start of the machine; empty where nobody knows."""
    cleans: Cleans | None = None
    """Who cleans logs; None for `run_in_thread`."""
