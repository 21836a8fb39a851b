"""All ACLs of a cluster, arranged so that those of one resource are found without looking at the others.

Literal patterns are found by name. A prefixed pattern is found by the prefixes of the name, of which only those are
tried whose length some pattern has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from moldau.security.acls.bindings import WILDCARD, AclBinding, PatternType, ResourceType

_NONE: Final[dict[AclBinding, int]] = {}
_Key = tuple[ResourceType, str]


class AclIndex:
    def __init__(self) -> None:
        self._literal: dict[_Key, dict[AclBinding, int]] = {}
        """The bindings of each literal pattern, and how often each is there: a batch may remove a binding and add it
        again, and additions are applied first."""
        self._prefixed: dict[_Key, dict[AclBinding, int]] = {}
        self._lengths: dict[ResourceType, Counter[int]] = {}
        """How many prefixes of each length there are."""

    def add(self, binding: AclBinding) -> None:
        # Kept fast: ten thousand may be added in one turn.
        is_prefixed = binding.pattern_type is PatternType.PREFIXED
        by_key = self._prefixed if is_prefixed else self._literal
        key = binding[:2]
        bindings = by_key.get(key)
        if bindings is not None:
            bindings[binding] = bindings.get(binding, 0) + 1
            return
        by_key[key] = {binding: 1}
        if is_prefixed:
            self._lengths.setdefault(binding.resource_type, Counter())[len(binding.pattern)] += 1

    def remove(self, binding: AclBinding) -> None:
        is_prefixed = binding.pattern_type is PatternType.PREFIXED
        by_key = self._prefixed if is_prefixed else self._literal
        key = binding[:2]
        bindings = by_key[key]
        bindings[binding] -= 1
        if bindings[binding]:
            return
        del bindings[binding]
        if bindings:
            return
        del by_key[key]
        if is_prefixed:
            lengths = self._lengths[binding.resource_type]
            lengths[len(binding.pattern)] -= 1
            if not lengths[len(binding.pattern)]:
                del lengths[len(binding.pattern)]

    def covering(self, resource_type: ResourceType, name: str) -> Iterator[AclBinding]:
        """Yield the bindings whose pattern covers the resource."""
        yield from self._literal.get((resource_type, name), _NONE)
        if name != WILDCARD:
            yield from self._literal.get((resource_type, WILDCARD), _NONE)
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name):
                yield from self._prefixed.get((resource_type, name[:length]), _NONE)

    def of_type(self, resource_type: ResourceType) -> Iterator[AclBinding]:
        """Yield all bindings for resources of a type."""
        for by_key in (self._literal, self._prefixed):
            for (kind, _), bindings in by_key.items():
                if kind is resource_type:
                    yield from bindings
