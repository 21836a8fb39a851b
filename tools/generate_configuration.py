"""Writes `docs/configuration.md` and `config/server.properties` from the tables of all keys in `moldau.base.settings`.

python tools/generate_configuration.py            write
python tools/generate_configuration.py --check    exit 1 if the checked-in files differ
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from moldau.base.broker_configs import is_fixed
from moldau.base.client_metrics_configs import CLIENT_METRICS_CONFIGS
from moldau.base.config_def import ConfigDef, ListenerForms, NonEmpty, OneOf, Range, UpdateMode, rows_of
from moldau.base.group_configs import GROUP_CONFIGS
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
from moldau.base.view_configs import VIEW_CONFIGS

ROOT = Path(__file__).parent.parent
BROKER_TABLES = (
    ("A node, its listeners and its connections", node),
    ("Logins, TLS and access control", security),
    ("OAUTHBEARER", oauth),
    ("Topics and their logs", log),
    ("Replication and the controllers' quorum", cluster),
    ("Transactions", transactions),
    ("Groups and their offsets", groups),
    ("The state of share groups", share_coordinator),
    ("Only in Moldau", own),
)
DOCUMENTATION_HEAD = """# Configuration

Written by `python tools/generate_configuration.py` from the tables in `src/moldau/base/settings`: change it there.

All keys of brokers, controllers and topics. Brokers and controllers read theirs from a properties file, `KAFKA_*`
variables and `--override` ([deployment](deployment.md)); `kafka-configs.sh` shows all of them, and changes those that
can be changed while a broker runs: "yes" means for all brokers at once or for single ones, "per broker" only for single
ones, "per listener" only as `listener.name.NAME.KEY` of a single broker. An empty default means that the key has no
value.
"""
ACCEPTED_HEAD = """## Without effect

These keys of Apache Kafka are accepted and checked, so that its `server.properties` starts a node, but have no effect.
A start names those with another value than the default, and refuses Java classes that would protect a listener.
"""
PROPERTIES_HEAD = """\
# An example for one Moldau node. Start it with
#
#     bin/kafka-server-start.sh config/server.properties
#
# Names and meanings are Kafka's. A line that begins with "#" shows a default; take the "#" away to change it.
# Any of them can also be given as a variable (num.partitions is KAFKA_NUM_PARTITIONS) or on the command line
# (--override num.partitions=6). A key that Moldau does not know, or does not act on, is named when the node starts.
# docs/configuration.md has all keys. tools/generate_configuration.py writes this file.
"""


class Section(NamedTuple):
    """Some keys of the example."""

    title: str
    rows: tuple[ConfigDef, ...]
    notes: Mapping[str, str] = {}
    """What is worth to know about a key besides its documentation."""


PROPERTIES = (
    Section("This node", (node.NODE_ID, node.PROCESS_ROLES, node.BROKER_RACK)),
    Section(
        "Addresses",
        (
            node.LISTENERS,
            node.ADVERTISED_LISTENERS,
            node.MAX_CONNECTIONS,
            node.MAX_CONNECTIONS_PER_IP,
            node.CONNECTIONS_MAX_IDLE_MS,
            node.SOCKET_REQUEST_MAX_BYTES,
        ),
        {
            node.LISTENERS.name: '"localhost" is this machine only; leave the host out, PLAINTEXT://:9092, to listen'
            " everywhere. Nothing is encrypted and nobody is asked for a password: open the port only to those you"
            " trust.",
        },
    ),
    Section(
        "Data",
        (
            log.LOG_DIRS,
            log.LOG_SEGMENT_BYTES,
            log.LOG_RETENTION_HOURS,
            log.LOG_RETENTION_BYTES,
            log.LOG_RETENTION_CHECK_INTERVAL_MS,
            log.LOG_CLEANUP_POLICY,
            log.MESSAGE_MAX_BYTES,
        ),
        {log.LOG_DIRS.name: "An empty directory is made ready by itself."},
    ),
    Section(
        "Topics",
        (
            log.NUM_PARTITIONS,
            log.DEFAULT_REPLICATION_FACTOR,
            log.AUTO_CREATE_TOPICS_ENABLE,
            log.DELETE_TOPIC_ENABLE,
        ),
    ),
)
SET_IN_EXAMPLE = {
    node.NODE_ID,
    node.PROCESS_ROLES,
    node.LISTENERS,
    log.LOG_DIRS,
    log.LOG_RETENTION_HOURS,
    log.NUM_PARTITIONS,
    log.DEFAULT_REPLICATION_FACTOR,
}
"""Keys that the example sets, with Kafka's example as a model; the others are comments."""
EXAMPLES = {
    node.ADVERTISED_LISTENERS: "PLAINTEXT://broker.example.com:9092",
    log.LOG_DIRS: log.LOG_DIR.default_text,
}
"""A value to show for a key without a default."""


def configuration_page() -> str:
    parts = [DOCUMENTATION_HEAD]
    parts += [f"## {title}\n\n{_table(rows_of(table))}" for title, table in BROKER_TABLES]
    parts.append(
        "## Topic keys\n\nA topic without a value of its own has that of the broker key.\n\n"
        + _table(rows_of(topics), has_broker_key=True)
    )
    parts.append(
        "## Group keys\n\nA group without a value of its own has that of the broker key ([groups](groups.md)).\n\n"
        + _table(GROUP_CONFIGS.values(), has_broker_key=True)
    )
    parts.append(f"## Views\n\n[Views](views.md) are topics with these keys.\n\n{_table(VIEW_CONFIGS)}")
    parts.append(
        "## Client metrics\n\nKeys of a subscription ([metrics](metrics.md)).\n\n"
        + _table(CLIENT_METRICS_CONFIGS.values())
    )
    names = "\n".join(f"| `{row}` | {_default(row)} |" for row in accepted.ACCEPTED)
    parts.append(f"{ACCEPTED_HEAD}\n| key | default |\n|---|---|\n{names}\n")
    return "\n".join(parts)


def _table(rows: Iterable[ConfigDef], *, has_broker_key: bool = False) -> str:
    more = " broker key |" if has_broker_key else ""
    lines = [f"| key | meaning | type | default | valid | while running |{more}", "|---" * (7 if more else 6) + "|"]
    for row in rows:
        cells = [f"`{row}`", row.documentation, row.type.name.lower(), _default(row), _valid(row)]
        cells.append(_changes(row))
        if has_broker_key:
            cells.append(", ".join(f"`{synonym.name}`" for synonym in row.synonyms))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _changes(row: ConfigDef) -> str:
    """Return how a value can be changed while brokers run."""
    if ListenerForms.DYNAMIC in row.listener_forms:
        return "per listener"
    if row.read_only or is_fixed(row):
        return ""
    return "per broker" if row.update_mode is UpdateMode.PER_BROKER else "yes"


def _default(row: ConfigDef) -> str:
    return f"`{row.default_text}`" if row.default_text else ""


def _valid(row: ConfigDef) -> str:
    match row.validator:
        case Range(low, high, besides):
            span = f"from {low}" if high is None else f"{low} to {high}"
            return span if besides is None else f"{besides}, {span}"
        case OneOf(names):
            return ", ".join(names)
        case NonEmpty():
            return "not empty"
        case _:
            return ""


def example_properties() -> str:
    parts = [PROPERTIES_HEAD]
    for section in PROPERTIES:
        parts.append(f"############################# {section.title} #############################\n")
        parts += [_property(row, section.notes.get(row.name, "")) for row in section.rows]
    return "\n".join(parts)


def _property(row: ConfigDef, note: str) -> str:
    comment = textwrap.fill(f"{row.documentation} {note}", 118, initial_indent="# ", subsequent_indent="# ")
    value = EXAMPLES.get(row, row.default_text) or ""
    return f"{comment}\n{'' if row in SET_IN_EXAMPLE else '#'}{row}={value}\n"


FILES = {
    ROOT / "docs" / "configuration.md": configuration_page,
    ROOT / "config" / "server.properties": example_properties,
}


def stale_files() -> list[Path]:
    """Return the checked-in files that differ from what the tables say."""
    return [path for path, text in FILES.items() if not path.exists() or path.read_text(encoding="utf-8") != text()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if the checked-in files differ")
    arguments = parser.parse_args()
    stale = stale_files()
    if not arguments.check:
        for path in stale:
            path.write_text(FILES[path](), encoding="utf-8")
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'differs' if arguments.check else 'written'}")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
