"""Connects the views of a broker: results within a budget, and the workers that evaluate them."""

from __future__ import annotations

import logging

from moldau.assembly.world import World
from moldau.base import own_configs
from moldau.base.broker_configs import broker_value
from moldau.base.config_def import BrokerLayers
from moldau.replica.partitions import Partitions
from moldau.replica.views import Views
from moldau.runtime.views.ports import ViewsInThread
from moldau.views.shown_runs import ResultBudget

log = logging.getLogger("moldau.views")


def views_of(partitions: Partitions, world: World, configs: BrokerLayers) -> Views:
    """Make the partitions show views."""
    evaluator = world.views or ViewsInThread(world.run_in_thread)
    kept_bytes = broker_value(own_configs.VIEW_KEPT_BYTES, configs)
    assert isinstance(kept_bytes, int), "its type"
    budget = ResultBudget(kept_bytes)
    views = Views(evaluator, budget, log.error, partitions.traffic, world.clock, world.timers)
    partitions.views = views
    return views
