"""The wheel and the source archive: their contents, and that everything runs from the wheel alone.

pip installs the wheel into an empty environment, where nothing can be imported from the checkout. That environment sees
what the running one has installed, except Moldau, so nothing is downloaded: pip finds every requirement met.
"""

from __future__ import annotations

import ensurepip
import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from harness.depth import only_deep

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = re.compile(r"(_editable_impl_|__editable__.*)?(moldau|pyspark_moldau)\b.*|.*\.pth|__pycache__")
"""What is left out of the running environment: Moldau in every form, and everything that changes `sys.path`."""
LEADING = re.compile(r"(PYTHON|PYSPARK|SPARK_|MOLDAU_|KAFKA_|VIRTUAL_ENV|CLUSTER_ID|LOG_DIR).*")
"""Variables that make a program import from outside its environment, or set the broker's settings."""
PATIENCE_S = 900


class Built(NamedTuple):
    sdist: Path
    wheel: Path


class Environment(NamedTuple):
    """A virtual environment with the wheel, and a working directory outside the checkout."""

    home: Path
    work: Path

    @property
    def variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not LEADING.fullmatch(name)}
        return kept | {"PATH": f"{self.home / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def run(self, program: str, *words: str, stdin: str = "") -> str:
        """Run a program of the environment, check that it succeeds, and return its output."""
        command = [str(self.home / "bin" / program), *words]
        done = subprocess.run(
            command, cwd=self.work, env=self.variables, input=stdin, text=True, capture_output=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, f"{program} {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout


def build(source: Path, into: Path, *targets: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(into)]
    chosen = [word for target in targets for word in ("--target", target)]
    done = subprocess.run([*command, *chosen], cwd=source, text=True, capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr


def the_only(found: Iterator[Path]) -> Path:
    [path] = found
    return path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    pytest.importorskip("hatchling", reason="hatchling is not installed: make setup")
    into = tmp_path_factory.mktemp("dist")
    build(ROOT, into, "sdist", "wheel")
    return Built(the_only(into.glob("*.tar.gz")), the_only(into.glob("*.whl")))


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("work"))
    venv.create(environment.home, symlinks=True)
    link_third_party(environment.home)
    environment.run("python", *pip(), "install", "--quiet", "--no-index", "--no-compile", f"{built.wheel}[all]")
    return environment


def pip() -> list[str]:
    """Return how Python runs pip: the one that is linked with all else that is installed, or that which Python brings,
    from its wheel. To install that one would take three times as long."""
    if importlib.util.find_spec("pip") is not None:
        return ["-m", "pip"]
    brought = sysconfig.get_config_var("WHEEL_PKG_DIR") or Path(ensurepip.__file__).parent / "_bundled"
    return [str(the_only(Path(brought).glob("pip-*.whl")) / "pip")]


def link_third_party(home: Path) -> None:
    """Link all installed packages but Moldau into an environment, with a .pth file that names them.

    The directory itself would not do: it has the metadata of the editable Moldau, and so its entry points.
    """
    packages = the_only(home.glob("lib/python*/site-packages"))
    links = home / "third-party"
    links.mkdir()
    for directory in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for package in Path(directory).iterdir():
            if not OURS.fullmatch(package.name) and not (packages / package.name).exists():
                (links / package.name).symlink_to(package)
    (packages / "third-party.pth").write_text(f"{links}\n")


@pytest.fixture
def broker(installed: Environment, tmp_path: Path) -> Iterator[str]:
    """Yield the address of `moldau start` from the wheel."""
    command = [str(installed.home / "bin" / "moldau"), "start", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, cwd=installed.work, env=installed.variables, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout is not None
            ready = running.stdout.readline()
            found = re.search(r"ready: (\S+)", ready)
            assert found, f"the broker did not start: {ready!r}"
            yield found[1]
        finally:
            running.terminate()
    assert running.returncode == 0


# --- contents -----------------------------------------------------------------------------------------------------


def test_the_wheel_has_the_packages_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        files = {name for name in wheel.namelist() if ".dist-info/" not in name}
        [metadata] = [wheel.read(name).decode() for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    source = ROOT / "src"
    here = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert files == {name for name in here if "__pycache__" not in name}
    assert files >= {"moldau/py.typed", "moldau/spark/log4j2.properties", "pyspark_moldau/__init__.py"}
    assert {name.partition("/")[0] for name in files} == {"moldau", "pyspark_moldau"}
    assert "Project-URL" not in metadata  # there is no public page yet


def test_the_source_archive_makes_the_same_wheel(built: Built, tmp_path: Path) -> None:
    """The same byte for byte, from another directory: the archive is complete, and a build uses nothing outside it."""
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    source = the_only(tmp_path.iterdir())
    build(source, tmp_path / "dist", "wheel")
    assert (tmp_path / "dist" / built.wheel.name).read_bytes() == built.wheel.read_bytes()


def test_the_source_archive_has_the_tests_and_deployment_files(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {"Makefile", "constraints.txt", "LICENSE", "README.md", "tests/dist/test_wheel.py"}
    assert names >= {"Containerfile", ".dockerignore", "compose.yaml", "compose.cluster.yaml", "config/moldau.service"}


# --- programs -----------------------------------------------------------------------------------------------------

LOAD_EVERYTHING = """
import importlib.metadata, sys
[found] = [each for each in importlib.metadata.distributions() if each.name == "moldau"]
for entry_point in found.entry_points:
    entry_point.load()
import pyspark_moldau
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] in ("moldau", "pyspark_moldau"):
        print(module.__file__)
"""


def test_every_module_is_loaded_from_the_wheel(installed: Environment) -> None:
    """Every command and the pytest plugin load, and all our modules come from the new environment."""
    files = installed.run("python", "-c", LOAD_EVERYTHING).splitlines()
    assert len(files) > 100
    assert [file for file in files if not Path(file).is_relative_to(installed.home)] == []


def test_every_command_is_installed(installed: Environment) -> None:
    assert [name for name in PROJECT["scripts"] if not (installed.home / "bin" / name).exists()] == []


def test_the_broker_and_the_tools_run_from_the_wheel(installed: Environment, broker: str) -> None:
    at = ("--bootstrap-server", broker)
    created = installed.run("kafka-topics.sh", "--create", "--topic", "orders", "--partitions", "1", *at)
    assert created == "Created topic orders.\n"
    assert installed.run("kafka-topics.sh", "--list", *at) == "orders\n"
    installed.run("kafka-console-producer.sh", "--topic", "orders", *at, stdin="The Castle\n")
    installed.run("moldau", "produce", "orders", *at, stdin="The Trial\n")
    from_start = ("--topic", "orders", "--from-beginning", "--max-messages", "2")
    assert installed.run("kafka-console-consumer.sh", *from_start, *at) == "The Castle\nThe Trial\n"


TEST_OF_A_USER = """
from confluent_kafka import Producer

def test_orders_are_sent(moldau_broker):
    producer = Producer({"bootstrap.servers": moldau_broker.bootstrap_servers})
    producer.produce("orders", b"The Castle")
    assert producer.flush(30) == 0
"""


def test_the_pytest_fixture_works_from_the_wheel(installed: Environment) -> None:
    (installed.work / "test_orders.py").write_text(TEST_OF_A_USER)
    assert "1 passed" in installed.run("python", "-m", "pytest", "test_orders.py")


def test_a_pipeline_is_written_and_validated_from_the_wheel(installed: Environment) -> None:
    installed.run("moldau", "pipeline", "init", "shop")
    installed.run("moldau", "pipeline", "validate", "--yaml-only", "shop/pipeline.yaml")


@only_deep
def test_a_pipeline_is_tested_from_the_wheel(installed: Environment) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: make setup")
    installed.run("moldau", "pipeline", "init", "tested")
    assert "first-orders" in installed.run("moldau", "pipeline", "test", "tested/pipeline.yaml")
