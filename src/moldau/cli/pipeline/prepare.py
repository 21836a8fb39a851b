"""`moldau pipeline prepare`: makes an archive of Spark's classes, with which Java starts for a third less CPU time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.connect import CommandFailed
from moldau.cli.pipeline.session import Session, phases, quiet_log

if TYPE_CHECKING:
    from moldau.spark.class_archive import ClassArchive


@click.command(short_help="Make Spark's Java start with a third less CPU time.")
def prepare() -> None:
    """Save a third of the CPU time of Spark's Java up to its first micro-batch; once for this Java and this Spark.

    Runs a small pipeline and saves the classes that Spark loaded for it: about 170 MB in the user's cache directory. It
    takes about as long as three starts of Spark. After another Java or Spark was installed, run it again.

    \b
    moldau pipeline prepare
    """
    began_s = time.monotonic()
    archive = _archive()
    archive.make_room()
    with phases("looking for Java") as on_phase:
        _train(archive, on_phase)
    if not archive.path.is_file():
        raise CommandFailed(f"Java did not write {archive.path}; is its disk full?")
    size_mb, took_s = archive.path.stat().st_size / 1e6, time.monotonic() - began_s
    click.echo(f"Spark starts from {archive.path} from now on ({size_mb:.0f} MB, made in {took_s:.0f} s).")


def _archive() -> ClassArchive:
    from pyspark.find_spark_home import _find_spark_home

    from moldau.spark.class_archive import class_archive
    from moldau.spark.java import find_java

    java = find_java()
    archive = class_archive(java, Path(_find_spark_home()))
    if archive is None:
        raise CommandFailed(
            f"Java {java.version} of {java.origin} ({java.java}) cannot archive Spark's classes, or there is no cache"
            " directory for them (`moldau doctor`); a full JDK 17 or Java 25 can"
        )
    return archive


def _train(archive: ClassArchive, on_phase: Callable[[str], None]) -> None:
    """Run the test case of the template in a JVM that writes the loaded classes when it exits."""
    from moldau.pipelines.cases.case import run_case
    from moldau.pipelines.cases.files import find_cases
    from moldau.pipelines.reading.loading import load
    from moldau.pipelines.template import write_template
    from moldau.testing import broker

    conf = {"spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in archive.options_to_make)}
    with tempfile.TemporaryDirectory(prefix="moldau-prepare-") as folder, broker() as running:
        write_template(Path(folder), "prepare")
        file = Path(folder) / "pipeline.yaml"
        pipeline = load(file, {}, bootstrap=running.bootstrap_servers, check_files=False)
        with Session(pipeline, None, conf, quiet_log(None), quick_start=True) as session:
            spark = session.start(on_phase)
            on_phase("running a small pipeline")
            for case in find_cases(file, ()):
                if error := run_case(case, pipeline, spark).error:
                    raise CommandFailed(f"the small pipeline failed: {error}")
    on_phase("saving Spark's classes")
    _end_java()


def _end_java() -> None:
    """Let the JVM exit, and wait: it writes the archive at its exit."""
    from pyspark import SparkContext

    process = SparkContext._gateway.proc  # type: ignore[union-attr]
    process.stdin.close()
    process.wait()
