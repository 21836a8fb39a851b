"""Submits a pipeline to a cluster: the command line of spark-submit for `--deploy-mode cluster`.

In client mode nothing is submitted: the driver is this process, and `moldau.spark.session` connects to the master. In
cluster mode the driver runs in the cluster, so the pipeline's file, the files beside it and Moldau are sent there.

spark-submit puts every file into the driver's working directory under its base name. The program is the `__main__.py`
of `moldau`, so that the same command runs there: `moldau pipeline run FILE …`.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from moldau.base.properties import render
from moldau.spark import archive
from moldau.spark.java import find_java
from moldau.spark.spark_session import is_secret_setting

PROGRAM: Final = Path(__file__).parents[1] / "__main__.py"


class CannotSubmit(ValueError):
    """This pipeline or master does not support --deploy-mode cluster. The message is one line and says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    master: str
    name: str
    pipeline: Path
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    modules: Sequence[Path] = ()
    """Python modules beside the pipeline's file that steps use."""
    files: Sequence[Path] = ()
    """Schemas and data beside the pipeline's file that sources use."""
    words: Sequence[str] = ()
    """The arguments after `moldau pipeline run FILE`."""


def submit(submission: Submission) -> int:
    """Run spark-submit and return its exit status. By default it waits until the pipeline has ended."""
    from pyspark.find_spark_home import _find_spark_home

    check(submission)
    program = Path(_find_spark_home()) / "bin" / "spark-submit"
    with tempfile.TemporaryDirectory(prefix="moldau-archive-") as directory:
        built = archive.build(Path(directory) / archive.ARCHIVE_NAME)
        secret = {key: value for key, value in submission.conf.items() if is_secret_setting(key)}
        secrets = write_private(Path(directory) / "secrets.conf", render(secret)) if secret else None
        environment = os.environ | {"JAVA_HOME": str(find_java().path)}
        return subprocess.run(command_line(submission, program, built, secrets), env=environment).returncode


def write_private(path: Path, text: str) -> Path:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path


def command_line(submission: Submission, spark_submit: Path, built: Path, secrets: Path | None = None) -> list[str]:
    """Return the command line to run. Call `check` first. `secrets` is a file with the secret settings: every user of
    the machine can read a command line."""
    line = [str(spark_submit), "--master", submission.master, "--deploy-mode", "cluster", "--name", submission.name]
    if secrets is not None:
        line += ["--load-spark-defaults", "--properties-file", str(secrets)]
    for key, value in submission.conf.items():
        if not is_secret_setting(key):
            line += ["--conf", f"{key}={value}"]
    line += ["--py-files", ",".join(map(str, [built, *submission.modules]))]
    line += ["--files", ",".join(map(str, [submission.pipeline, *submission.files]))]
    return [*line, str(PROGRAM), "pipeline", "run", submission.pipeline.name, *submission.words]


def check(submission: Submission) -> None:
    """Raise CannotSubmit if the driver in the cluster would lack files."""
    if submission.master.startswith("local"):
        raise CannotSubmit(f"--deploy-mode cluster needs a cluster, and --master is {submission.master}")
    if submission.master.startswith("spark://"):
        raise CannotSubmit("a standalone master runs no Python driver in the cluster: use --deploy-mode client")
    folder = submission.pipeline.parent
    sent_files = [submission.pipeline, *submission.modules, *submission.files]
    for path in sent_files:
        if "," in str(path):
            raise CannotSubmit(f"{path}: spark-submit takes no comma in a file's name")
        if path.parent != folder:
            raise CannotSubmit(
                f"{path}: with --deploy-mode cluster a file is next to {submission.pipeline.name}, "
                "or on storage that the whole cluster sees, named by its absolute path"
            )
    for name, times in Counter(path.name for path in sent_files).items():
        if times > 1:
            raise CannotSubmit(f"{name} is named {times} times")
