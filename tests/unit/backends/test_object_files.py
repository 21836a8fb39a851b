"""Rows as lines of files, in a directory; names and contents are the same in each attempt."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from moldau.backends.catalog import KINDS
from moldau.backends.delivery import Delivery
from moldau.backends.interface import Backend, Refused, Row
from moldau.backends.object_files import file_name
from moldau.backends.options import Options


def backend(url: str, **options: str) -> Backend:
    one = KINDS["files"].prepare(url, Options(options), Delivery())()
    one.open()
    return one


def rows(*lines: str) -> list[Row]:
    return [Row(f"k-{number}", {"line": line}) for number, line in enumerate(lines)]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_write_is_a_file_and_a_repetition_the_same(tmp_path: Path, scheme: str) -> None:
    folder = tmp_path / "new" / "folder"
    one = backend(f"{scheme}{folder}/")
    for _ in range(2):
        assert list(one.write(rows('{"n":1}', "ž")) or ()) == []
    one.close()
    (path,) = folder.iterdir()
    assert path.read_bytes() == '{"n":1}\nž\n'.encode()
    assert path.name == file_name([("k-0", b'{"n":1}'), ("k-1", "ž".encode())], ".jsonl")


@pytest.mark.parametrize(
    "second",
    [
        [Row("same", {"line": "a"}), Row("k", {"line": "c"})],
        [Row("same", {"line": "a"})],
        [Row("same", {"line": "a"}), Row("other", {"line": "b"})],
    ],
)
def test_batches_that_begin_with_the_same_key_have_files_of_their_own(tmp_path: Path, second: list[Row]) -> None:
    one = backend(str(tmp_path))
    one.write([Row("same", {"line": "a"}), Row("k", {"line": "b"})])
    one.write(second)
    written = "".join(f"{row.values['line']}\n" for row in second)
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == sorted(["a\nb\n", written])


def test_compressed_files_have_the_same_bytes_in_each_attempt(tmp_path: Path) -> None:
    one = backend(str(tmp_path), compression="gzip")
    one.write(rows("a", "b"))
    (path,) = tmp_path.glob("*.jsonl.gz")
    before = path.read_bytes()
    one.write(rows("a", "b"))
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == before
    assert gzip.decompress(before) == b"a\nb\n"


def test_a_line_with_a_line_end_is_refused_alone(tmp_path: Path) -> None:
    failures = list(backend(str(tmp_path), suffix=".txt").write(rows("a", "b\nc", "d")) or ())
    assert [(failed.index, type(failed.error)) for failed in failures] == [(1, Refused)]
    assert [path.read_text() for path in tmp_path.glob("*.txt")] == ["a\nd\n"]


def test_a_file_cannot_leave_its_folder() -> None:
    for key in ("../x", "/etc/passwd", "a/b", ".hidden", "", "x" * 300, "a\nb"):
        name = file_name([(key, b"line")], ".jsonl")
        assert len(name) == 70
        assert "/" not in name


def test_a_folder_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        backend(f"{tmp_path}/file/below")


@pytest.mark.parametrize(
    ("url", "options"),
    [("ftp://h/x", {}), ("/x", {"compression": "zip"}), ("/x", {"suffix": "/../x"}), ("/x", {"region": "eu"})],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(url: str, options: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        KINDS["files"].prepare(url, Options(options), Delivery())


@pytest.mark.filterwarnings("default")
def test_files_on_an_object_store() -> None:
    """Runs where moto's S3 server is installed. It is not among the requirements: it brings a hundred others."""
    moto = pytest.importorskip("moto.server", reason="pip install 'moto[server]'")
    fs = pytest.importorskip("pyarrow.fs")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    try:
        options = {
            "access_key": "a", "secret_key": "b", "region": "us-east-1", "scheme": "http",
            "endpoint_override": f"{host}:{port}",
        }  # fmt: skip
        store = fs.S3FileSystem(**options, allow_bucket_creation=True)
        store.create_dir("shop")
        one = backend("s3://shop/out", **options)
        for _ in range(2):
            assert list(one.write(rows("a", "b")) or ()) == []
        one.close()
        name = file_name([("k-0", b"a"), ("k-1", b"b")], ".jsonl")
        assert store.open_input_stream(f"shop/out/{name}").read() == b"a\nb\n"
        with pytest.raises(OSError):
            backend("s3://absent/out", **options).write(rows("a"))
    finally:
        server.stop()
