"""kafka-dump-log --cluster-metadata-decoder: the metadata log and its snapshots, printed as Kafka's own tool prints
them.

Set MOLDAU_TEST_KAFKA_LIBS to a directory of Apache Kafka's jars to compare every record type and version with its
output.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from captured_errors import without_librdkafka
from harness.patience import PATIENCE_S
from harness.random_messages import Filling, random_message

from moldau.cli.kafka.dump_log import main
from moldau.client.cluster import Cluster
from moldau.metadata.records import RECORD_TYPES, encode_record
from moldau.raft import control_records
from moldau.raft.voters import Endpoint, KRaftVersions, ReplicaKey, Voter, VoterSet
from moldau.testing import broker
from moldau.wire.apis import ApiKey
from moldau.wire.codec import encode, uvarint
from moldau.wire.log_records import kafka_metadata
from moldau.wire.log_records.metadata import ClientQuotaRecord, ConfigRecord, UserScramCredentialRecord
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from moldau.wire.records import NEXT_OFFSET, Record, build_batch
from moldau.wire.schema import MetadataRecord

pytestmark = pytest.mark.moldau_only
KAFKA_LIBS = os.environ.get("MOLDAU_TEST_KAFKA_LIBS")
needs_kafka = pytest.mark.skipif(
    not KAFKA_LIBS or not shutil.which("java"),
    reason="no MOLDAU_TEST_KAFKA_LIBS, or no java",
)
LOG, SNAPSHOT = "00000000000000000000.log", "00000000000000000007-0000000003.checkpoint"
NOW_MS = 1_700_000_000_000
UNREADABLE = [
    (None, "Error while reading frame version"),
    (b"", "Error while reading frame version"),
    (b"\1", "Error while reading type"),
    (b"\1\2", "Error while reading version"),
    (
        b"\2\0\0",
        "Could not deserialize metadata record due to unknown frame version 2(only frame version 1 is supported)",
    ),
    (b"\1\x63\0", "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id 99"),
    (b"\1\x80\x80\x02\0", "Value for type was too large."),
    (b"\1\2\0\2", "Failed to deserialize record with type 2"),
    (b"\1\2\0\2a" + bytes(16) + b"\0zz", "Found 2 byte(s) of garbage after 2"),
]
QUOTAS = (0.0, 0.001, 1e7, 9_999_999.5, 1.5e-4, 123_456_789.25, -1_048_576_000.0)


def write(directory: Path, values: list[bytes | None]) -> str:
    """Write the values as records of a log, after a quorum's own records; return its name."""
    voter = Voter(ReplicaKey(1, bytes(range(16))), (Endpoint("CONTROLLER", "here", 9093),), KRaftVersions(0, 1))
    controls = [
        control_records.snapshot_header(NOW_MS, NOW_MS),
        control_records.kraft_version_record(1, NOW_MS),
        control_records.voters_record(VoterSet([voter]), NOW_MS),
        control_records.leader_change(1, [1, 2], [2], NOW_MS),
        control_records.snapshot_footer(NOW_MS),
    ]
    batches = [build_batch([each], base_offset=offset, is_control=True) for offset, each in enumerate(controls)]
    records = [Record(NEXT_OFFSET, NOW_MS, None, value) for value in values]
    batches.append(build_batch(records, base_offset=len(controls)))
    for name in (LOG, SNAPSHOT):
        (directory / name).write_bytes(b"".join(map(bytes, batches)))
    return f"{LOG},{SNAPSHOT}"


def dump(capfd: pytest.CaptureFixture[str], files: str, *flags: str) -> list[str]:
    assert main(["--cluster-metadata-decoder", "--files", files, *flags]) == 0
    out, err = capfd.readouterr()
    assert without_librdkafka(err) == ""
    return out.splitlines()


def payloads(lines: list[str]) -> list[str]:
    return [line.partition(" payload: ")[2] for line in lines if " payload: " in line]


def every_record() -> Iterator[bytes]:
    for cls in (*RECORD_TYPES.values(), *kafka_metadata.RECORDS):
        for version in range(cls.VERSIONS[1] + 1):
            for filling in Filling:
                yield framed(random_message(cls, version, filling, 0), version)
    for value in QUOTAS:
        yield framed(ClientQuotaRecord([], 'a "value":1.0,"remove":', value), 0)


def framed(record: Any, version: int) -> bytes:
    if isinstance(record, ClientQuotaRecord) and abs(record.value) == float("inf"):
        record.value = -1.5
    out = bytearray(uvarint(1) + uvarint(record.TYPE) + uvarint(version))
    encode(record, version, out)
    return bytes(out)


def test_records_are_printed_as_json_with_type_and_version(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = encode_record(ConfigRecord(2, "orders", "retention.ms", None))
    quota = framed(ClientQuotaRecord([], "producer_byte_rate", 10_485_760.0), 0)
    write(tmp_path, [config, quota])
    assert payloads(dump(capfd, LOG)) == [
        '{"type":"CONFIG_RECORD","version":0,"data":'
        '{"resourceType":2,"resourceName":"orders","name":"retention.ms","value":null}}',
        '{"type":"CLIENT_QUOTA_RECORD","version":0,"data":'
        '{"entity":[],"key":"producer_byte_rate","value":1.048576E7,"remove":false}}',
    ]
    assert dump(capfd, SNAPSHOT)[1] == "Snapshot end offset: 7, epoch: 3"


def test_keys_of_users_are_hidden(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, [encode_record(UserScramCredentialRecord("ann", 1, b"salt", b"stored", b"server", 4096))])
    assert payloads(dump(capfd, LOG)) == [
        '{"type":"USER_SCRAM_CREDENTIAL_RECORD","version":0,"data":{"name":"ann","mechanism":1,"salt":"c2FsdA==",'
        '"storedKey":"[hidden]","serverKey":"[hidden]","iterations":4096}}'
    ]


def test_voters_and_other_control_records_are_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, [b""])
    lines = dump(capfd, LOG)
    assert [line.partition("headerKeys: [] ")[2] for line in lines if line.startswith("|")][:4] == [
        f'SnapshotHeader {{"version":0,"lastContainedLogTimestamp":{NOW_MS}}}',
        'KRaftVersion {"version":0,"kRaftVersion":1}',
        'KRaftVoters {"version":0,"voters":[{"voterId":1,"voterDirectoryId":"AAECAwQFBgcICQoLDA0ODw",'
        '"endpoints":[{"name":"CONTROLLER","host":"here","port":9093}],'
        '"kRaftVersionFeature":{"minSupportedVersion":0,"maxSupportedVersion":1}}]}',
        'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1},{"voterId":2}],'
        '"grantingVoters":[{"voterId":2}]}',
    ]


def test_unreadable_records_are_reported_and_skipped(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, [value for value, _ in UNREADABLE])
    assert payloads(dump(capfd, LOG)) == [
        f"Error at {5 + offset}, skipping. {why}" for offset, (_, why) in enumerate(UNREADABLE)
    ]


@needs_kafka
@pytest.mark.parametrize("flags", [[], ["--skip-record-metadata"]])
def test_apache_kafka_prints_every_type_and_version_the_same(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = write(tmp_path, [*every_record(), *(value for value, _ in UNREADABLE)])
    assert _differing(dump(capfd, files, *flags), _by_apache(tmp_path, files, *flags)) == []


class TestLogOfABroker:
    @pytest.fixture
    def files(self, tmp_path: Path) -> list[Path]:
        """Return the metadata logs and snapshots of a node that created and deleted topics, in order."""
        with (
            broker(tmp_path, metadata_log_max_record_bytes_between_snapshots=1_000) as running,
            closing(Cluster(running.bootstrap_servers, {})) as cluster,
        ):
            for number in range(5):
                assert cluster.create_topic(f"topic-{number}", 3)
            request = DeleteTopicsRequest([DeleteTopicState("topic-0")], timeout_ms=15_000)
            (deleted,) = cluster.ask_any(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse).responses
            assert deleted.error_code == 0
        directory = tmp_path / "__cluster_metadata-0"
        return [*sorted(directory.glob("*.log")), *sorted(directory.glob("*.checkpoint"))]

    def test_log_and_snapshot_are_decoded(self, files: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
        assert {file.suffix for file in files} == {".log", ".checkpoint"}
        lines = dump(capfd, ",".join(map(str, files)))
        dumped_records = [json.loads(each) for each in payloads(lines)]
        expected = {"REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "REMOVE_TOPIC_RECORD"}
        assert expected <= {each["type"] for each in dumped_records}
        kept = [json.loads(each) for each in payloads(dump(capfd, str(files[-1])))]
        names = {each["data"]["name"] for each in kept if each["type"] == "TOPIC_RECORD"}
        assert names
        assert names <= {f"topic-{number}" for number in range(5)}

    @needs_kafka
    def test_apache_kafka_prints_them_the_same(self, files: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
        named = ",".join(map(str, files))
        assert _differing(dump(capfd, named), _by_apache(files[0].parent, named)) == []


def _by_apache(directory: Path, files: str, *flags: str) -> list[str]:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    tool = ["java", "-Xmx256M", "-Dstdout.encoding=UTF-8", quiet, "-cp", f"{KAFKA_LIBS}/*"]
    command = [*tool, "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", files, *flags]
    kafkas = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S, cwd=directory)
    # We hide what the server knows of a password.
    return re.sub(r'"(storedKey|serverKey)":"[^"]*"', r'"\1":"[hidden]"', kafkas.stdout).splitlines()


def _differing(ours: list[str], theirs: list[str]) -> list[tuple[str, str]]:
    """Return the lines that differ, cut because some are long."""
    pairs = zip(ours, theirs, strict=True)
    return [(one[:500], other[:500]) for one, other in pairs if one != other]


def test_each_record_type_is_defined_once() -> None:
    ours, theirs = set(RECORD_TYPES), {cls.TYPE for cls in kafka_metadata.RECORDS}
    assert not ours & theirs
    assert all(issubclass(cls, MetadataRecord) for cls in kafka_metadata.RECORDS)
    assert sorted(ours | theirs) == [*range(6), *range(7, 13), 14, 15, *range(17, 29)]
