"""Lists, creates and deletes the ACLs of a cluster. The error of a single ACL or filter is raised."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from moldau.base.acl_operations import AclOperation
from moldau.base.settings.security import ALLOW_EVERYONE_IF_NO_ACL_FOUND, SUPER_USERS
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.requests.ask import raise_error
from moldau.client.requests.configs import BROKER, describe_configs
from moldau.security.acls.authorizer import Rules
from moldau.security.acls.bindings import AclBinding, AclFilter, PatternType, Permission, ResourceType
from moldau.security.acls.selection import Resource
from moldau.security.principals import parse_super_users
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from moldau.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from moldau.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


class Acls:
    def __init__(self, admin: ClusterAdmin) -> None:
        self._admin = admin

    def find(self, acl_filter: AclFilter) -> list[AclBinding]:
        """Return the ACLs that the filter selects, sorted."""
        request = DescribeAclsRequest(
            acl_filter.resource_type,
            acl_filter.pattern,
            acl_filter.pattern_type,
            acl_filter.principal,
            acl_filter.host,
            acl_filter.operation,
            acl_filter.permission,
        )
        response = self._admin.ask(ApiKey.DESCRIBE_ACLS, request, DescribeAclsResponse)
        return sorted(
            AclBinding(
                ResourceType(resource.resource_type),
                resource.resource_name,
                PatternType(resource.pattern_type),
                acl.principal,
                acl.host,
                AclOperation(acl.operation),
                Permission(acl.permission_type),
            )
            for resource in response.resources
            for acl in resource.acls
        )

    def rules(self) -> Rules | None:
        """Return what decides besides ACLs, from a broker's configs. None if it does not tell: the client may not read
        them, or they are hidden (Apache Kafka hides what is a config of its authorizer)."""
        broker_id = min(self._admin.cluster.nodes())
        keys = [SUPER_USERS.name, ALLOW_EVERYONE_IF_NO_ACL_FOUND.name]
        results = describe_configs(partial(self._admin.ask, node_id=broker_id), BROKER, [str(broker_id)], keys)
        configs = [config for result in results for config in result.configs]
        is_hidden = any(config.is_sensitive and config.value is None for config in configs)
        if is_hidden or any(result.error_code for result in results):
            return None
        values = {config.name: config.value or "" for config in configs}
        return Rules(parse_super_users(values.get(keys[0], "")), values.get(keys[1], "").lower() == "true")

    def covering(self, resources: Iterable[Resource]) -> set[AclBinding]:
        """Return the ACLs that decide about these resources."""
        names = {(each.type, each.name) for each in resources}
        return {each for kind, name in names for each in self.find(AclFilter(kind, name, PatternType.MATCH))}

    def create(self, bindings: Iterable[AclBinding]) -> None:
        """Create all of them; an ACL that exists already is no error."""
        request = CreateAclsRequest([AclCreation(*binding) for binding in bindings])
        response = self._admin.ask(ApiKey.CREATE_ACLS, request, CreateAclsResponse)
        for result in response.results:
            raise_error(result.error_code, result.error_message)

    def delete(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """Delete what the filters select, and return it."""
        request = DeleteAclsRequest([_requested_filter(each) for each in filters])
        response = self._admin.ask(ApiKey.DELETE_ACLS, request, DeleteAclsResponse)
        deleted = set()
        for result in response.filter_results:
            raise_error(result.error_code, result.error_message)
            for acl in result.matching_acls:
                raise_error(acl.error_code, acl.error_message)
                deleted.add(
                    AclBinding(
                        ResourceType(acl.resource_type),
                        acl.resource_name,
                        PatternType(acl.pattern_type),
                        acl.principal,
                        acl.host,
                        AclOperation(acl.operation),
                        Permission(acl.permission_type),
                    )
                )
        return sorted(deleted)


def _requested_filter(acl_filter: AclFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        acl_filter.resource_type,
        acl_filter.pattern,
        acl_filter.pattern_type,
        acl_filter.principal,
        acl_filter.host,
        acl_filter.operation,
        acl_filter.permission,
    )
