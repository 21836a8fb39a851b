"""What APIs require: an operation on a kind of resource, by the names with which handlers declare it and ask for it."""

from __future__ import annotations

from typing import Final

from moldau.base.acl_operations import AclOperation as Op
from moldau.security.acls.access import Needs
from moldau.security.acls.bindings import ResourceType as On

CLUSTER_ACTION: Final = Needs(Op.CLUSTER_ACTION, On.CLUSTER)
"""What nodes of the cluster do with each other."""
CLUSTER_ALTER: Final = Needs(Op.ALTER, On.CLUSTER)
CLUSTER_ALTER_CONFIGS: Final = Needs(Op.ALTER_CONFIGS, On.CLUSTER)
CLUSTER_CREATE: Final = Needs(Op.CREATE, On.CLUSTER)
CLUSTER_DELETE: Final = Needs(Op.DELETE, On.CLUSTER)
CLUSTER_DESCRIBE: Final = Needs(Op.DESCRIBE, On.CLUSTER)
CLUSTER_DESCRIBE_CONFIGS: Final = Needs(Op.DESCRIBE_CONFIGS, On.CLUSTER)
CLUSTER_IDEMPOTENT_WRITE: Final = Needs(Op.IDEMPOTENT_WRITE, On.CLUSTER)
TOPIC_READ: Final = Needs(Op.READ, On.TOPIC)
TOPIC_WRITE: Final = Needs(Op.WRITE, On.TOPIC)
TOPIC_CREATE: Final = Needs(Op.CREATE, On.TOPIC)
TOPIC_DELETE: Final = Needs(Op.DELETE, On.TOPIC)
TOPIC_ALTER: Final = Needs(Op.ALTER, On.TOPIC)
TOPIC_DESCRIBE: Final = Needs(Op.DESCRIBE, On.TOPIC)
TOPIC_DESCRIBE_CONFIGS: Final = Needs(Op.DESCRIBE_CONFIGS, On.TOPIC)
TOPIC_ALTER_CONFIGS: Final = Needs(Op.ALTER_CONFIGS, On.TOPIC)
GROUP_READ: Final = Needs(Op.READ, On.GROUP)
GROUP_DELETE: Final = Needs(Op.DELETE, On.GROUP)
GROUP_DESCRIBE: Final = Needs(Op.DESCRIBE, On.GROUP)
GROUP_DESCRIBE_CONFIGS: Final = Needs(Op.DESCRIBE_CONFIGS, On.GROUP)
GROUP_ALTER_CONFIGS: Final = Needs(Op.ALTER_CONFIGS, On.GROUP)
TRANSACTION_WRITE: Final = Needs(Op.WRITE, On.TRANSACTIONAL_ID)
TRANSACTION_DESCRIBE: Final = Needs(Op.DESCRIBE, On.TRANSACTIONAL_ID)
TOKEN_DESCRIBE: Final = Needs(Op.DESCRIBE, On.DELEGATION_TOKEN)
USER_CREATE_TOKENS: Final = Needs(Op.CREATE_TOKENS, On.USER)
USER_DESCRIBE_TOKENS: Final = Needs(Op.DESCRIBE_TOKENS, On.USER)
