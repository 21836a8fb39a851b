"""Runs scripts about the controller: requests, their responses when they are committed, and the images.

    create a partitions=2 factor=1 retention.ms=5       CreateTopics; each request is named R1, R2, …
    grow a count=4                                      CreatePartitions
    delete a                                            DeleteTopics
    set a retention.ms=7                                IncrementalAlterConfigs
    producer-ids                                        AllocateProducerIds
    begin-flush, end-flush                              begins and ends a flush, without requests made in between
    flush                                               flushes everything
    committed, decided                                  the published image; the controller's, with uncommitted changes
    log                                                 the end of the log and its high watermark
    restart                                             the process dies and comes back
    lose-power                                          the machine loses power; unsynced bytes may be lost

An answer is shown with the image that is published at that moment.
"""

from __future__ import annotations

from random import Random

from harness.in_memory_node import InMemoryNode
from script import Command, error_name

from moldau.base.promise import Promise
from moldau.log.flush import FlushWork
from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)


class ControllerActor:
    def __init__(self) -> None:
        self._node = InMemoryNode().start()
        self._flushing: FlushWork | None = None
        self._asked = 0
        self._happened: list[str] = []

    def answer(self, command: Command) -> str:
        """Return the answer of the command itself, then what happened because of it, in order."""
        answer = getattr(self, "_" + command.name.replace("-", "_"))(command)
        happened, self._happened = self._happened, []
        return "\n".join([*([answer] if answer else []), *happened]) or "nothing"

    # --- requests -----------------------------------------------------------------------------------------------

    def _create(self, command: Command) -> str:
        configs = [CreatableTopicConfig(key, value) for key, value in command.values.items() if "." in key]
        topics = [
            CreatableTopic(name, command.number("partitions", 1), command.number("factor", 1), configs=configs)
            for name in command.words
        ]
        answer = self._node.ask_controller(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics))
        return self._wait(
            answer.map(lambda made: ", ".join(f"{t.name} {error_name(t.error_code)}" for t in made.topics))
        )

    def _grow(self, command: Command) -> str:
        topics = [CreatePartitionsTopic(name, command.number("count", 0), None) for name in command.words]
        answer = self._node.ask_controller(ApiKey.CREATE_PARTITIONS, CreatePartitionsRequest(topics))
        return self._wait(
            answer.map(lambda done: ", ".join(f"{t.name} {error_name(t.error_code)}" for t in done.results))
        )

    def _delete(self, command: Command) -> str:
        answer = self._node.ask_controller(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=command.words))
        return self._wait(
            answer.map(lambda done: ", ".join(f"{t.name} {error_name(t.error_code)}" for t in done.responses))
        )

    def _set(self, command: Command) -> str:
        changes = [AlterableConfig(key, 0, value) for key, value in command.values.items()]
        resource = AlterConfigsResource(ConfigResource.TOPIC, command.words[0], changes)
        answer = self._node.ask_controller(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest([resource]))
        return self._wait(answer.map(lambda done: error_name(done.responses[0].error_code)))

    def _producer_ids(self, command: Command) -> str:
        answer = self._node.allocate_producer_ids()
        return self._wait(answer.map(lambda block: f"{block.start} to {block.stop - 1}"))

    def _wait(self, answer: Promise[str]) -> str:
        self._asked += 1
        name = f"R{self._asked}"
        if answer.done:
            return f"{name} answered at once: {answer.value()}"
        answer.then(lambda text: self._happened.append(f"{name}: {text} | image {_shown(self._node.current.image)}"))
        return f"{name} waits"

    # --- the disk -----------------------------------------------------------------------------------------------

    def _begin_flush(self, command: Command) -> None:
        self._flushing = self._node.metadata_log.begin_flush()

    def _end_flush(self, command: Command) -> None:
        assert self._flushing is not None, "no flush was begun"
        self._flushing.sync()
        self._node.metadata_log.finish_flush(self._flushing)
        self._node.assembly.driver.flushed()

    def _flush(self, command: Command) -> None:
        self._node.flush()

    def _restart(self, command: Command) -> str:
        self._node = self._node.restart()
        return _shown(self._node.current.image)

    def _lose_power(self, command: Command) -> str:
        self._node = self._node.crash(Random(command.number("seed", 0)))
        return _shown(self._node.current.image)

    # --- the state ----------------------------------------------------------------------------------------------

    def _committed(self, command: Command) -> str:
        return _shown(self._node.current.image)

    def _decided(self, command: Command) -> str:
        seen: list[MetadataImage] = []

        def look(image: MetadataImage) -> Decision[None]:
            seen.append(image)
            return Decision(None)

        self._node.controller.submit(look)
        return _shown(seen[0])

    def _log(self, command: Command) -> str:
        log = self._node.metadata_log
        return f"end={log.end_offset} on disk={log.recovery_point} published={self._node.current.image.offset + 1}"


def _shown(image: MetadataImage) -> str:
    topics = []
    for name, topic in sorted(image.topics.items()):
        configs = image.configs_of(ConfigResource.TOPIC, name)
        settings = "".join(f" {key}={value}" for key, value in configs.items())
        topics.append(f"{name}[{len(topic.partitions)}{settings}]")
    return " ".join(topics) or "no topics"
