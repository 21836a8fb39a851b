"""What AlterConfigs and IncrementalAlterConfigs have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any, Final

from moldau.base.clock import Timers
from moldau.base.steps import WaitingSteps
from moldau.metadata.records import ConfigResource
from moldau.runtime.controller.channel import AskController
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import CLUSTER_ALTER_CONFIGS, GROUP_ALTER_CONFIGS, TOPIC_ALTER_CONFIGS
from moldau.server.admin_actions import AdminAction, Lazy, first_joined
from moldau.server.handlers.authorized_requests.authorized import Authorize, Authorized
from moldau.server.handlers.authorized_requests.configs import AlterRequest, authorize_alter_configs
from moldau.server.handlers.forwarded import ForwardedHandler

CONFIG_OPERATIONS: Final = {0: "set", 1: "delete", 2: "append", 3: "subtract"}


class ConfigChange(ForwardedHandler):
    needs = (TOPIC_ALTER_CONFIGS, GROUP_ALTER_CONFIGS, CLUSTER_ALTER_CONFIGS)

    def __init__(
        self, forward: AskController, timers: Timers, with_listener_configs: Callable[[Authorize], Authorize]
    ) -> None:
        super().__init__(forward, timers)
        self._authorize = with_listener_configs(authorize_alter_configs)

    def authorize(self, request: AlterRequest, access: Access) -> WaitingSteps[Authorized]:
        return self._authorize(request, access)

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        """The names of the configs, not their values."""
        key = attrgetter("resource_type", "resource_name")
        changes = dict(zip(map(key, request.resources), request.resources, strict=True))
        for result in response.responses:
            kind = _config_kind(result.resource_type)
            change = changes.get(key(result))
            detail = "" if change is None else Lazy(partial(_config_names, change))
            yield AdminAction(f"{kind}:{result.resource_name}", result.error_code, detail)


def _config_names(resource: Any) -> str:
    names = (
        f"{CONFIG_OPERATIONS.get(getattr(config, 'config_operation', 0), 'set')}:{config.name}"
        for config in resource.configs
    )
    return first_joined(names, len(resource.configs))


def _config_kind(code: int) -> str:
    try:
        return ConfigResource(code).name.lower()
    except ValueError:
        return str(code)
