"""How a pipeline connects to its cluster: `kafka` has client properties, `command_config` names a file of them.

A command that does not connect, such as `graph` or a test with a broker of its own, needs none of this: it drops the
settings before their variables are replaced, so that it also runs where the passwords are not known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from moldau.pipelines.reading.sections import Section
from moldau.pipelines.reading.value_files import UnreadableValue, ValueFiles
from moldau.pipelines.reading.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode

COMMAND_CONFIG: Final = "command_config"
BACKEND_CONNECTION: Final = ("url", "options", "args")
"""How a sink connects to a backend: any of it may be a password."""
UNKNOWN: Final = "unknown"
"""The value of a variable that is not looked up."""
_LOOKED_UP: Final = re.compile(r"\$\{(?:env|file):[^}\n]*\}")
BOOTSTRAP: Final = "bootstrap.servers"
_SET_ELSEWHERE: Final = {
    BOOTSTRAP: "give the address with 'bootstrap'",
    "auto.offset.reset": "say where to begin with 'start' of a source",
    "enable.auto.commit": "Spark's checkpoint holds the position",
    "key.deserializer": "say what records are with 'format'",
    "value.deserializer": "say what records are with 'format'",
    "key.serializer": "say what records are with 'format'",
    "value.serializer": "say what records are with 'format'",
}
_SECURITY: Final = re.compile(r"(?:kafka\.)?(?:security|sasl|ssl)\.", re.IGNORECASE)


def without_connection(root: MappingNode) -> MappingNode:
    """Return the tree without the settings of TLS, SASL and backends, and the passwords in URLs of databases."""
    values: dict[str, Node] = {}
    for name, value in root.values.items():
        if name == "kafka":
            values[name] = _without_security(value)
        elif name in ("sources", "sinks"):
            values[name] = _without_security_options(value)
        elif name != COMMAND_CONFIG:
            values[name] = value
    return replace(root, values=values)


def _without_security_options(node: Node) -> Node:
    """Return sources or sinks, whose `options` have no settings of TLS and SASL."""
    if isinstance(node, SequenceNode):
        return replace(node, values=tuple(map(_without_options_of_one, node.values)))
    if isinstance(node, MappingNode):
        return replace(node, values={name: _without_options_of_one(value) for name, value in node.values.items()})
    return node


def _without_options_of_one(node: Node) -> Node:
    if isinstance(node, MappingNode) and "backend" in node.values:
        kept = {name: value for name, value in node.values.items() if name not in BACKEND_CONNECTION}
        return replace(node, values=kept)
    if not isinstance(node, MappingNode):
        return node
    values = dict(node.values)
    if "options" in values:
        values["options"] = _without_security(values["options"])
    url = values.get("database")
    if isinstance(url, ScalarNode) and _LOOKED_UP.search(url.text):
        values["database"] = replace(url, map=replace(url.map, text=_LOOKED_UP.sub(UNKNOWN, url.text)))
    return replace(node, values=values)


def _without_security(node: Node) -> Node:
    if not isinstance(node, MappingNode):
        return node
    return replace(node, values={name: value for name, value in node.values.items() if not _SECURITY.match(name)})


def read_connection(section: Section, files: ValueFiles) -> tuple[dict[str, str], str | None]:
    """Return the client properties, and the address in the file of `command_config`."""
    in_file = _file_properties(section, files)
    of_file = {name: value for name, value in in_file.items() if name not in _SET_ELSEWHERE}
    return {**of_file, **_kafka(section)}, in_file.get(BOOTSTRAP)


def _file_properties(section: Section, files: ValueFiles) -> Mapping[str, str]:
    path = section.text(COMMAND_CONFIG)
    if path is None:
        return {}
    try:
        return files.properties(path)
    except UnreadableValue as unreadable:
        section.refuse(str(unreadable), section.value_place(COMMAND_CONFIG))
        return {}


def _kafka(section: Section) -> Mapping[str, str]:
    properties = section.mapping("kafka")
    inner = section.entries.values.get("kafka")
    places = inner.keys if isinstance(inner, MappingNode) else {}
    for name in properties:
        if name in _SET_ELSEWHERE:
            section.refuse(f"'{name}' cannot be set under 'kafka': {_SET_ELSEWHERE[name]}", places[name])
        elif name.startswith("kafka."):
            section.refuse(f"write '{name.removeprefix('kafka.')}', without 'kafka.'", places[name])
    return properties
