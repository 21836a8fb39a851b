"""Starts Spark for scripts, notebooks and pipelines: finds Java, quiets the logs, makes the connector available.

The caller's configuration wins over spark-defaults.conf, which wins over the defaults of this module. A running session
is returned; as with Spark's own getOrCreate, it gets only those settings of the caller that may change at run time.
"""

from __future__ import annotations

import atexit
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moldau.base import properties
from moldau.base.errors import MalformedData
from moldau.client.secret_properties import SECRET_NAMES, is_secret
from moldau.platforms.machine import core_quota, usable_cores
from moldau.spark import archive, local_files
from moldau.spark.class_archive import class_archive
from moldau.spark.java import BrokenJava, JavaHome, find_java
from moldau.spark.scripts import library_directory
from moldau.spark.workers.starting import settings_with, start_fork_server

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOG4J_FILE: Final = Path(__file__).with_name("log4j2.properties")
NEEDED: Final = ("pyspark", "pyarrow", "numpy")
LOOPBACK: Final = "127.0.0.1"
JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
"""Come before spark.driver.extraJavaOptions, which is left to the caller."""

QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For work of seconds: no optimizing compiler, a single garbage collector thread."""
LATE_OPTIMIZER: Final = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""The optimizing compiler waits for ten times as many calls: it took a third of a start's CPU time for code that ran
once."""

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Timestamps reach Python with the session's time zone; lake formats accept only UTC.
    "spark.sql.session.timeZone": "UTC",
    # Options that a plan does not show. Spark's own pattern is only `url`, and its list of secrets has no private keys.
    "spark.sql.redaction.options.regex": f"(?i)url|{SECRET_NAMES}",
}

# How a streaming query writes its checkpoint. Spark's default goes through Hadoop's FileContext and takes some 80 ms
# of a small micro-batch on a local disk; this class takes 30. It is as safe against kill -9. Both write a temporary
# file beside the target, rename it, then rename Hadoop's checksum file after it; neither calls fsync, so that neither
# promises anything for a loss of power. A process that dies before the first rename leaves a file that nobody reads.
# One that dies between the two leaves a file without checksum, which is read unchecked, or, if the file replaces an
# older one, with the checksum of the older one. But only the state of a batch that is not committed is replaced, and
# then it is written again before it is read. There this class is the safer one: one rename(2), where FileContext
# deletes first. On HDFS, whose plain rename does not replace, it is the other way round; hence only for local
# masters.
LOCAL_CHECKPOINTS: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}


class MissingPackage(ImportError):
    """pyspark or a package it needs is not installed. The message is one line and says what to install."""


def start(
    name: str,
    master: str | None,
    quick_start: bool,
    given: Mapping[str, object],
    on_phase: Callable[[str], None] = lambda phase: None,
) -> SparkSession:
    """See `moldau.spark.session`."""
    _check_packages()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from moldau.spark import java_names
    from moldau.spark.errors import conversion

    conf = {key: _text(value) for key, value in given.items()}
    if master is not None:
        conf["spark.master"] = master
    environment: dict[str, str] = {}
    if SparkContext._active_spark_context is None:
        conf = {"spark.app.name": name, **_conf_for_start(conf, quick_start)}
        environment |= _python_of_workers({**_configured(), **conf})
        conf |= settings_with(environment, {**_configured(), **conf})
        if not (_is_submitted() or SparkContext._gateway is not None):
            java = find_java()
            conf[JAVA_OPTIONS] = _with_class_archive(conf.get(JAVA_OPTIONS, ""), java)
            environment |= _environment_for_start(conf, java)
    with _named_java_errors(), _environment(environment):
        if SparkContext._gateway is None and not _is_submitted():
            on_phase("starting Java")
            # PySpark puts these on Java's command line, which everybody can read. The session below gets all of them.
            shown = [(key, value) for key, value in conf.items() if not is_secret_setting(key)]
            SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(shown))
            if local_cores(conf["spark.master"]) is not None:
                local_files.install(SparkContext._jvm, {**_configured(), **conf})
        on_phase("starting Spark")
        session = SparkSession.builder.config(map={**conf}).getOrCreate()
    conversion.install()
    java_names.keep(SparkContext._jvm)
    _register_sources(session)
    return session


def is_secret_setting(key: str) -> bool:
    """Return whether Spark itself does not show a setting (spark.redaction.regex), or its name is one of a secret."""
    return re.search(r"secret|password|token|access[.]?key", key, re.IGNORECASE) is not None or is_secret(key)


@contextmanager
def _named_java_errors() -> Iterator[None]:
    from pyspark.errors import PySparkRuntimeError

    try:
        yield
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        chosen = find_java()
        raise BrokenJava(
            f"Java {chosen.version} of {chosen.origin} ({chosen.java}) ended before Spark had started;"
            " check JAVA_TOOL_OPTIONS, the memory that is free, and `moldau doctor`"
        ) from error


def _python_of_workers(conf: Mapping[str, str]) -> dict[str, str]:
    """Choose the Python of workers; return environment variables that must be set while Spark starts.

    The default is this Python, which has our packages, not the first on the PATH. PySpark reads only the variable, but
    Spark's configuration should win over it. If nobody chose another Python and workers run on this machine, they are
    forked from one process that has imported everything.
    """
    chosen = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    is_ours = chosen == sys.executable and local_cores(conf["spark.master"]) is not None
    return {"PYSPARK_PYTHON": chosen, **(start_fork_server() if is_ours and _is_whole_install() else {})}


def _is_whole_install() -> bool:
    """Return whether Spark is that of the installed PySpark: else workers may use another PySpark than this process."""
    import pyspark
    from pyspark.find_spark_home import _find_spark_home

    return not _is_submitted() and Path(_find_spark_home()) == Path(pyspark.__file__).parent


def _check_packages() -> None:
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise MissingPackage(f"{' and '.join(missing)} not installed: pip install 'moldau[spark]'")


def _conf_for_start(given: Mapping[str, str], quick_start: bool) -> dict[str, str]:
    """Return the configuration to start Spark with: the caller's, and our defaults that are configured nowhere else."""
    configured = _configured()
    master = given.get("spark.master") or configured.get("spark.master") or "local[*]"
    conf = dict(DEFAULTS)
    if (cores := local_cores(master)) is not None:
        conf |= {"spark.sql.shuffle.partitions": str(cores), **LOCAL_CHECKPOINTS}
    if library_directory():
        conf["spark.local.dir"] = tempfile.gettempdir()  # else it would be java.io.tmpdir
    undecided = {key: value for key, value in conf.items() if key not in configured}
    options = " ".join([*_java_options(quick_start), configured.get(JAVA_OPTIONS, "")]).strip()
    return {**undecided, "spark.master": master, **({JAVA_OPTIONS: options} if options else {}), **given}


def _java_options(quick_start: bool) -> list[str]:
    options = [] if _has_log4j_file() else _log_options()
    if directory := library_directory():
        options.append(f'"-Djava.io.tmpdir={directory}"')
    return [*options, *(QUICK_START if quick_start else LATE_OPTIMIZER)]


def _log_options() -> list[str]:
    is_for_people = os.isatty(2) or "ipykernel" in sys.modules
    return [f"-Dlog4j2.configurationFile={LOG4J_FILE.as_uri()}", *(["-Dmoldau.log=brief"] if is_for_people else [])]


def _with_class_archive(options: str, java: JavaHome) -> str:
    from pyspark.find_spark_home import _find_spark_home

    classes = class_archive(java, Path(_find_spark_home()))
    quoted = [f'"{option}"' for option in (classes.options_to_use if classes else [])]
    return " ".join([*quoted, options]).strip()


def _environment_for_start(conf: Mapping[str, str], java: JavaHome) -> dict[str, str]:
    """Environment variables for the JVM that is about to start."""
    environment = {"JAVA_HOME": str(java.path)}
    # Spark resolves this host's name and warns, or hangs on a laptop that changes networks. Only executors on other
    # machines need another address than loopback.
    if is_on_loopback(conf["spark.master"]) and "SPARK_LOCAL_IP" not in os.environ:
        environment["SPARK_LOCAL_IP"] = LOOPBACK
    return environment


def local_cores(master: str) -> int | None:
    """Return how many tasks a local master runs at once, or None for the master of a cluster."""
    match = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", master.strip())
    if match is None:
        return None
    if match[1] == "*":
        return _cores_of_java()
    return int(match[1] or 1)


def _cores_of_java() -> int:
    """Return the number of cores that Java sees, and thus local[*] uses: a cgroup may limit them."""
    quota = core_quota()
    return usable_cores() if quota is None else max(1, min(usable_cores(), math.ceil(quota)))


def is_on_loopback(master: str) -> bool:
    """Return whether driver and executors all run on this machine and can use 127.0.0.1."""
    if local_cores(master) is not None or master.startswith("local-cluster["):
        return True
    return re.match(r"spark://(localhost|127\.[\d.]+|\[::1\])(:\d+)?$", master) is not None


def _is_submitted() -> bool:
    """Return whether spark-submit started this process: then the JVM runs, and executors have the submitted files."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _configured() -> dict[str, str]:
    """Return the existing configuration: spark-submit's command line, or spark-defaults.conf."""
    if _is_submitted():
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    defaults = _conf_directory() / "spark-defaults.conf"
    if not defaults.is_file():
        return {}
    try:
        return read_spark_defaults(properties.decode(defaults.read_bytes()))
    except MalformedData as error:
        raise MalformedData(f"{defaults}: {error}") from error


def read_spark_defaults(text: str) -> dict[str, str]:
    """Parse Java's properties. As in Spark, blanks at the end of a value do not count."""
    return {each.key: each.value.strip() for each in properties.parse(text)}


def _has_log4j_file() -> bool:
    return any(_conf_directory().glob("log4j2.*"))


def _conf_directory() -> Path:
    if directory := os.environ.get("SPARK_CONF_DIR"):
        return Path(directory)
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home()) / "conf"


def _register_sources(session: SparkSession) -> None:
    """Register the lake format, which Spark does not find by name, and the connector where workers lack the package."""
    from moldau.spark.lake.source import LakeSource
    from moldau.spark.source import MoldauSource

    # In this order: registering a source fixes the PYTHONPATH of its workers.
    is_added = _add_to_workers(session.sparkContext)
    session.dataSource.register(LakeSource)
    if is_added:
        session.dataSource.register(MoldauSource)


def _add_to_workers(context: SparkContext) -> bool:
    """Make Moldau importable for workers where it is not installed; return whether that was needed.

    Spark sends added files to executors, but not to the workers beside the driver that plan a stream: those use only
    PYTHONPATH. Executors fetch the archive during the whole session, so it is kept until this process ends.
    """
    if _is_submitted():
        sources = Path(__file__).parents[2]
        if sources.is_dir():
            return False  # installed, and not an archive that spark-submit brought
    elif local_cores(context.getConf().get("spark.master", "local")) is not None:
        return False
    elif any(file.endswith(f"/{archive.ARCHIVE_NAME}") for file in context.listFiles):
        return True
    else:
        directory = tempfile.mkdtemp(prefix="moldau-archive-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        sources = archive.build(Path(directory) / archive.ARCHIVE_NAME)
        context.addPyFile(str(sources))
    others = context.environment.get("PYTHONPATH")
    context.environment["PYTHONPATH"] = f"{sources}{os.pathsep}{others}" if others else str(sources)
    return True


def _text(value: object) -> str:
    """Return the value as Spark writes it: Python's True is Spark's `true`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a JVM that starts inside the block, and restore them afterwards."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
