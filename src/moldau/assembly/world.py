"""What a node gets from outside, so that simulations can replace it: clock, timers, files, peers and the like."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from moldau.base.clock import Clock, Timers
from moldau.base.ports import DiskSpace, RunAll, RunInThread, run_one_by_one
from moldau.client.peers import Peers
from moldau.log.files import Files
from moldau.replica.flushing import Flusher
from moldau.runtime.cleaning.ports import SegmentCleaner
from moldau.runtime.listener_configs import ListenerConfigs
from moldau.runtime.own_work import OwnWork
from moldau.views.jobs import EvaluatesViews


@dataclass(frozen=True, slots=True)
class World:
    clock: Clock
    timers: Timers
    files: Files
    rng: Random
    flusher: Flusher
    peers: Peers
    """Connections to other brokers, at their inter-broker listener."""
    run_in_thread: RunInThread
    """For work that waits for the disk."""
    disk_space: DiskSpace
    on_fault: Callable[[Exception], None]
    """Called with a fault after which this node must stop."""
    lease_clock: Clock | None = None
    """Goes on while this node does not run; None to use `clock`."""
    boot_id: str = ""
    """Differs after every boot of the machine; empty if unknown."""
    controller_peers: Peers | None = None
    """For requests to controllers; None to use `peers`."""
    quorum_flusher: Flusher | None = None
    """For the metadata log, which must not wait behind partitions; None to use `flusher`."""
    run_codec: RunInThread | None = None
    """For encoding and decoding, also of batches, which must not wait behind the disk; None to use `run_in_thread`."""
    run_all: RunAll = run_one_by_one
    """Runs the calls that close the logs when the node stops."""
    cleaner: SegmentCleaner | None = None
    """Compacts logs; None to use `run_in_thread`."""
    listener_configs: ListenerConfigs | None = None
    """Checks and uses the dynamic configs of a broker's listeners; None if there are no real listeners."""
    views: EvaluatesViews | None = None
    """Evaluates views; None to use `run_in_thread`."""
    connection_descriptors: int = sys.maxsize
    """How many open files the connections of clients may use. The listener of the controllers, and that of the brokers
    if it is a separate one, get a quarter of it each in addition."""

    def own_work(self) -> OwnWork:
        """Return what runs the node's own work, whose unexpected exceptions go to `on_fault`."""
        return OwnWork(self.timers, self.on_fault)
