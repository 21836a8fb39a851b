"""Before a run, checks that the topics it reads exist, and creates the topics of sinks with `partitions`.

This happens before Spark starts, over Moldau's own client, so that a wrong address or a missing topic is reported
clearly and within seconds. If the broker becomes unreachable later, the queries handle that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from moldau.base.errors import KafkaError, MalformedData, UnusableProperty
from moldau.base.listeners import start_command
from moldau.client.cluster import Cluster
from moldau.pipelines.problems import InvalidPipeline, PipelineError, Problem, did_you_mean
from moldau.pipelines.spec import Pipeline, TopicSink, TopicSource

TIMEOUT_S: Final = 30.0
"""A refused connection fails at once; a broker on a slow machine may take long to answer."""


def prepare(pipeline: Pipeline, sinks: Collection[str]) -> list[str]:
    """Create missing topics of the sinks and return their names.

    Raises InvalidPipeline if a source's topic is missing, PipelineError if the broker does not answer.
    """
    assert pipeline.bootstrap is not None
    try:
        cluster = Cluster(pipeline.bootstrap, pipeline.kafka, TIMEOUT_S)
    except UnusableProperty as error:
        if pipeline.connector == "kafka":
            return []  # a setting of the Java client, such as a JKS file: Spark's Kafka connector will report errors
        raise PipelineError(f"kafka: {error}") from error
    try:
        existing = set(cluster.topics())
        _check_sources(pipeline, existing)
        return list(_create(cluster, pipeline, sinks, existing))
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


def _check_sources(pipeline: Pipeline, existing: Collection[str]) -> None:
    problems = [
        Problem(
            f"source '{source.name}' reads topic '{topic}', which does not exist at {pipeline.bootstrap}"
            + did_you_mean(topic, existing),
            pipeline.place_of(f"sources.{source.name}.{'topics' if len(source.topics) > 1 else 'topic'}"),
            f"`moldau topic create {topic}` makes it",
        )
        for source in pipeline.sources.values()
        if isinstance(source, TopicSource)
        for topic in source.topics
        if topic not in existing
    ]
    if problems:
        raise InvalidPipeline(problems)
