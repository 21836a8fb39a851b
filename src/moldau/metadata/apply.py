"""Apply metadata records to an image. `apply` never refuses a record: what is in the log was decided, also on replay.

The overlay copies the parts of a map that records change; the new map shares all others with the old one, so that a
small change is cheap in a large cluster too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from moldau.base.acl_operations import AclOperation
from moldau.base.ids import Uuid, uuid_from_text
from moldau.base.persistent_map import PersistentMap
from moldau.base.steps import Steps, finish
from moldau.base.topic_names import collision_key
from moldau.base.turns import ITEMS_A_TURN
from moldau.base.view_configs import VIEW_SOURCE_ID
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.metadata.records import FENCE, UNFENCE, ConfigResource
from moldau.metadata.states import (
    changed_broker,
    changed_indexes,
    changed_partition,
    new_partition,
    registered_broker,
    registered_controller,
)
from moldau.security.acls.bindings import AclBinding, PatternType, Permission, ResourceType
from moldau.security.delegation_tokens import DelegationToken
from moldau.security.principals import split_principal
from moldau.security.scram_credentials import ScramCredential
from moldau.wire.log_records.metadata import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from moldau.wire.schema import MetadataRecord


@dataclass(slots=True)
class Changes:
    """The parts of the image that a batch of records changed, for the listeners of the image."""

    topics: dict[str, set[int]] = field(default_factory=dict)
    """The created and changed topics, each with the indexes of its created and changed partitions."""
    removed: list[TopicImage] = field(default_factory=list)
    configs: set[tuple[int, str]] = field(default_factory=set)
    brokers: set[int] = field(default_factory=set)
    """Brokers that were registered, unregistered or changed."""
    acls_added: list[AclBinding] = field(default_factory=list)
    acls_removed: list[AclBinding] = field(default_factory=list)
    has_client_quotas: bool = False
    """Whether client quotas were changed."""


def apply(
    image: MetadataImage, records: Iterable[MetadataRecord], offset: int, epoch: int
) -> tuple[MetadataImage, Changes]:
    """Return the image after these records, and what they changed. `offset` is that of the last record."""
    return finish(apply_in_steps(image, records, offset, epoch))


def apply_in_steps(
    image: MetadataImage, records: Iterable[MetadataRecord], offset: int, epoch: int
) -> Steps[tuple[MetadataImage, Changes]]:
    """Like `apply`, some hundred records in each step. The image that is passed in does not change meanwhile."""
    overlay, number = _Overlay(image), 0
    for number, record in enumerate(records):
        if number and not number % ITEMS_A_TURN:
            yield
        _APPLY[record.__class__](overlay, record)
    for count, name in enumerate(overlay.partitions):
        if count and not count % ITEMS_A_TURN:
            yield
        overlay.replace_topic(name)
    if number >= ITEMS_A_TURN:
        yield
    new_image = yield from overlay.image(offset, epoch)
    return new_image, overlay.changes


class _Overlay:
    """The maps of an image as mutable copies."""

    def __init__(self, image: MetadataImage) -> None:
        self.topics = image.topics.edit()
        self.topic_names = image.topic_names.edit()
        self.names_by_collision_key = image.names_by_collision_key.edit()
        self.brokers = image.brokers.edit()
        self.configs = image.configs.edit()
        self.controllers = image.controllers.edit()
        self.acls = image.acls.edit()
        self.acl_ids = image.acl_ids.edit()
        self.scram_credentials = image.scram_credentials.edit()
        self.client_quotas = image.client_quotas.edit()
        self.delegation_tokens = image.delegation_tokens.edit()
        self.views = image.views
        self.features = image.features
        self.features_off = image.features_off
        self.next_producer_id = image.next_producer_id
        self.partitions: dict[str, list[PartitionState]] = {}
        self._changing_configs: dict[tuple[int, str], dict[str, str]] = {}
        self.changes = Changes()

    def changing_partitions(self, name: str, index: int) -> list[PartitionState]:
        """Note that a partition changes. Return the topic's partitions as a mutable list; `replace_topic` turns it into
        a tuple at the end."""
        partitions = self.partitions.get(name)
        if partitions is None:
            partitions = self.partitions[name] = list(self.topics[name].partitions)
        self.changes.topics.setdefault(name, set()).add(index)
        return partitions

    def changing_configs(self, key: tuple[int, str]) -> dict[str, str]:
        """Return the configs of a resource, which may be thousands, as a dict to change. They are copied once."""
        configs = self._changing_configs.get(key)
        if configs is None:
            configs = self._changing_configs[key] = dict(self.configs.get(key) or {})
        return configs

    def remove_configs(self, key: tuple[int, str]) -> None:
        self._changing_configs.pop(key, None)
        if key in self.configs:
            self.configs.pop(key)

    def views_with(self, name: str, source_id: Uuid | None) -> PersistentMap[str, Uuid]:
        views = self.views.edit()
        if source_id is None:
            views.pop(name)
        else:
            views[name] = source_id
        return views.finish()

    def replace_topic(self, name: str) -> None:
        """Give a topic its changed partitions, after all records."""
        self.topics[name] = TopicImage(name, self.topics[name].id, tuple(self.partitions[name]))

    def image(self, offset: int, epoch: int) -> Steps[MetadataImage]:
        if self.views:
            self._follow_sources()
        return MetadataImage(
            offset,
            epoch,
            (yield from self.topics.finish_in_steps()),
            (yield from self.topic_names.finish_in_steps()),
            (yield from self.brokers.finish_in_steps()),
            (yield from self.configs.finish_in_steps()),
            self.features,
            self.next_producer_id,
            (yield from self.names_by_collision_key.finish_in_steps()),
            self.features_off,
            (yield from self.controllers.finish_in_steps()),
            (yield from self.acls.finish_in_steps()),
            (yield from self.acl_ids.finish_in_steps()),
            (yield from self.scram_credentials.finish_in_steps()),
            (yield from self.client_quotas.finish_in_steps()),
            (yield from self.delegation_tokens.finish_in_steps()),
            self.views,
        )

    def _follow_sources(self) -> None:
        """Give each view the partitions that its source has now: leaders, epochs, new partitions."""
        known: dict[tuple[int, int], set[int]] = {}
        for view in sorted(self.views):
            source_id = self.views[view]
            source = self.topic_names.get(source_id)
            partitions = () if source is None else self.topics[source].partitions
            old = self.topics[view]
            if old.partitions is partitions and old.is_view:
                continue
            self.topics[view] = TopicImage(view, old.id, partitions, source_id)
            # All views of a source share its partitions: they are compared once.
            changed = known.get(key := (id(old.partitions), id(partitions)))
            if changed is None:
                changed = known[key] = changed_indexes(old.partitions, partitions)
            self.changes.topics.setdefault(view, set()).update(changed)


def _add_topic(overlay: _Overlay, record: TopicRecord) -> None:
    overlay.topics[record.name] = TopicImage(record.name, record.topic_id, ())
    overlay.topic_names[record.topic_id] = record.name
    overlay.names_by_collision_key[collision_key(record.name)] = record.name
    overlay.partitions.pop(record.name, None)
    overlay.changes.topics[record.name] = set()


def _add_partition(overlay: _Overlay, record: PartitionRecord) -> None:
    partitions = overlay.changing_partitions(overlay.topic_names[record.topic_id], record.partition_id)
    assert record.partition_id <= len(partitions), "partitions are created in order"
    partitions[record.partition_id : record.partition_id + 1] = [new_partition(record)]


def _change_partition(overlay: _Overlay, record: PartitionChangeRecord) -> None:
    partitions = overlay.changing_partitions(overlay.topic_names[record.topic_id], record.partition_id)
    partitions[record.partition_id] = changed_partition(partitions[record.partition_id], record)


def _remove_topic(overlay: _Overlay, record: RemoveTopicRecord) -> None:
    name = overlay.topic_names.pop(record.topic_id)
    assert name is not None, "a topic is created before it is removed"
    partitions = overlay.partitions.pop(name, None)
    topic = overlay.topics.pop(name)
    assert topic is not None
    if partitions is not None:
        topic = TopicImage(name, topic.id, tuple(partitions))
    if overlay.names_by_collision_key.get(collision_key(name)) == name:
        overlay.names_by_collision_key.pop(collision_key(name))
    overlay.remove_configs((ConfigResource.TOPIC, name))
    if name in overlay.views:
        overlay.views = overlay.views_with(name, None)
    overlay.changes.topics.pop(name, None)
    overlay.changes.removed.append(topic)


def _register_broker(overlay: _Overlay, record: RegisterBrokerRecord) -> None:
    overlay.brokers[record.broker_id] = registered_broker(record)
    overlay.changes.brokers.add(record.broker_id)


def _unregister_broker(overlay: _Overlay, record: UnregisterBrokerRecord) -> None:
    overlay.brokers.pop(record.broker_id)
    overlay.changes.brokers.add(record.broker_id)


def _change_registration(overlay: _Overlay, record: BrokerRegistrationChangeRecord) -> None:
    overlay.brokers[record.broker_id] = changed_broker(overlay.brokers[record.broker_id], record)
    overlay.changes.brokers.add(record.broker_id)


def _fence_broker(overlay: _Overlay, record: FenceBrokerRecord) -> None:
    _change_registration(overlay, BrokerRegistrationChangeRecord(record.id, record.epoch, FENCE))


def _unfence_broker(overlay: _Overlay, record: UnfenceBrokerRecord) -> None:
    _change_registration(overlay, BrokerRegistrationChangeRecord(record.id, record.epoch, UNFENCE))


def _register_controller(overlay: _Overlay, record: RegisterControllerRecord) -> None:
    overlay.controllers[record.controller_id] = registered_controller(record)


def _set_config(overlay: _Overlay, record: ConfigRecord) -> None:
    key = (record.resource_type, record.resource_name)
    configs = overlay.changing_configs(key)
    if record.value is None:
        configs.pop(record.name, None)
    else:
        configs[record.name] = record.value
    if configs:
        overlay.configs[key] = configs
    else:
        overlay.remove_configs(key)
    overlay.changes.configs.add(key)
    # Brokers accept configs of any name, also of this one.
    is_view = record.name == VIEW_SOURCE_ID and record.resource_type == ConfigResource.TOPIC
    if is_view and record.value is not None:
        overlay.views = overlay.views_with(record.resource_name, uuid_from_text(record.value))


def _set_feature_level(overlay: _Overlay, record: FeatureLevelRecord) -> None:
    other_levels = {name: level for name, level in overlay.features.items() if name != record.name}
    if record.feature_level:
        overlay.features = {**other_levels, record.name: record.feature_level}
        overlay.features_off -= {record.name}
    else:
        overlay.features = other_levels
        overlay.features_off |= {record.name}


def _set_producer_ids(overlay: _Overlay, record: ProducerIdsRecord) -> None:
    overlay.next_producer_id = record.next_producer_id


def _add_acl(overlay: _Overlay, record: AccessControlEntryRecord) -> None:
    binding = AclBinding(
        ResourceType(record.resource_type),
        record.resource_name,
        PatternType(record.pattern_type),
        record.principal,
        record.host,
        AclOperation(record.operation),
        Permission(record.permission_type),
    )
    overlay.acls[record.id] = binding
    overlay.acl_ids[binding] = record.id
    overlay.changes.acls_added.append(binding)


def _remove_acl(overlay: _Overlay, record: RemoveAccessControlEntryRecord) -> None:
    binding = overlay.acls.pop(record.id)
    assert binding is not None, "an ACL is added before it is removed"
    overlay.acl_ids.pop(binding)
    overlay.changes.acls_removed.append(binding)


def _set_scram_credential(overlay: _Overlay, record: UserScramCredentialRecord) -> None:
    overlay.scram_credentials[record.mechanism, record.name] = ScramCredential(
        bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
    )


def _remove_scram_credential(overlay: _Overlay, record: RemoveUserScramCredentialRecord) -> None:
    overlay.scram_credentials.pop((record.mechanism, record.name))


def _set_client_quota(overlay: _Overlay, record: ClientQuotaRecord) -> None:
    entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
    limits = dict(overlay.client_quotas.get(entity) or {})
    if record.remove:
        limits.pop(record.key, None)
    else:
        limits[record.key] = record.value
    if limits:
        overlay.client_quotas[entity] = limits
    elif entity in overlay.client_quotas:
        overlay.client_quotas.pop(entity)
    overlay.changes.has_client_quotas = True


def _set_delegation_token(overlay: _Overlay, record: DelegationTokenRecord) -> None:
    overlay.delegation_tokens[record.token_id] = DelegationToken(
        record.token_id,
        split_principal(record.owner),
        split_principal(record.requester),
        tuple(map(split_principal, record.renewers)),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
    )


def _remove_delegation_token(overlay: _Overlay, record: RemoveDelegationTokenRecord) -> None:
    overlay.delegation_tokens.pop(record.token_id)


def _ignore(overlay: _Overlay, record: NoOpRecord) -> None:
    """A NoOpRecord changes only the offset of the image."""


_APPLY: dict[type[MetadataRecord], Callable[[_Overlay, Any], None]] = {
    TopicRecord: _add_topic,
    PartitionRecord: _add_partition,
    PartitionChangeRecord: _change_partition,
    RemoveTopicRecord: _remove_topic,
    RegisterBrokerRecord: _register_broker,
    UnregisterBrokerRecord: _unregister_broker,
    BrokerRegistrationChangeRecord: _change_registration,
    FenceBrokerRecord: _fence_broker,
    UnfenceBrokerRecord: _unfence_broker,
    RegisterControllerRecord: _register_controller,
    ConfigRecord: _set_config,
    FeatureLevelRecord: _set_feature_level,
    ProducerIdsRecord: _set_producer_ids,
    AccessControlEntryRecord: _add_acl,
    RemoveAccessControlEntryRecord: _remove_acl,
    UserScramCredentialRecord: _set_scram_credential,
    RemoveUserScramCredentialRecord: _remove_scram_credential,
    ClientQuotaRecord: _set_client_quota,
    DelegationTokenRecord: _set_delegation_token,
    RemoveDelegationTokenRecord: _remove_delegation_token,
    NoOpRecord: _ignore,
}
