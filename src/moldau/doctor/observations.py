"""The observations of a machine as plain values: `gathering` makes them with I/O, `verdicts` judges them without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moldau.platforms.machine import ListeningProcess, OpenFileLimits
from moldau.spark.java import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonSeen:
    version: tuple[int, int, int]
    implementation: str
    executable: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSeen:
    pyspark: str | None
    """The version of pyspark; None if it is not installed."""
    spark_home: str | None
    """The variable SPARK_HOME, if it names another Spark than pip's."""
    javas: tuple[Candidate, ...]
    """The candidates that were tried; Spark uses the last one, if it is usable."""
    error: str | None
    """Why Spark cannot start the chosen Java."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSeen:
    address: str
    errno: int | None = None
    """The error of the attempt to listen; None if it succeeded."""
    reason: str = ""
    is_name_unknown: bool = False
    listening_process: ListeningProcess | None = None
    """The process that listens on the port already, if it can be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySeen:
    path: Path
    exists: bool
    is_directory: bool = True
    error: str | None = None
    """Why a file could not be written there, or in the nearest existing parent directory."""
    free_bytes: int | None = None
    file_system: str | None = None
    runs_programs: bool = True
    is_case_sensitive: bool = True
    clock_offset_s: float = 0.0
    """How far the file system's times of new files are ahead of the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveSeen:
    """The space that a node keeps in its data directory for the time when the disk is full."""

    held_bytes: int | None
    """None if there is no such file."""
    wanted_bytes: int
    """By the settings, and by the size of the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameSeen:
    name: str
    addresses: tuple[str, ...] = ()
    error: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSeen:
    year: int
    jump_s: float
    """How much the wall clock advanced more than the monotonic clock during the observation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcesSeen:
    cores: int
    core_quota: float | None
    """The limit of the cgroup; None without one."""
    memory_bytes: int | None
    memory_limit_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSeen:
    """All observations of a machine."""

    python: PythonSeen
    packages: Mapping[str, str | None]
    """The versions of the packages that Moldau uses; None for those that are not installed."""
    spark: SparkSeen
    ports: tuple[PortSeen, ...]
    open_files: OpenFileLimits | None
    data: DirectorySeen
    reserve: ReserveSeen | None
    """None if it cannot be seen."""
    cache: DirectorySeen | None
    temporary: DirectorySeen | None
    host: NameSeen
    localhost: NameSeen
    environ: Mapping[str, str]
    clock: ClockSeen
    resources: ResourcesSeen
