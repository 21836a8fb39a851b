"""The rules of this code as tests: which package may import which, what pure packages may not use, how long functions
and modules may be.

docs/architecture.md explains the rules. The lists of exceptions may only shrink.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from runner.sharing import hidden_from_garbage_collector

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "moldau"
GENERATED = (PACKAGE / "wire" / "messages", PACKAGE / "wire" / "log_records")

MAY_IMPORT = {
    "platforms": set(),
    "base": set(),
    "prometheus": {"base"},
    "wire": {"base"},
    "columns": {"base"},
    "security": {"base", "wire"},
    "log": {"platforms", "base", "wire", "columns"},
    "views": {"base", "wire", "columns", "log"},
    "raft": {"base", "wire"},
    "metadata": {"base", "wire", "security", "views"},
    "share": {"base", "wire"},
    "coordinator": {"base", "wire", "metadata", "share"},
    "replica": {"base", "wire", "log", "views", "metadata"},
    "telemetry": {"base", "wire"},
    "metrics": {"base", "prometheus", "raft", "metadata", "share", "coordinator", "replica", "telemetry"},
    "client": {"platforms", "base", "wire", "security"},
    "operations": {"base", "wire", "security", "client"},
    "runtime": {
        "platforms",
        "base",
        "wire",
        "security",
        "log",
        "views",
        "raft",
        "metadata",
        "share",
        "coordinator",
        "replica",
        "client",
    },
    "server": {
        "platforms",
        "base",
        "wire",
        "security",
        "log",
        "views",
        "metadata",
        "share",
        "coordinator",
        "replica",
        "telemetry",
        "runtime",
    },
    "spark": {"platforms", "base", "wire", "columns", "client"},
    "databases": {"platforms", "base", "spark"},
    "backends": {"base"},
    "pipelines": {"platforms", "base", "prometheus", "wire", "client", "databases", "spark", "backends"},
    "doctor": {"platforms", "base", "spark"},
    "cli": {
        "platforms",
        "base",
        "prometheus",
        "security",
        "wire",
        "client",
        "operations",
        "coordinator",
        "log",
        "views",
        "metadata",
        "raft",
        "settings",
        "node",
        "local_cluster",
        "secure_setup",
        "spark",
        "pipelines",
        "doctor",
        "testing",
        "web",
        "console",
        "gateway",
    },
    "web": {"base", "security", "client", "operations"},
    "gateway": {"platforms", "base", "prometheus", "wire", "security", "client", "operations", "web"},
    "console": {
        "platforms",
        "base",
        "wire",
        "security",
        "views",
        "client",
        "operations",
        "metrics",
        "runtime",
        "pipelines",
        "web",
    },
    "testing": {
        "platforms",
        "base",
        "wire",
        "security",
        "client",
        "log",
        "node",
        "settings",
        "local_cluster",
        "secure_setup",
    },
    "settings": {"platforms", "base", "security", "share", "coordinator", "client"},
    "local_cluster": {"base"},
    "assembly": {
        "platforms",
        "base",
        "wire",
        "security",
        "log",
        "views",
        "raft",
        "metadata",
        "share",
        "coordinator",
        "replica",
        "client",
        "runtime",
        "prometheus",
        "metrics",
        "server",
        "settings",
    },
    "node": {
        "platforms",
        "base",
        "security",
        "log",
        "metadata",
        "client",
        "runtime",
        "prometheus",
        "server",
        "settings",
        "assembly",
    },
    "secure_setup": {"platforms", "base", "wire", "security", "log", "raft", "metadata", "local_cluster"},
}
"""A package may import itself and these."""

MAY_IMPORT_ALL = {"__init__", "__main__", "pytest_plugin"}
"""These modules may import every package."""

PIPELINES_MAY_IMPORT = {
    "reading": set(),
    "drawing": set(),
    "planning": set(),
    "running": {"drawing", "planning"},
    "cases": {"planning", "running"},
    "workbench": {"reading", "planning", "running", "cases"},
}
"""The same among the packages of `pipelines`; its `spec.py` and `problems.py` are for all of them."""

PURE = (
    "base",
    "wire",
    "security",
    "log",
    "views",
    "raft",
    "metadata",
    "share",
    "coordinator",
    "replica",
    "telemetry",
    "metrics",
)
NOT_IN_PURE_PACKAGES = {"asyncio", "socket", "threading", "time", "subprocess", "logging", "selectors", "uvloop"}
MAY_TELL_TIME = {"base/clock.py"}
MAY_LOCK = {"log/write_order.py"}
ASYNC_PACKAGES = {"prometheus", "server", "runtime", "client", "testing", "node", "web", "console", "gateway"}
BANNED_NAMES = {"utils", "util", "helpers", "common", "manager", "misc", "stuff"}

PLATFORM_BOUND = re.compile(
    r"\b(?:fdatasync|fsync|posix_fadvise|RWF_NOWAIT|preadv|sendfile|F_FULLFSYNC|flock|sysconf|sched_\w+|nice)\("
    r"|\bos\.(?:fdatasync|fsync|sendfile|preadv|posix_\w+|RWF_\w+|O_DIRECTORY|SCHED_\w+|name|uname)\b"
    r"|\bsys\.platform\b|\bplatform\.(?:system|machine|release)\b|[\"']/(?:proc|sys|dev/shm)\b"
    r"|^\s*(?:import|from) (?:fcntl|resource|termios|tty|pty|pwd|grp|msvcrt|winreg|platform)\b",
    re.MULTILINE,
)
"""Calls, modules and paths that not every system has: only src/moldau/platforms may use them."""

FUNCTION_LINES_MAX = 70
"""Modules have no limit: one is as long as its one idea."""
LONG_FUNCTIONS: set[str] = set()


CLIENT_SIDE = ("cli", "client", "console", "gateway", "operations", "pipelines", "spark", "testing", "web")
"""The clients of a cluster. Nodes, in runtime and raft, build the requests to their peers."""
API_NAMES = frozenset(re.findall(r'\d+: \(\S+, "(\w+)",', (GENERATED[0] / "__init__.py").read_text()))
OF_RECORDS = frozenset({"ProduceRequest", "FetchRequest", "InitProducerIdRequest"})
"""Requests that carry records, and that of the producer id: every producer and reader has its own."""
BUILT_ELSEWHERE: Mapping[str, frozenset[str]] = {
    "client/peer_login.py": frozenset({"SaslHandshakeRequest", "SaslAuthenticateRequest"}),
    "client/stand_in/member.py": frozenset({"ConsumerGroupHeartbeatRequest", "OffsetCommitRequest"}),
    "spark/exactly_once/wire.py": frozenset(
        {
            "AddOffsetsToTxnRequest",
            "AddPartitionsToTxnRequest",
            "EndTxnRequest",
            "OffsetFetchRequest",
            "TxnOffsetCommitRequest",
        }
    ),
}
"""The login of a node at its peers, a member of a group, and the transactions of Spark's sink."""
OF_LIBRDKAFKAS_ADMIN = frozenset(
    {"list_topics", "get_watermark_offsets", "offsets_for_times", "incremental_alter_configs"}
)


@cache
def modules() -> tuple[Path, ...]:
    return tuple(path for path in sorted(PACKAGE.rglob("*.py")) if not set(GENERATED) & set(path.parents))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of the tree, which is walked once for all tests."""
    return tuple(ast.walk(tree(path)))


@pytest.fixture(scope="module", autouse=True)
def trees_are_not_searched_for_garbage() -> Iterator[None]:
    """The trees of all modules are a million objects, and nothing in them becomes garbage before the last test."""
    with hidden_from_garbage_collector():
        yield
        tree.cache_clear()
        nodes.cache_clear()


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Yield every imported name with its line, wherever it is in the file."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno} imports relatively"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def test_test_modules_have_unique_names() -> None:
    """Tests import each other's modules and packages by their bare names, and pytest knows them by these."""
    modules = (path for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py")
    names = Counter(
        path.parent.name if path.name == "__init__.py" else path.stem
        for path in modules
        if path.name == "__init__.py" or not (path.parent / "__init__.py").exists()
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_tests_import_no_benchmarks() -> None:
    """What both use is in tests/harness. The benchmarks themselves have tests in tests/unit/bench."""
    of_benchmarks = ROOT / "tests" / "unit" / "bench"
    wrong = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if of_benchmarks not in path.parents
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.match(r"\s*(?:import|from) bench\b", line)
    ]
    assert not wrong, "\n".join(wrong)


def test_packages_import_only_what_they_may() -> None:
    assert {package_of(path) for path in modules()} == MAY_IMPORT.keys() | MAY_IMPORT_ALL, "a package is in no list"
    wrong = []
    for path in modules():
        package = package_of(path)
        if package in MAY_IMPORT_ALL:
            continue
        for name, line in imported(path):
            parts = name.split(".")
            if parts[0] == "moldau" and len(parts) > 1 and parts[1] != "__version__":
                other = parts[1]
                if other != package and other not in MAY_IMPORT[package]:
                    wrong.append(f"{name_of(path)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_packages_import_only_packages_above() -> None:
    """Above in the file map of docs/architecture.md."""
    file_map = (ROOT / "docs" / "architecture.md").read_text().partition("## File map")[2]
    order = re.findall(r"^\| `(\w+)(?:/|\.py)`", file_map, re.MULTILINE)
    assert sorted(order) == sorted(MAY_IMPORT)
    wrong = [
        f"{package} is above {other}, which it imports"
        for package, others in MAY_IMPORT.items()
        for other in sorted(others)
        if order.index(other) > order.index(package)
    ]
    assert not wrong, "\n".join(wrong)


def test_there_are_no_import_cycles() -> None:
    """Imports for types and inside functions count too."""
    names = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    graph = {
        name: {module for each, _ in imported(path) if (module := imported_module(each, names)) not in (None, name)}
        for name, path in names.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("folder", GENERATED, ids=lambda folder: folder.name)
def test_every_generated_module_is_used(folder: Path) -> None:
    """tools/generate_messages.py lists the messages for which no module is generated."""
    prefix = f"moldau.wire.{folder.name}."
    names = (name for path in modules() for name, _ in imported(path) if name.startswith(prefix))
    used = {name.removeprefix(prefix).partition(".")[0] for name in names}
    assert {path.stem for path in folder.glob("[a-z]*.py")} == used - {"INDEX"}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_module(imports: str, names: Mapping[str, Path]) -> str | None:
    """`from moldau.a import b` imports module a.b, or b of module a."""
    parent = imports.rpartition(".")[0]
    return imports if imports in names else parent if parent in names else None


def test_clients_build_each_request_in_one_module() -> None:
    """The admin client builds them, in client/. Others build only what produces and consumes."""
    builders: dict[str, set[str]] = {}
    for path in modules():
        name = path.relative_to(PACKAGE).as_posix()
        if name.partition("/")[0] in CLIENT_SIDE:
            for request in requests_built(path) - OF_RECORDS - BUILT_ELSEWHERE.get(name, frozenset()):
                builders.setdefault(request, set()).add(name)
    outside = {name for names in builders.values() for name in names if not name.startswith("client/")}
    assert not outside, "these build requests themselves; call the admin client, or add to client/requests"
    assert not {request: names for request, names in builders.items() if len(names) > 1}


def requests_built(path: Path) -> set[str]:
    """Return the classes of requests that a module calls, such as MetadataRequest."""
    called = (node.func for node in nodes(path) if isinstance(node, ast.Call))
    names = {
        each.attr if isinstance(each, ast.Attribute) else each.id if isinstance(each, ast.Name) else ""
        for each in called
    }
    return {name for name in names if name.endswith("Request") and name.removesuffix("Request") in API_NAMES}


def test_confluent_kafka_only_produces_and_consumes() -> None:
    wrong = []
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("confluent_kafka"):
                is_wrong = node.module != "confluent_kafka" or any(each.name == "admin" for each in node.names)
            elif isinstance(node, ast.Import):
                is_wrong = any(each.name.startswith("confluent_kafka") for each in node.names)
            else:
                called = node.func if isinstance(node, ast.Call) else None
                is_wrong = isinstance(called, ast.Attribute) and called.attr in OF_LIBRDKAFKAS_ADMIN
            if is_wrong:
                wrong.append(f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}")
    assert not wrong, "our own admin client does this"


def test_packages_of_pipelines_import_only_what_they_may() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {name}"
        for path in modules()
        for package, allowed in PIPELINES_MAY_IMPORT.items()
        if path.is_relative_to(PACKAGE / "pipelines" / package)
        for name, line in imported(path)
        if name.startswith("moldau.pipelines.")
        and name.split(".")[2] in PIPELINES_MAY_IMPORT.keys() - allowed - {package}
    ]
    assert not wrong, "\n".join(wrong)


def test_pure_packages_import_no_clock_event_loop_or_network() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {name}"
        for path in modules()
        if package_of(path) in PURE and name_of(path) not in MAY_TELL_TIME | MAY_LOCK
        for name, line in imported(path)
        if name.split(".")[0] in NOT_IN_PURE_PACKAGES
    ]
    assert not wrong, "\n".join(wrong)


def test_async_code_is_only_in_async_packages() -> None:
    wrong = [
        f"{name_of(path)}:{node.lineno}"
        for path in modules()
        if package_of(path) not in ASYNC_PACKAGES
        for node in nodes(path)
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncWith | ast.AsyncFor)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_has_a_banned_name() -> None:
    assert not [name_of(path) for path in modules() if path.stem in BANNED_NAMES]


def test_every_module_has_a_docstring() -> None:
    """That of a package's `__init__` says what the package is, what it may import and where to begin."""
    assert not [name_of(path) for path in modules() if not ast.get_docstring(tree(path))]
    of_packages = {path: ast.get_docstring(tree(path)) or "" for path in PACKAGE.glob("*/__init__.py")}
    assert not [name_of(path) for path, text in of_packages.items() if not re.search(r"\bBegin\s+with\b", text)]


def test_functions_are_not_too_long() -> None:
    long = {
        f"{name_of(path)}:{node.name}"
        for path in modules()
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno > FUNCTION_LINES_MAX
    }
    assert long == LONG_FUNCTIONS


def test_no_broad_except_is_silent() -> None:
    wrong = []
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.ExceptHandler):
                wide = node.type is None or (isinstance(node.type, ast.Name) and node.type.id.endswith("Exception"))
                silent = all(isinstance(step, ast.Pass) for step in node.body)
                if wide and silent:
                    wrong.append(f"{name_of(path)}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


def code_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines without docstrings and comments, which may mention `sendfile`."""
    docstring_lines = {
        line
        for node in nodes(path)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if number not in docstring_lines:
            yield number, line.partition("  # ")[0]


def test_only_the_platforms_package_has_platform_specific_code() -> None:
    wrong = [
        f"{name_of(path)}:{number} {line.strip()[:80]}"
        for path in modules()
        if package_of(path) != "platforms" and PLATFORM_BOUND.search(path.read_text())
        for number, line in code_lines(path)
        if PLATFORM_BOUND.search(line) and not line.lstrip().startswith("#")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "line",
    [
        "os.fdatasync(fd)",
        "os.fsync(fd)",
        "sync = os.fdatasync",
        "os.posix_fadvise(fd, 0, 1, 2)",
        "flags = os.RWF_NOWAIT",
        "os.sendfile(a, b, 0, 1)",
        'open(f"/proc/{pid}/stat")',
        "if sys.platform == 'linux':",
        "import resource",
        "    from fcntl import flock",
        "fcntl.flock(fd, 2)",
    ],
)
def test_platform_specific_code_is_recognised(line: str) -> None:
    assert PLATFORM_BOUND.search(line)


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not in a git checkout")
    return [ROOT / name for name in listed.stdout.splitlines()]


def test_files_have_no_machine_paths_and_no_todo_notes() -> None:
    """No home directories, no package hosts, no TODO, FIXME or XXX."""
    parts = ("/root/", "/home/", "/work/", "TODO", "FIXME", "XXX", "pypi.org", "files.pythonhosted")
    bad = re.compile(r"(?<![\w.])/(?:root|home/\w+|work)/|\b(?:TODO|FIXME|XXX)\b|pypi\.org|files\.pythonhosted")
    wrong = []
    for path in tracked():
        if path == Path(__file__) or path.suffix in {".png", ".svg"} or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        for found in bad.finditer(text) if any(part in text for part in parts) else ():
            wrong.append(f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1} {found[0]}")
    assert not wrong, "\n".join(wrong)
