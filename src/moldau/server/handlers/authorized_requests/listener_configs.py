"""Checks dynamic configs of a broker's listeners on that broker: only it can read its key and trust stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from moldau.base.broker_configs import check_dynamic_broker_configs, is_dynamic_of_listener
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ports import RunInThread
from moldau.base.steps import Steps, TurnItems, WaitingSteps, no_steps
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.broker_configs import broker_layers
from moldau.metadata.controller.configs import AlteredResource, configs_after
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.runtime.listener_configs import ListenerConfigs
from moldau.runtime.thread_work import in_thread
from moldau.security.acls.access import Access
from moldau.security.principals import Principal
from moldau.server.handlers.authorized_requests.authorized import Authorize, Authorized, duplicates
from moldau.server.handlers.authorized_requests.configs import AlterRequest, AlterResponse, without_refused
from moldau.wire.messages import alter_configs
from moldau.wire.schema import Message

CheckChange = Callable[[AlteredResource, frozenset[str], Principal], WaitingSteps[KafkaError | None]]
"""Returns why the configs of these names cannot be changed by that principal, or None."""


def checking_listener_configs(
    authorize: Authorize,
    node_id: int,
    current: CurrentImage,
    static: Mapping[str, str],
    configs: ListenerConfigs,
    run_in_thread: RunInThread,
) -> Authorize:
    """For the listeners of a broker. `static` are the configs of its properties file."""

    def check(
        resource: AlteredResource, names: frozenset[str], requester: Principal
    ) -> WaitingSteps[KafkaError | None]:
        if resource.resource_name != str(node_id):
            return KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {node_id}, but received {resource.resource_name}: only the broker"
                " itself can check these configs",
            )
        image = current.image
        old = image.configs_of(ConfigResource.BROKER, resource.resource_name)
        try:
            new = configs_after(image, resource, broker_layers(image, node_id, static))
            changes = {name: value for name, value in new.items() if old.get(name) != value}
            check_dynamic_broker_configs(changes, per_broker=True)
            yield from in_thread(run_in_thread, partial(configs.check, names, old, new, requester))
        except KafkaError as refused:
            return refused
        return None

    return _checking(authorize, current, check)


def refusing_listener_configs(authorize: Authorize, current: CurrentImage) -> Authorize:
    """For the listeners of a controller."""

    def refuse(resource: AlteredResource, names: frozenset[str], _: Principal) -> Steps[KafkaError | None]:
        return no_steps(
            KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Only broker {resource.resource_name} can check these configs, ask it: [{', '.join(sorted(names))}]",
            )
        )

    return _checking(authorize, current, refuse)


def _checking(authorize: Authorize, current: CurrentImage, check: CheckChange) -> Authorize:
    def authorize_and_check(request: AlterRequest, access: Access) -> WaitingSteps[Authorized]:
        authorized = yield from authorize(request, access)
        allowed = authorized.request
        if not isinstance(allowed, AlterRequest):
            return authorized
        resources: Sequence[AlteredResource] = allowed.resources
        unchecked = duplicates((each.resource_type, each.resource_name) for each in resources)
        turn, errors = TurnItems(ITEMS_A_TURN), list[KafkaError | None]()
        for resource in resources:
            names = frozenset[str]()
            key = resource.resource_type, resource.resource_name
            if resource.resource_type == ConfigResource.BROKER and resource.resource_name and key not in unchecked:
                names = _names(resource, current.image)
            errors.append((yield from check(resource, names, access.principal)) if names else None)
            if turn.ends_after(len(names)):
                yield None
        return _both(without_refused(allowed, errors), authorized)

    return authorize_and_check


def _names(resource: AlteredResource, image: MetadataImage) -> frozenset[str]:
    """Return the configs of listeners that the request names, or removes because it does not name them."""
    names = {config.name for config in resource.configs}
    if isinstance(resource, alter_configs.AlterConfigsResource):
        names |= image.configs_of(ConfigResource.BROKER, resource.resource_name).keys()
    return frozenset(filter(is_dynamic_of_listener, names))


def _both(here: Authorized, before: Authorized) -> Authorized:
    """Return what is left after two refusals, of which `before` was the first."""

    def with_refused(response: AlterResponse) -> Steps[Message]:
        others = yield from here.with_refused(response)
        return (yield from before.with_refused(others))

    return Authorized(here.request, with_refused)
