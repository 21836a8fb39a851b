"""The codes in requests about ACLs. Code 0 stands for everything unknown and is never sent: such a request closes the
connection, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter, contains
from typing import Final

from moldau.base.errors import MalformedData
from moldau.wire.messages.create_acls import AclCreation
from moldau.wire.messages.delete_acls import DeleteAclsFilter
from moldau.wire.messages.describe_acls import DescribeAclsRequest

_CODES_OF_CREATION: Final = attrgetter("resource_type", "resource_pattern_type", "operation", "permission_type")
_CODES_OF_FILTER: Final = attrgetter("resource_type_filter", "pattern_type_filter", "operation", "permission_type")


def check_codes(items: Sequence[AclCreation | DeleteAclsFilter | DescribeAclsRequest]) -> None:
    """Raise MalformedData if a resource type, pattern type, operation or permission is 0."""
    codes = _CODES_OF_CREATION if items and isinstance(items[0], AclCreation) else _CODES_OF_FILTER
    # No Python is executed for each of the ten thousand items that a request may have.
    if any(map(contains, map(codes, items), repeat(0))):
        raise MalformedData("an ACL or filter with code 0 (UNKNOWN)")
