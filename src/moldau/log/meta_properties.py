"""meta.properties: which cluster, node and directory the files around it belong to. Kafka's name and format:

    version=1
    cluster.id=MkU3OEVBNTcwNTJENDM2Qg     any id the cluster was formatted with
    node.id=1
    directory.id=lOLpbQhW6nUlMvV2WenSFw   a UUID of its own for each log directory

A directory without it is formatted when nothing else is in it; data without it is left alone, for it may be another's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.base import properties
from moldau.base.errors import MalformedData
from moldau.base.ids import NodeId, Uuid, uuid_from_text, uuid_text
from moldau.log import layout
from moldau.log.checkpoints import replace_file
from moldau.log.files import Files

META_PROPERTIES: Final = "meta.properties"
_VERSION: Final = "1"
_INNOCENT: Final = frozenset((layout.LOCK, "lost+found", META_PROPERTIES + layout.TEMPORARY))
"""Names in a directory that hold nobody's data."""


class ForeignDirectory(Exception):
    """The directory belongs to another node or cluster, or holds data that nobody has signed."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    cluster_id: str
    node_id: NodeId
    directory_id: Uuid


def parse(text: str) -> MetaProperties:
    found = {each.key: each.value.strip() for each in properties.parse(text)}
    try:
        if found["version"] != _VERSION:
            raise MalformedData(f"version {found['version']} of {META_PROPERTIES} is not known")
        return MetaProperties(
            cluster_id=_cluster_id(found["cluster.id"]),
            node_id=_node_id(found["node.id"]),
            directory_id=uuid_from_text(found["directory.id"]),
        )
    except KeyError as missing:
        raise MalformedData(f"{META_PROPERTIES} has no {missing.args[0]}") from None
    except ValueError as wrong:
        raise MalformedData(f"{META_PROPERTIES}: {wrong}") from None


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
    """None if the directory is not formatted, or not there."""
    content = files.read(f"{log_dir}/{META_PROPERTIES}")
    if content is None:
        return None
    try:
        return parse(content.decode())
    except (MalformedData, UnicodeDecodeError) as wrong:
        raise MalformedData(f"{log_dir}: {wrong}") from None


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
    """The meta.properties of each directory, all of this node and one cluster; empty directories are formatted.

    The cluster is the one named, or the one already written down, or a new one, in this order. A node that is not alone
    must not make one up: the others would have another.
    """
    found = {log_dir: read(files, log_dir) for log_dir in log_dirs}
    for log_dir, meta in found.items():
        if meta is None:
            _refuse_unsigned_data(files, log_dir)
        elif meta.node_id != node_id:
            raise ForeignDirectory(f"{log_dir} belongs to node {meta.node_id}, and this is node {node_id}")
    written = next((meta.cluster_id for meta in found.values() if meta), None)
    if not (cluster_id or written or is_alone):
        raise ForeignDirectory(
            f"{log_dirs[0]} is not formatted, and nodes of one cluster have one cluster id: set CLUSTER_ID, or run "
            "`kafka-storage.sh format --cluster-id ID --config FILE` for each node"
        )
    cluster_id = cluster_id or written or uuid_text(new_uuid())
    for log_dir, meta in found.items():
        if meta and meta.cluster_id != cluster_id:
            raise ForeignDirectory(f"{log_dir} belongs to cluster {meta.cluster_id}, and this is cluster {cluster_id}")
    return tuple(meta or _format(files, log_dir, cluster_id, node_id, new_uuid) for log_dir, meta in found.items())


def _format(
    files: Files, log_dir: str, cluster_id: str, node_id: NodeId, new_uuid: Callable[[], Uuid]
) -> MetaProperties:
    meta = MetaProperties(cluster_id, node_id, new_uuid())
    write(files, log_dir, meta)
    return meta


def _refuse_unsigned_data(files: Files, log_dir: str) -> None:
    strangers = sorted(set(files.names(log_dir)) - _INNOCENT) if files.exists(log_dir) else []
    if strangers:
        raise ForeignDirectory(
            f"{log_dir} holds {strangers[0]} and no {META_PROPERTIES}; name an empty or a formatted directory"
        )


def _cluster_id(text: str) -> str:
    if not text:
        raise ValueError("cluster.id is empty")
    return text


def _node_id(text: str) -> NodeId:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"node.id={text} is no node's number")
    return NodeId(int(text))
