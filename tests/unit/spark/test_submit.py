"""The command line of spark-submit, and what is refused before it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moldau.spark.submit import PROGRAM, CannotSubmit, Submission, check, command_line, write_private

BOOKSTORE = Submission(
    master="k8s://https://example.org:6443",
    name="bookstore",
    pipeline=Path("/books/pipeline.yaml"),
    conf={"spark.executor.instances": "2", "spark.app.note": "a = b, c"},
    modules=[Path("/books/detect.py")],
    files=[Path("/books/users.csv"), Path("/books/event.avsc")],
    words=["--set", "lake=s3a://books/lake"],
)


def test_spark_submit_ships_moldau_the_pipeline_and_the_files_beside_it() -> None:
    check(BOOKSTORE)
    line = command_line(BOOKSTORE, Path("/spark/bin/spark-submit"), Path("/built/moldau.zip"))
    assert line == [
        "/spark/bin/spark-submit",
        *("--master", "k8s://https://example.org:6443", "--deploy-mode", "cluster", "--name", "bookstore"),
        *("--conf", "spark.executor.instances=2", "--conf", "spark.app.note=a = b, c"),
        *("--py-files", "/built/moldau.zip,/books/detect.py"),
        *("--files", "/books/pipeline.yaml,/books/users.csv,/books/event.avsc"),
        *(str(PROGRAM), "pipeline", "run", "pipeline.yaml", "--set", "lake=s3a://books/lake"),
    ]
    assert PROGRAM.is_file()


@pytest.mark.parametrize(
    "name",
    ["spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.azure.account.key.books.dfs.core.windows.net", "spark.x.token"],
)
def test_a_secret_setting_is_not_on_the_command_line(tmp_path: Path, name: str) -> None:
    submission = replace(BOOKSTORE, conf={**BOOKSTORE.conf, name: "pl4nted"})
    secrets = write_private(tmp_path / "secrets.conf", "x")
    line = command_line(submission, Path("/spark/bin/spark-submit"), Path("/built/moldau.zip"), secrets)
    assert "pl4nted" not in " ".join(line) + repr(submission)
    assert line[line.index("--properties-file") + 1] == str(secrets)
    assert "--load-spark-defaults" in line, "else the file would replace spark-defaults.conf"
    assert secrets.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"master": "local[2]"}, r"needs a cluster, and --master is local\[2\]"),
        ({"master": "spark://example.org:7077"}, "standalone master runs no Python driver in the cluster"),
        ({"files": [Path("/books/data/users.csv")]}, "data/users.csv: .* is next to pipeline.yaml"),
        ({"modules": [Path("/elsewhere/detect.py")]}, "/elsewhere/detect.py: .* is next to pipeline.yaml"),
        ({"files": [Path("/books/a,b.csv")]}, "a,b.csv: spark-submit takes no comma"),
        ({"files": [Path("/books/detect.py")]}, "detect.py is named 2 times"),
    ],
)
def test_a_submission_that_the_driver_could_not_run_is_refused(changed: dict[str, object], why: str) -> None:
    with pytest.raises(CannotSubmit, match=why) as refused:
        check(replace(BOOKSTORE, **changed))  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
