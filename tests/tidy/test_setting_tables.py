"""A setting is written once: its row in `base/settings` is the only place with its key, and what is written from the
rows is up to date.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.base.broker_configs import BROKER_CONFIGS, IMPLEMENTED
from moldau.base.config_def import ConfigDef
from moldau.base.settings import (
    accepted,
    cluster,
    groups,
    log,
    node,
    oauth,
    own,
    security,
    share_coordinator,
    topics,
    transactions,
)
from moldau.base.topic_configs import TOPIC_CONFIGS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "moldau"
TABLES = PACKAGE / "base" / "settings"
GENERATED = PACKAGE / "wire" / "messages"
MODULES = (accepted, cluster, groups, log, node, oauth, own, security, share_coordinator, topics, transactions)

KEYS_OF_SOMETHING_ELSE = {
    "cli/kafka/console_producer.py": "options of Java's producer",
    "cli/kafka/consumer_perf.py": "options of Java's consumer",
    "cli/kafka/share_consumer_perf.py": "options of Java's share consumer",
    "cli/records/produce.py": "options of librdkafka",
    "cli/user/client_formats.py": "properties of other clients",
    "cli/user/saving.py": "properties of Java's clients",
    "client/properties.py": "properties of Java's clients",
    "client/stand_in/batch_sender.py": "options of librdkafka",
    "client/stand_in/settings.py": "options of librdkafka",
    "client/tls.py": "properties of clients",
    "client/token_login.py": "properties of Java's clients",
    "console/options.py": "properties of Java's clients",
    "gateway/http/proxy/consumer.py": "options of librdkafka",
    "log/meta_properties.py": "keys of the file meta.properties",
    "spark/options.py": "options of Spark's connector",
}
"""Modules whose keys have the names of broker keys, but are others."""


QUOTED_KEY = re.compile("[\"'](?:" + "|".join(map(re.escape, {*BROKER_CONFIGS, *TOPIC_CONFIGS})) + ")[\"']")


def keys_in(path: Path) -> list[str]:
    text = path.read_text()
    if not QUOTED_KEY.search(text):
        return []  # parsing all modules takes seconds
    strings = (each.value for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Constant))
    return [each for each in strings if isinstance(each, str) and (each in BROKER_CONFIGS or each in TOPIC_CONFIGS)]


def test_a_key_is_written_once() -> None:
    written = Counter(key for path in TABLES.glob("*.py") for key in keys_in(path))
    assert [key for key, count in written.items() if count > 1] == []
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if TABLES not in path.parents and GENERATED not in path.parents and name not in KEYS_OF_SOMETHING_ELSE:
            repeated = [key for key in keys_in(path) if key in written]
            assert not repeated, f"{name} repeats {repeated}: use the rows of base/settings"


def test_the_exceptions_are_still_needed() -> None:
    assert [name for name in KEYS_OF_SOMETHING_ELSE if not keys_in(PACKAGE / name)] == []


def test_a_row_is_called_like_its_key() -> None:
    rows = {(name, row.name) for module in MODULES for name, row in vars(module).items() if isinstance(row, ConfigDef)}
    assert [name for name, key in rows if name != re.sub("[.-]", "_", key).upper()] == []


NAMED_WITHOUT_EFFECT = {
    "log.local.retention.bytes", "log.local.retention.ms", "log.preallocate", "metadata.log.dir",
    "replica.alter.log.dirs.io.max.bytes.per.second", "sasl.login.callback.handler.class",
    "sasl.oauthbearer.assertion.claim.iss", "sasl.oauthbearer.assertion.file",
    "sasl.server.callback.handler.class", "ssl.engine.factory.class", "ssl.provider",
}  # fmt: skip
"""Accepted keys whose rows are named because their values are refused, or are the defaults of keys of topics."""


BROKER_ROWS = {
    f"{module.__name__}.{name}": row.name
    for module in MODULES
    for name, row in vars(module).items()
    if isinstance(row, ConfigDef) and module is not topics
}
"""The keys by the full names of their rows' constants."""


def rows_read(path: Path) -> Iterator[str]:
    """Yield the keys of the rows that a module imports, or takes from a table that it imports."""
    text = path.read_text()
    if "moldau.base.settings" not in text:
        return
    nodes = list(ast.walk(ast.parse(text)))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    names = {each.asname or each.name: f"{node.module}.{each.name}" for node in imports for each in node.names}
    of_modules = (
        f"{names.get(node.value.id)}.{node.attr}"
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    )
    yield from (BROKER_ROWS[each] for each in (*names.values(), *of_modules) if each in BROKER_ROWS)


def test_the_keys_with_an_effect_are_those_that_are_read() -> None:
    """ruff refuses an import that is not used. Rows of topics have broker keys as defaults."""
    paths = (path for path in PACKAGE.rglob("*.py") if TABLES not in path.parents or path.name == "topics.py")
    read = {key for path in paths for key in rows_read(path)}
    assert read == {row.name for row in IMPLEMENTED} | NAMED_WITHOUT_EFFECT


def test_the_documentation_and_the_example_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "generate_configuration.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"{done.stdout}{done.stderr}run: python tools/generate_configuration.py")
