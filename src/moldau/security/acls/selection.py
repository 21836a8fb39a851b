"""The ACLs that follow from who, which operations and which resources somebody named.

The command line and the console share it. `Wording` has the words in which they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from moldau.base.acl_operations import AclOperation, operations_of
from moldau.security.acls.allowed_operations import SUPPORTED
from moldau.security.acls.authorizer import Authorizer, Decision
from moldau.security.acls.bindings import WILDCARD, AclBinding, AclFilter, PatternType, Permission, ResourceType
from moldau.security.hosts import acl_host
from moldau.security.principals import ANYBODY, USER

ANY_HOST: Final = WILDCARD
LISTED_MAX: Final = 6
ROLES: Final = {
    "producer": {
        ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE),
        ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
        ResourceType.CLUSTER: (AclOperation.IDEMPOTENT_WRITE,),
    },
    "consumer": {
        ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
        ResourceType.GROUP: (AclOperation.READ,),
    },
}
"""What a producer and a consumer need."""

UNKNOWN_RULES: Final = (
    "super users, who may do everything, are not known: that needs DESCRIBE_CONFIGS on the cluster, and Apache Kafka"
    " tells nobody"
)


class UnusableAcl(Exception):
    """What was named gives no ACL that could ever have an effect."""


@dataclass(frozen=True, slots=True)
class Resource:
    type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


@dataclass(frozen=True, slots=True)
class Wording:
    """How messages name what a user of this front end chooses."""

    role: str = "the role {role}"
    prefix: str = "a prefix"
    prefix_of: str = "the prefix {name}"
    """All resources of a kind that begin with a name."""
    kinds: dict[ResourceType, str] | None = None
    """The options that name resources, if there are such."""

    def name(self, resource: Resource) -> str:
        return f"{self._kind(resource.type)} {resource.name}"

    def prefix_instead(self, kind: ResourceType, name: str) -> str:
        return self.prefix_of.format(kind=self._kind(kind), name=name)

    def _kind(self, kind: ResourceType) -> str:
        return resource_word(kind) if self.kinds is None else self.kinds[kind]


def principal_of(text: str) -> str:
    """Return the principal; a name without a type is a user."""
    if ":" in text.strip(":"):
        return text
    if not text or ":" in text:
        raise UnusableAcl(f"{text!r} is not a principal; expected a user's name, or TYPE:NAME")
    return f"{USER}:{text}"


def host_of(text: str) -> str:
    """Return an address as brokers compare it."""
    if text == ANY_HOST:
        return text
    try:
        ip_address(text)
    except ValueError:
        raise UnusableAcl(
            f"{text!r} is not an address; expected one like 10.0.0.7 or 2001:db8::7, without a network mask, or '*'"
        ) from None
    return acl_host(text)


def operations_named(words: Iterable[str]) -> list[AclOperation]:
    """Return the operations of words such as read and describe-configs."""
    operations = []
    for word in filter(None, map(str.strip, words)):
        name = word.upper().replace("-", "_")
        if name not in AclOperation.__members__ or AclOperation[name] in (AclOperation.UNKNOWN, AclOperation.ANY):
            raise UnusableAcl(f"{word!r} is not an operation; expected one of {_names(_all_operations())}")
        operations.append(AclOperation[name])
    return operations


def operation_word(operation: AclOperation) -> str:
    return operation.name.lower().replace("_", "-")


def resource_word(kind: ResourceType) -> str:
    return kind.name.lower().replace("_", " ")


def operations_for(kind: ResourceType) -> list[AclOperation]:
    """Return the operations that ACLs for this kind of resource may have."""
    return [AclOperation.ALL, *operations_of(SUPPORTED[kind])]


def _all_operations() -> Iterator[AclOperation]:
    return (each for each in AclOperation if each not in (AclOperation.UNKNOWN, AclOperation.ANY))


def _names(operations: Iterable[AclOperation]) -> str:
    return ", ".join(map(operation_word, operations))


def bindings(
    principal: str,
    host: str,
    permission: Permission,
    operations: Sequence[AclOperation],
    roles: Sequence[str],
    resources: Sequence[Resource],
    wording: Wording,
) -> list[AclBinding]:
    """Return an ACL for each resource and operation. A role adds the operations that it needs of each resource."""
    result = []
    for resource in resources:
        _check_name(resource, wording)
        chosen = [*operations, *(each for role in roles for each in ROLES[role].get(resource.type, ()))]
        _check(resource, chosen, roles, permission, wording)
        result += [
            AclBinding(resource.type, resource.name, resource.pattern_type, principal, host, operation, permission)
            for operation in dict.fromkeys(chosen)
        ]
    return result


def _check_name(resource: Resource, wording: Wording) -> None:
    """Fail for a name that no topic can have."""
    if resource.type is not ResourceType.TOPIC or WILDCARD not in resource.name.strip() or resource.name == WILDCARD:
        return
    prefix = resource.name.partition(WILDCARD)[0]
    instead = wording.prefix_instead(resource.type, prefix)
    meant = f"for all topics that begin with {prefix} use {instead}" if prefix else "'*' is all topics"
    raise UnusableAcl(f"{wording.name(resource)}: names of topics have no star; {meant}")


def _check(
    resource: Resource,
    operations: Sequence[AclOperation],
    roles: Sequence[str],
    permission: Permission,
    wording: Wording,
) -> None:
    if resource.pattern_type is PatternType.PREFIXED and resource.name == WILDCARD:
        raise UnusableAcl(f"{wording.prefix} needs the beginning of a name, not '*'")
    supported = operations_for(resource.type)
    kind = resource_word(resource.type)
    if not operations:
        other_roles = _roles_for(resource.type, wording) if permission is Permission.ALLOW else []
        choices = " or ".join((f"operations ({_names(supported)})", *other_roles))
        if roles:
            role = wording.role.format(role=roles[0])
            raise UnusableAcl(f"{role} needs nothing of a {kind}; leave {resource.name} out, or name {choices}")
        raise UnusableAcl(f"no operation for the {kind} {resource.name}; name {choices}")
    for operation in operations:
        if operation not in supported:
            raise UnusableAcl(f"a {kind} has no operation {operation_word(operation)}; it has {_names(supported)}")


def _roles_for(kind: ResourceType, wording: Wording) -> list[str]:
    return [wording.role.format(role=role) for role, needs in ROLES.items() if kind in needs]


def star_notes(resources: Iterable[Resource], wording: Wording) -> list[str]:
    """Return a line for each name that was perhaps meant as a pattern."""
    return [
        f"note: {resource.name} is one name, with a star at its end; all names that begin with it are"
        f" {wording.prefix_instead(resource.type, resource.name.rstrip(WILDCARD))}"
        for resource in resources
        if resource.name.endswith(WILDCARD) and resource.name != WILDCARD
    ]


def filter_for(binding: AclBinding) -> AclFilter:
    """Return the filter that selects this ACL and no other."""
    return AclFilter(
        binding.resource_type,
        binding.pattern,
        binding.pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission,
    )


def decision_line(
    principal: str, operation: AclOperation, resource: Resource, decision: Decision, exceptions: Sequence[str] = ()
) -> str:
    """Say in a sentence what an authorizer decided, and by which rule. From the addresses in `exceptions` it is
    otherwise."""
    what = f"{operation_word(operation)} {resource_word(resource.type)} {resource.name}"
    verb, other = ("may", "not") if decision.is_allowed else ("may not", "may")
    but = f", but {other} from {listed(exceptions)}" if exceptions else ""
    return f"{principal} {verb} {what}{but}: {decision}"


def decide_from(
    authorizer: Authorizer,
    acls: Iterable[AclBinding],
    principal: str,
    host: str,
    operation: AclOperation,
    resource: Resource,
) -> tuple[Decision, list[str]]:
    """Return the decision for an address. For any address: that for all that no ACL names, and the others from which it
    is otherwise. `acls` are those that the authorizer has for the resource."""
    asked = (operation, resource.type, resource.name)
    decision = authorizer.decide(principal, host, *asked)
    if host != ANY_HOST:
        return decision, []
    hosts = {each.host for each in acls if each.principal in (principal, str(ANYBODY))}
    decisions = {each: authorizer.decide(principal, each, *asked) for each in sorted(hosts)}
    return decision, [each for each, other in decisions.items() if other.is_allowed != decision.is_allowed]


def listed(words: Sequence[str], separator: str = ", ") -> str:
    """Join words, at most so many as one reads."""
    more = len(words) - LISTED_MAX
    return separator.join(words[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")
