"""The connections of a read: to the topics, or to views of them if the broker filters (`where` and `fields`)."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.client.cluster import CONNECT_SECONDS, Cluster, cluster_of
from moldau.spark.options import ReadOptions
from moldau.spark.pushed.making import View
from moldau.spark.pushed.shape import Shape
from moldau.spark.pushed.view_cluster import ViewCluster

_view_clusters: dict[tuple[str, tuple[tuple[str, str], ...], Shape], ViewCluster] = {}


def connect(options: ReadOptions, timeout_seconds: float = CONNECT_SECONDS) -> Cluster:
    """Return new connections, which the caller closes."""
    if options.shape is None:
        return Cluster(options.bootstrap, options.properties, timeout_seconds)
    return ViewCluster(options.bootstrap, options.properties, options.shape, timeout_seconds)


def connected(options: ReadOptions, views: Mapping[str, View] | None = None) -> Cluster:
    """Return this process's connections, cached as in `cluster_of`. `views` are those that the driver found."""
    if options.shape is None:
        return cluster_of(options.bootstrap, options.properties)
    key = options.bootstrap, tuple(sorted(options.properties.items())), options.shape
    if key not in _view_clusters:
        _view_clusters[key] = ViewCluster(options.bootstrap, options.properties, options.shape)
    cluster = _view_clusters[key]
    cluster.views |= views or {}
    return cluster


def views_in(cluster: Cluster) -> dict[str, View]:
    """The views that are read instead of topics."""
    return dict(cluster.views) if isinstance(cluster, ViewCluster) else {}
