"""kafka-configs, kafka-get-offsets, kafka-delete-records, kafka-log-dirs, kafka-cluster, kafka-broker-api-versions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.patience import wait_until
from kafka_tools import Tools, shell

CreateTopic = Callable[..., str]
TOOLS = (
    "topics console-producer console-consumer configs get-offsets delete-records log-dirs cluster broker-api-versions"
    " producer-perf-test consumer-perf-test client-metrics"
)


@pytest.mark.parametrize("name", TOOLS.split())
def test_every_tool_has_help(name: str) -> None:
    result = shell(f"bin/kafka-{name}.sh --help")
    assert result.status == 1  # Kafka's do so
    assert "--bootstrap-server" in result.out + result.err or name == "cluster"
    assert "Traceback" not in result.err


class TestConfigs:
    def test_alter_and_describe(self, tools: Tools, create_topic: CreateTopic) -> None:
        name = create_topic()
        none = f"Dynamic configs for topic {name} are:\n"
        assert tools("configs", "--describe", "--topic", name) == (0, none, "")
        entity = ("--entity-type", "topics", "--entity-name", name)
        add = ("--alter", "--add-config", "retention.ms=100000,cleanup.policy=[compact,delete]")
        done = (0, f"Completed updating config for topic {name}.\n", "")
        assert tools("configs", *entity, *add) == done
        expected = [
            f"Dynamic configs for topic {name} are:",
            "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy="
            "compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}",
            "  retention.ms=100000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=100000}",
        ]
        wait_until(lambda: tools("configs", *entity, "--describe").lines == expected, "both settings shown")
        assert tools("configs", "--topic", name, "--alter", "--delete-config", "retention.ms,cleanup.policy") == done
        wait_until(lambda: tools("configs", "--describe", "--topic", name).out == none, "no setting shown")

    @pytest.mark.moldau_only
    def test_a_group_has_configs_of_its_own(self, tools: Tools) -> None:
        entity = ("--entity-type", "groups", "--entity-name", "pumps")
        done = tools("configs", "--alter", *entity, "--add-config", "consumer.heartbeat.interval.ms=7000")
        assert done.out == "Completed updating config for group pumps.\n"
        shown = "  consumer.heartbeat.interval.ms=7000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:"
        wait_until(lambda: shown in tools("configs", "--describe", *entity).out, "the config is shown")
        assert "consumer.session.timeout.ms=45000" in tools("configs", "--describe", "--all", *entity).out
        refused = tools("configs", "--alter", *entity, "--add-config", "consumer.session.timeout.ms=5")
        assert "must be greater than or equal to group.consumer.min.session.timeout.ms" in refused.err
        assert tools("configs", "--alter", *entity, "--delete-config", "consumer.heartbeat.interval.ms").status == 0
        wait_until(lambda: shown not in tools("configs", "--describe", *entity).out, "the config is gone")

    def test_all_configs_are_sorted_and_have_synonyms(self, tools: Tools, create_topic: CreateTopic) -> None:
        name = create_topic()
        lines = tools("configs", "--describe", "--topic", name, "--all").lines
        assert lines[0] == f"All configs for topic {name} are:"
        names = [line.strip().split("=")[0] for line in lines[1:]]
        assert names == sorted(names)
        assert {"cleanup.policy", "max.message.bytes", "min.insync.replicas", "segment.bytes"} <= set(names)
        assert "  segment.ms=604800000 sensitive=false synonyms={}" in lines

    def test_log_levels_change_while_the_broker_runs(self, tools: Tools) -> None:
        first, *lines = tools("configs", "--describe", "--entity-type", "broker-loggers").lines
        node = re.fullmatch(r"Dynamic configs for broker-logger (\d+) are:", first)
        assert node
        levels = dict(line.strip().split(" ")[0].rsplit("=", 1) for line in lines if line.startswith("  "))
        assert "root" in levels
        logger = next(name for name in levels if name.count(".") and name != "moldau.audit")
        entity = ("--entity-type", "broker-loggers", "--entity-name", node[1])
        done = (0, f"Completed updating config for broker-logger {node[1]}.\n", "")
        assert tools("configs", *entity, "--alter", "--add-config", f"{logger}=ERROR") == done
        assert f"  {logger}=ERROR sensitive=false synonyms={{}}" in tools("configs", *entity, "--describe").lines
        assert tools("configs", *entity, "--alter", "--delete-config", logger) == done
        refused = tools("configs", *entity, "--alter", "--add-config", "no.such.logger=INFO")
        assert refused.status == 1
        assert "no.such.logger" in refused.out + refused.err

    def test_add_config_file(self, tools: Tools, create_topic: CreateTopic, tmp_path: Path) -> None:
        name = create_topic()
        (tmp_path / "add.properties").write_text("# mine\nretention.ms = 5000\n")
        added = tools("configs", "--alter", "--topic", name, "--add-config-file", str(tmp_path / "add.properties"))
        assert added.status == 0
        wait_until(lambda: "retention.ms=5000 " in tools("configs", "--describe", "--topic", name).out, "it is set")

    def test_unknown_configs_and_topics_are_refused(
        self, tools: Tools, create_topic: CreateTopic, topic: Callable[[], str]
    ) -> None:
        name, absent = create_topic(), topic()
        refused = tools("configs", "--alter", "--topic", name, "--add-config", "foo=bar")
        assert refused.status == 1
        assert refused.err.startswith("Error while executing config command with args '--alter --topic")
        assert refused.err.endswith("': Unknown topic config name: foo\n")
        nowhere = tools("configs", "--alter", "--topic", absent, "--add-config", "retention.ms=1")
        assert (nowhere.status, nowhere.out) == (1, "")
        described = tools("configs", "--describe", "--topic", absent)
        assert described == (0, f"The topic '{absent}' doesn't exist and doesn't have dynamic config.\n", "")

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ("--describe", "At least one entity type must be specified"),
            ("--describe --alter --topic t", "Command must include exactly one action: --describe, --alter"),
            (
                "--alter --entity-type topics --add-config a=b",
                "An entity name must be specified with --alter of topics",
            ),
            (
                "--alter --entity-type topics --entity-default --add-config a=b",
                "An entity name must be specified with --alter of topics",
            ),
            (
                "--describe --entity-type topics --entity-default",
                "--entity-default must not be specified with --describe of topics",
            ),
            (
                "--describe --entity-type groups --entity-default",
                "--entity-default must not be specified with --describe of groups",
            ),
            (
                "--alter --topic t",
                "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter",
            ),
            ("--describe --broker a", "The entity name for brokers must be a valid integer broker id, but it is: a"),
        ],
    )
    def test_usage_errors(self, tools: Tools, words: str, expected: str) -> None:
        status, out, err = tools("configs", *words.split())
        assert (status, out, err.splitlines()[0]) == (1, "", expected)


class TestOffsets:
    def test_get_offsets_by_position_and_time(self, tools: Tools, create_topic: CreateTopic) -> None:
        name = create_topic(partitions=2)
        keyed = ("--reader-property", "parse.key=true")
        lines = "".join(f"{letter}\tv\n" for letter in "abcdefgh")
        tools("console_producer", "--topic", name, *keyed, stdin=lines)
        last = tools("get_offsets", "--topic", name).lines
        assert [line.rsplit(":", 1)[0] for line in last] == [f"{name}:0", f"{name}:1"]
        assert sum(int(line.rsplit(":", 1)[1]) for line in last) == 8
        first = [f"{name}:0:0", f"{name}:1:0"]
        for time in ("-2", "earliest", "0"):
            assert tools("get_offsets", "--topic", name, "--time", time).lines == first
        assert tools("get_offsets", "--topic", name, "--time", "9999999999999").lines == []
        assert tools("get_offsets", "--topic-partitions", f"{name}:1-").lines == last[1:]
        assert tools("get_offsets", "--topic", name, "--partitions", "0").lines == last[:1]

    def test_get_offsets_of_an_unknown_topic_is_refused(self, tools: Tools, topic: Callable[[], str]) -> None:
        nothing = tools("get_offsets", "--topic", topic())
        expected_error = "Error occurred: Could not match any topic-partitions with the specified filters\n"
        assert nothing == (1, "", expected_error)

    def test_delete_records_below_an_offset(self, tools: Tools, create_topic: CreateTopic, tmp_path: Path) -> None:
        name = create_topic()
        tools("console_producer", "--topic", name, stdin="a\nb\nc\n")
        file = tmp_path / "offsets.json"
        row = {"topic": name, "partition": 0, "offset": 2}
        file.write_text(json.dumps({"partitions": [row, {**row, "partition": 9}], "version": 1}))
        deleted = tools("delete_records", "--offset-json-file", str(file))
        assert deleted.status == 0
        assert deleted.lines[:3] == [
            "Executing records delete operation",
            "Records delete operation completed:",
            f"partition: {name}-0\tlow_watermark: 2",
        ]
        assert deleted.lines[3].startswith(f"partition: {name}-9\terror: org.apache.kafka.common.errors.Unknown")
        read = tools("console_consumer", "--topic", name, "--from-beginning", "--max-messages", "1")
        assert read.lines == ["c"]
        assert tools("get_offsets", "--topic", name, "--time", "-2").lines == [f"{name}:0:2"]

    def test_delete_records_beyond_the_end_is_refused(
        self, tools: Tools, create_topic: CreateTopic, tmp_path: Path
    ) -> None:
        name = create_topic()
        file = tmp_path / "offsets.json"
        file.write_text(json.dumps({"partitions": [{"topic": name, "partition": 0, "offset": 5}], "version": 1}))
        assert tools("delete_records", "--offset-json-file", str(file)).lines[2] == (
            f"partition: {name}-0\terror: org.apache.kafka.common.errors.OffsetOutOfRangeException:"
            " The requested offset is not within the range of offsets maintained by the server."
        )


class TestCluster:
    def test_log_dirs(self, tools: Tools, create_topic: CreateTopic) -> None:
        name = create_topic(partitions=2)
        tools("console_producer", "--topic", name, stdin="a\n")
        result = tools("log_dirs", "--describe", "--topic-list", name).lines
        assert result[0] == "Querying brokers for log directories information"
        assert re.fullmatch(r"Received log directory information from brokers \d+", result[1])
        document = json.loads(result[2])
        (broker,) = document["brokers"]
        directory = broker["logDirs"][0]
        assert list(directory) == ["partitions", "error", "logDir"]
        assert [row["partition"] for row in directory["partitions"]] == [f"{name}-0", f"{name}-1"]
        assert sum(row["size"] for row in directory["partitions"]) > 0
        unknown = tools("log_dirs", "--describe", "--broker-list", "4711")
        assert unknown.err.startswith("ERROR: The given brokers do not exist from --broker-list: 4711.")
        assert unknown.status == 1

    def test_cluster_id_and_endpoints(self, tools: Tools) -> None:
        assert re.fullmatch(r"Cluster ID: \S+\n", tools("cluster", "cluster-id").out)
        header, *rows = tools("cluster", "list-endpoints").lines
        assert header.split() == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
        assert [row.split()[3:] for row in rows] == [["null", "unfenced", "broker"]]
        assert tools("cluster", "foo").err.splitlines()[-1] == (
            "kafka-cluster: error: invalid choice: 'foo' (choose from 'cluster-id', 'unregister', 'list-endpoints')"
        )

    def test_api_versions(self, tools: Tools) -> None:
        lines = tools("broker_api_versions").lines
        assert re.fullmatch(r"\S+:\d+ \(id: \d+ rack: null isFenced: false\) -> \(", lines[0])
        assert lines[-1] == ")"
        assert any(re.fullmatch(r"\tFetch\(1\): \d+ to \d+ \[usable: \d+\],", line) for line in lines)
        keys = [int(found[1]) for line in lines if (found := re.search(r"\((\d+)\): ", line))]
        assert keys == sorted(keys)
