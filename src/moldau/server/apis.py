"""The APIs that nodes serve: every handler that a module in `handlers/` declares, and what follows from the
declarations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from inspect import signature
from pkgutil import walk_packages

from moldau.security.acls.access import Needs
from moldau.server import handlers
from moldau.server.handler import Handler
from moldau.server.handlers.forwarded import DecidedHandler, ForwardedHandler
from moldau.server.parts import BrokerParts, ControllerParts
from moldau.wire.apis import ApiKey


@cache
def declared_handlers() -> tuple[type[Handler], ...]:
    """Return the handlers of brokers and of controllers, ordered by API."""
    found: list[type[Handler]] = []
    for module in walk_packages(handlers.__path__, handlers.__name__ + "."):
        found += [
            each
            for each in vars(import_module(module.name)).values()
            if isinstance(each, type) and issubclass(each, Handler) and each.__module__ == module.name
            if hasattr(each, "api")
        ]
    return tuple(sorted(found, key=lambda each: each.api))


def broker_handlers() -> list[type[Handler]]:
    return [each for each in declared_handlers() if each.is_on_brokers]


def controller_handlers() -> list[type[Handler]]:
    return [each for each in declared_handlers() if each.is_on_controllers]


@cache
def decided_handlers() -> Mapping[ApiKey, type[DecidedHandler]]:
    """Return the APIs that the controller decides."""
    return {each.api: each for each in declared_handlers() if issubclass(each, DecidedHandler)}


def forwarded_handler(key: int) -> type[ForwardedHandler] | None:
    """Return the handler of an API that brokers forward; None if they do not forward it."""
    handler = decided_handlers().get(ApiKey(key)) if key in decided_handlers() else None
    return handler if handler is not None and issubclass(handler, ForwardedHandler) else None


@cache
def requirements() -> Mapping[ApiKey, tuple[Needs, ...]]:
    """Return what APIs require, on brokers and on controllers. APIs that need no permission are left out."""
    found: dict[ApiKey, dict[Needs, None]] = {}
    for handler in declared_handlers():
        found.setdefault(handler.api, {}).update(dict.fromkeys(handler.needs))
    return {api: tuple(needs) for api, needs in found.items() if needs}


def create_handlers(types: Iterable[type[Handler]], parts: BrokerParts | ControllerParts) -> list[Handler]:
    """Create handlers, each with the parts that its `__init__` names. One with a default may be missing."""
    return [
        handler(**{name: getattr(parts, name) for name in _parameters()[handler] if hasattr(parts, name)})
        for handler in types
    ]


@cache
def _parameters() -> Mapping[type[Handler], tuple[str, ...]]:
    """Return the parameters of the `__init__` of all handlers: it takes a while to find them, and each node asks."""
    return {handler: tuple(signature(handler).parameters) for handler in declared_handlers()}
