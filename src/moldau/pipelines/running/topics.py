"""Before a run, checks that the topics it reads exist, and creates the topics of sinks with `partitions`.

This happens before Spark starts, over Moldau's own client, so that a wrong address or a missing topic is reported
clearly and within seconds. If the broker becomes unreachable later, the queries handle that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from moldau.base.errors import KafkaError, MalformedData, UnusableProperty
from moldau.base.listeners import start_command
from moldau.base.settings.topics import CLEANUP_POLICY
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.topics import topic_configs
from moldau.client.cluster import Cluster
from moldau.pipelines.problems import InvalidPipeline, PipelineError, Problem, Severity, did_you_mean
from moldau.pipelines.spec import Pipeline, TopicSink, TopicSource

CHECK_TIMEOUT_S: Final = 5.0
"""For a check that a missing broker does not fail."""
TIMEOUT_S: Final = 30.0
"""A refused connection fails at once; a broker on a slow machine may take long to answer."""


def prepare(pipeline: Pipeline, sinks: Collection[str]) -> list[str]:
    """Create missing topics of the sinks and return their names.

    Raises InvalidPipeline if a source's topic is missing, PipelineError if the broker does not answer.
    """
    with _cluster(pipeline, TIMEOUT_S) as cluster:
        if cluster is None:
            return []
        existing = set(cluster.topics())
        if missing := _missing_topics(pipeline, existing, "error"):
            raise InvalidPipeline(missing)
        return list(_create(cluster, pipeline, sinks, existing))


def missing_topics(pipeline: Pipeline) -> list[Problem]:
    """Return a warning for each topic of a source that does not exist. Raises PipelineError if no broker answers."""
    with _cluster(pipeline, CHECK_TIMEOUT_S) as cluster:
        return [] if cluster is None else _missing_topics(pipeline, cluster.topics(), "warning")


def warnings(pipeline: Pipeline) -> list[str]:
    """Return a line for each compacted topic of envelopes whose tombstones are left out by default."""
    topics = {
        topic: source.name
        for source in pipeline.sources.values()
        if isinstance(source, TopicSource) and source.format == "debezium" and source.tombstone is None
        for topic in source.topics
    }
    if not topics:
        return []
    with _cluster(pipeline, TIMEOUT_S) as cluster:
        return [
            f"source {name}: topic {topic} is compacted, so of a deletion it keeps only the tombstone, and that is left"
            " out: give the source `tombstone: row`"
            for topic, name in topics.items()
            if cluster is not None and _is_compacted(cluster, topic)
        ]


def _is_compacted(cluster: Cluster, topic: str) -> bool:
    """Return False also if the user may not see it."""
    with suppress(KafkaError):
        configs = topic_configs(ClusterAdmin(cluster, int(TIMEOUT_S * 1000)), topic)
        return any(each.name == CLEANUP_POLICY.name and "compact" in (each.value or "") for each in configs)
    return False


@contextmanager
def _cluster(pipeline: Pipeline, timeout_s: float) -> Iterator[Cluster | None]:
    """Yield the cluster; None if only Spark's Kafka connector can connect to it, which then reports errors."""
    assert pipeline.bootstrap is not None
    try:
        cluster = Cluster(pipeline.bootstrap, pipeline.kafka, timeout_s)
    except UnusableProperty as error:
        if pipeline.connector != "kafka":
            raise PipelineError(f"kafka: {error}") from error
        yield None  # a setting of the Java client, such as a JKS file
        return
    try:
        yield cluster
    except KafkaError as error:
        raise PipelineError(f"the topics cannot be made ready: {error}") from error
    except (OSError, MalformedData) as error:
        raise PipelineError(
            f"{error}; start a broker with `{start_command(pipeline.bootstrap)}`, or name another with -b HOST:PORT"
        ) from error
    finally:
        cluster.close()


def _create(cluster: Cluster, pipeline: Pipeline, sinks: Collection[str], existing: set[str]) -> Iterable[str]:
    for sink in pipeline.sinks:
        if not isinstance(sink, TopicSink) or sink.name not in sinks or not (sink.topic and sink.partitions):
            continue
        if sink.topic not in existing and cluster.create_topic(sink.topic, sink.partitions):
            existing.add(sink.topic)
            yield sink.topic


def _missing_topics(pipeline: Pipeline, existing: Collection[str], severity: Severity) -> list[Problem]:
    return [
        Problem(
            f"source '{source.name}' reads topic '{topic}', which does not exist at {pipeline.bootstrap}"
            + did_you_mean(topic, existing),
            pipeline.place_of(f"sources.{source.name}.{'topics' if len(source.topics) > 1 else 'topic'}"),
            f"`moldau topic create {topic}` makes it",
            severity,
        )
        for source in pipeline.sources.values()
        if isinstance(source, TopicSource)
        for topic in source.topics
        if topic not in existing
    ]
