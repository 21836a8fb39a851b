"""Connects the views of a broker: results within a budget, and the workers that evaluate them."""

from __future__ import annotations

import logging

from moldau.assembly.world import World
from moldau.base.broker_configs import broker_integer
from moldau.base.config_def import BrokerLayers
from moldau.base.settings import own
from moldau.replica.partitions import Partitions
from moldau.replica.views import Views
from moldau.runtime.views.ports import ViewsInThread
from moldau.views.shown_runs import ResultBudget

log = logging.getLogger("moldau.views")


def views_of(partitions: Partitions, world: World, configs: BrokerLayers) -> Views:
    """Make the partitions show views."""
    evaluator = world.views or ViewsInThread(world.run_in_thread)
    budget = ResultBudget(broker_integer(own.MOLDAU_VIEWS_KEPT_BYTES, configs))
    views = Views(evaluator, budget, log.error, partitions.traffic, world.clock, world.timers)
    partitions.views = views
    return views
