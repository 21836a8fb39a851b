"""meta.properties: Kafka's format both ways, and which directories a node may use."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.ids import NodeId, Uuid
from moldau.log.files import DiskFiles
from moldau.log.meta_properties import ForeignDirectory, MetaProperties, claim, parse, read, render, write

FILES = DiskFiles()
ONE = NodeId(1)

WRITTEN_BY_KAFKA = """#
#Sun Nov 15 08:13:47 UTC 2026
node.id=1
directory.id=lOLpbQhW6nUlMvV2WenSFw
version=1
cluster.id=AAAAAAAAAAAAAAAAAAAAAQ
"""


def numbered_uuids() -> Uuid:
    return next(_numbers).to_bytes(16, "big")


_numbers = count(1)


def test_a_file_written_by_kafka_is_parsed() -> None:
    meta = parse(WRITTEN_BY_KAFKA)
    assert (meta.cluster_id, meta.node_id, len(meta.directory_id)) == ("AAAAAAAAAAAAAAAAAAAAAQ", 1, 16)
    assert parse(render(meta)) == meta


@given(
    st.from_regex(r"[A-Za-z0-9_-]{1,30}", fullmatch=True),
    st.integers(0, 2**31 - 1),
    st.binary(min_size=16, max_size=16),
)
def test_rendered_properties_are_parsed_to_the_same(cluster_id: str, node_id: int, directory_id: bytes) -> None:
    meta = MetaProperties(cluster_id, NodeId(node_id), directory_id)
    assert parse(render(meta)) == meta


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (("version=1", "version=0"), "version 0"),
        (("version=1\n", ""), "no version"),
        (("node.id=1", "node.id=one"), "node.id=one"),
        (("node.id=1", "node.id=-1"), "node.id=-1"),
        (("cluster.id=AAAAAAAAAAAAAAAAAAAAAQ", "cluster.id="), "cluster.id is empty"),
        (("directory.id=lOLpbQhW6nUlMvV2WenSFw", "directory.id=AAAA"), "not 16"),
        (("directory.id=lOLpbQhW6nUlMvV2WenSFw\n", ""), "no directory.id"),
        (("node.id=1", "node.id=\\u12"), "line 3"),
    ],
)
def test_invalid_properties_are_malformed(changed: tuple[str, str], complaint: str) -> None:
    with pytest.raises(MalformedData, match=complaint):
        parse(WRITTEN_BY_KAFKA.replace(*changed))


def test_a_binary_file_is_malformed(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(b"\xff\xfe")
    with pytest.raises(MalformedData, match=f"^{tmp_path}/meta.properties: there is no version$"):
        read(FILES, str(tmp_path))


def test_an_error_names_the_file_and_the_line(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(WRITTEN_BY_KAFKA.replace("node.id=1", "node.id=\\u12"))
    with pytest.raises(MalformedData, match=f"^{tmp_path}/meta.properties: line 3: "):
        read(FILES, str(tmp_path))


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    text = WRITTEN_BY_KAFKA.partition("UTC 2026\n")[2]
    (tmp_path / "meta.properties").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read(FILES, str(tmp_path)) == parse(WRITTEN_BY_KAFKA)


def test_the_file_is_written_without_leftovers(tmp_path: Path) -> None:
    meta = MetaProperties("c", ONE, bytes(16))
    write(FILES, str(tmp_path / "deep" / "data"), meta)
    assert read(FILES, str(tmp_path / "deep" / "data")) == meta
    assert [each.name for each in (tmp_path / "deep" / "data").iterdir()] == ["meta.properties"]


def test_empty_directories_are_formatted_once(tmp_path: Path) -> None:
    log_dirs = [str(tmp_path / "a"), str(tmp_path / "b")]
    first = claim(FILES, log_dirs, ONE, None, numbered_uuids)
    assert first[0].cluster_id == first[1].cluster_id
    assert first[0].directory_id != first[1].directory_id
    assert claim(FILES, log_dirs, ONE, None, numbered_uuids) == first
    assert claim(FILES, log_dirs, ONE, first[0].cluster_id, numbered_uuids) == first


def test_a_directory_added_later_joins_the_cluster(tmp_path: Path) -> None:
    (old,) = claim(FILES, [str(tmp_path / "b")], ONE, None, numbered_uuids)
    added, kept = claim(FILES, [str(tmp_path / "a"), str(tmp_path / "b")], ONE, None, numbered_uuids)
    assert kept == old
    assert added.cluster_id == old.cluster_id


def test_a_directory_of_another_node_or_cluster_is_left_alone(tmp_path: Path) -> None:
    other, mine = str(tmp_path / "other"), str(tmp_path / "mine")
    claim(FILES, [other], NodeId(2), "two", numbered_uuids)
    with pytest.raises(ForeignDirectory, match="belongs to node 2, and this is node 1"):
        claim(FILES, [mine, other], ONE, None, numbered_uuids)
    with pytest.raises(ForeignDirectory, match="belongs to cluster two, and this is cluster one"):
        claim(FILES, [mine, other], NodeId(2), "one", numbered_uuids)
    assert not Path(mine).exists()


def test_data_without_meta_properties_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(ForeignDirectory, match=r"holds orders-0 and no meta\.properties"):
        claim(FILES, [str(tmp_path)], ONE, None, numbered_uuids)
    assert read(FILES, str(tmp_path)) is None


def test_a_directory_that_cannot_be_made_is_a_storage_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageFault):
        claim(FILES, [str(tmp_path / "file" / "below")], ONE, None, numbered_uuids)


def test_a_node_of_a_larger_cluster_does_not_generate_a_cluster_id(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    with pytest.raises(ForeignDirectory, match="set CLUSTER_ID"):
        claim(FILES, [directory], ONE, None, numbered_uuids, is_alone=False)
    assert not (tmp_path / "data" / "meta.properties").exists()
    (named,) = claim(FILES, [directory], ONE, "AAAAAAAAAAAAAAAAAAAAAQ", numbered_uuids, is_alone=False)
    assert claim(FILES, [directory], ONE, None, numbered_uuids, is_alone=False) == (named,)
