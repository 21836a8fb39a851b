"""The registration that a broker sends to the controller."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from moldau.base.ids import Uuid
from moldau.base.listeners import Listener
from moldau.metadata.controller.features import SUPPORTED
from moldau.settings import Settings
from moldau.wire.messages.broker_registration import BrokerRegistrationRequest, Feature
from moldau.wire.messages.broker_registration import Listener as RegisteredListener

log = logging.getLogger("moldau.node")
REASONS_MAX: Final = 10


def broker_registration(
    settings: Settings, cluster_id: str, directory_id: Uuid, advertised: Sequence[Listener], previous_epoch: int
) -> BrokerRegistrationRequest:
    """`previous_epoch`: the broker epoch of the previous run; below 0 if records of that run may be lost."""
    return BrokerRegistrationRequest(
        broker_id=settings.node_id,
        cluster_id=cluster_id,
        listeners=[
            RegisteredListener(each.name, each.host, each.port, each.security_protocol_id) for each in advertised
        ],
        features=[Feature(name, low, high) for name, (low, high) in SUPPORTED.items()],
        rack=settings.broker_rack,
        log_dirs=[directory_id],
        previous_broker_epoch=previous_epoch,
    )


def warn_of_damage(reasons: Sequence[str]) -> None:
    """Say why this broker registers without the epoch of its previous run."""
    more = f" (and {len(reasons) - REASONS_MAX} more)" if len(reasons) > REASONS_MAX else ""
    log.warning(
        "records of the last run may be lost: this broker leaves every in-sync set that has other members until it has "
        "caught up; %s%s",
        "; ".join(reasons[:REASONS_MAX]),
        more,
    )
