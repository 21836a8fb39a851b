"""The own work of one part of a node: an unexpected exception is raised to whoever runs the timers."""

from __future__ import annotations

from moldau.base.clock import Timers
from moldau.runtime.own_work import OwnWork


def own_work(timers: Timers) -> OwnWork:
    return OwnWork(timers, raise_fault)


def raise_fault(fault: Exception) -> None:
    raise fault
