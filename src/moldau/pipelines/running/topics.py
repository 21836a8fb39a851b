"""The topics of a pipeline before it starts: what it reads must be there, what it writes with `partitions` is made.

Asked before Spark is started, over the connector's own connections, so that a wrong address or a missing topic is told
within seconds and in words. Later, a broker may go away: that is the queries' to survive.
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
"""Who refuses a connection is told of at once; a broker on a slow machine may take long to answer."""


def prepare(pipeline: Pipeline, sinks: Collection[str]) -> list[str]:
    """Names the topics that were made. InvalidPipeline if a topic is missing; PipelineError if nobody answers."""
    assert pipeline.bootstrap is not None
    try:
        cluster = Cluster(pipeline.bootstrap, pipeline.kafka, TIMEOUT_S)
    except UnusableProperty as error:
        if pipeline.connector == "kafka":
            return []  # for Java's client alone, as keys in a JKS file are: its own connector will tell
        raise PipelineError(f"kafka: {error}") from error
    try:
        known = set(cluster.topics())
        _refuse_missing(pipeline, known)
        return list(_create(cluster, pipeline, sinks, known))
    except KafkaError as error:
        raise PipelineError(f"the topics cannot be made ready: {error}") from error
    except (OSError, MalformedData) as error:
        raise PipelineError(
            f"{error}; start a broker with `{start_command(pipeline.bootstrap)}`, or name another with -b HOST:PORT"
        ) from error
    finally:
        cluster.close()


def _create(cluster: Cluster, pipeline: Pipeline, sinks: Collection[str], known: set[str]) -> Iterable[str]:
    for sink in pipeline.sinks:
        if not isinstance(sink, TopicSink) or sink.name not in sinks or not (sink.topic and sink.partitions):
            continue
        if sink.topic not in known and cluster.create_topic(sink.topic, sink.partitions):
            known.add(sink.topic)
            yield sink.topic


def _refuse_missing(pipeline: Pipeline, known: Collection[str]) -> None:
    problems = [
        Problem(
            f"source '{source.name}' reads topic '{topic}', which does not exist at {pipeline.bootstrap}"
            + did_you_mean(topic, known),
            pipeline.place_of(f"sources.{source.name}.{'topics' if len(source.topics) > 1 else 'topic'}"),
            f"`moldau topic create {topic}` makes it",
        )
        for source in pipeline.sources.values()
        if isinstance(source, TopicSource)
        for topic in source.topics
        if topic not in known
    ]
    if problems:
        raise InvalidPipeline(problems)
