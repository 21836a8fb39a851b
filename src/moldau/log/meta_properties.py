"""meta.properties: which cluster, node and directory the files around it belong to. Kafka's name and format:

    version=1
    cluster.id=MkU3OEVBNTcwNTJENDM2Qg     any id the cluster was formatted with
    node.id=1
    directory.id=lOLpbQhW6nUlMvV2WenSFw   a UUID of its own for each log directory

An empty directory without it is formatted. A directory with data but without it is refused: the data may be another
node's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.base import properties
from moldau.base.errors import MalformedData
from moldau.base.ids import NodeId, Uuid, uuid_from_text, uuid_text
from moldau.base.reserve import RESERVE_FILE
from moldau.base.secure_files import SECURE_FILES
from moldau.base.topic_names import METADATA_TOPIC
from moldau.log import layout
from moldau.log.checkpoints import replace_file
from moldau.log.files import Files

META_PROPERTIES: Final = "meta.properties"
METADATA_LOG: Final = f"{METADATA_TOPIC}-0"
_VERSION: Final = "1"
_IGNORED_NAMES: Final = SECURE_FILES | {layout.LOCK, RESERVE_FILE, "lost+found", META_PROPERTIES + layout.TEMPORARY}
"""Names that may be in an empty directory: they hold no data."""


class ForeignDirectory(Exception):
    """The directory belongs to another node or cluster, or holds data without a meta.properties; or it is not
    formatted, and this node of a cluster does not know the cluster's id."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    cluster_id: str
    node_id: NodeId
    directory_id: Uuid


def parse(text: str) -> MetaProperties:
    values = {each.key: each.value.strip() for each in properties.parse(text)}
    try:
        if values["version"] != _VERSION:
            raise MalformedData(f"version {values['version']} is not supported")
        return MetaProperties(
            cluster_id=_cluster_id(values["cluster.id"]),
            node_id=_node_id(values["node.id"]),
            directory_id=uuid_from_text(values["directory.id"]),
        )
    except KeyError as error:
        raise MalformedData(f"there is no {error.args[0]}") from None
    except ValueError as error:
        raise MalformedData(str(error)) from None


def render(meta: MetaProperties) -> str:
    return properties.render(
        {
            "version": _VERSION,
            "cluster.id": meta.cluster_id,
            "node.id": str(meta.node_id),
            "directory.id": uuid_text(meta.directory_id),
        }
    )


def read(files: Files, log_dir: str) -> MetaProperties | None:
    """None if the directory is not formatted or does not exist."""
    path = f"{log_dir}/{META_PROPERTIES}"
    content = files.read(path)
    if content is None:
        return None
    try:
        return parse(properties.decode(content))
    except MalformedData as error:
        raise MalformedData(f"{path}: {error}") from None


def write(files: Files, log_dir: str, meta: MetaProperties) -> None:
    files.mkdir(log_dir)
    replace_file(files, log_dir, META_PROPERTIES, render(meta).encode())


def claim(
    files: Files,
    log_dirs: Sequence[str],
    node_id: NodeId,
    cluster_id: str | None,
    new_uuid: Callable[[], Uuid],
    *,
    is_alone: bool = True,
) -> tuple[MetaProperties, ...]:
    """Return the meta.properties of each directory, all of this node and one cluster; format empty directories.

    The cluster id is `cluster_id`, else the one already in a directory, else a new one. Only a node that is alone may
    generate a new one: otherwise each node of a cluster would have another id.
    """
    metas = {log_dir: read(files, log_dir) for log_dir in log_dirs}
    for log_dir, meta in metas.items():
        if meta is None:
            refuse_unformatted_data(files, log_dir)
        elif meta.node_id != node_id:
            raise ForeignDirectory(f"{log_dir} belongs to node {meta.node_id}, and this is node {node_id}")
    stored_id = next((meta.cluster_id for meta in metas.values() if meta), None)
    if not (cluster_id or stored_id or is_alone):
        raise ForeignDirectory(
            f"{log_dirs[0]} is not formatted, and nodes of one cluster have one cluster id: set CLUSTER_ID, or run "
            "`kafka-storage.sh format --cluster-id ID --config FILE` for each node"
        )
    cluster_id = cluster_id or stored_id or uuid_text(new_uuid())
    for log_dir, meta in metas.items():
        if meta and meta.cluster_id != cluster_id:
            raise ForeignDirectory(f"{log_dir} belongs to cluster {meta.cluster_id}, and this is cluster {cluster_id}")
    return tuple(meta or _format(files, log_dir, cluster_id, node_id, new_uuid) for log_dir, meta in metas.items())


def _format(
    files: Files, log_dir: str, cluster_id: str, node_id: NodeId, new_uuid: Callable[[], Uuid]
) -> MetaProperties:
    meta = MetaProperties(cluster_id, node_id, new_uuid())
    write(files, log_dir, meta)
    return meta


def refuse_unformatted_data(files: Files, log_dir: str) -> None:
    """Raise ForeignDirectory if the directory, which is not formatted, holds anything that may be data."""
    data_names = sorted(set(files.names(log_dir)) - _IGNORED_NAMES) if files.exists(log_dir) else []
    if data_names:
        raise ForeignDirectory(
            f"{log_dir} holds {data_names[0]} and no {META_PROPERTIES}; name an empty or a formatted directory"
        )


def is_only_formatted(files: Files, log_dir: str) -> bool:
    """Return whether the directory holds a metadata log without any file but the snapshot that names the first voters,
    and nothing else that may be data: no node has run in it."""
    data_names = set(files.names(log_dir)) - _IGNORED_NAMES - {META_PROPERTIES}
    return data_names == {METADATA_LOG} and files.names(f"{log_dir}/{METADATA_LOG}") == [layout.FIRST_SNAPSHOT]


def _cluster_id(text: str) -> str:
    if not text:
        raise ValueError("cluster.id is empty")
    return text


def _node_id(text: str) -> NodeId:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"node.id={text} is not a node id")
    return NodeId(int(text))
