"""Reads a pipeline file into a Pipeline, or raises InvalidPipeline with everything that is wrong with it.

    pipeline = load("bookstore.yaml", {"lake": "/data"}, bootstrap="broker:9092")

The order: bytes -> values with places -> variables replaced -> sources, steps, sinks -> checks across all of them.
This needs no Spark (SQL and schemas are only texts here) and runs no code of the user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from moldau.base.limits import PORT_MAX
from moldau.pipelines.problems import InvalidPipeline, Problem, did_you_mean, quoted
from moldau.pipelines.queries import DEAD_LETTERS, QUERY_NAME_LENGTH_MAX, sinks_by_query
from moldau.pipelines.reading.backends import check_dead_letter
from moldau.pipelines.reading.connection import BOOTSTRAP, COMMAND_CONFIG, read_connection, without_connection
from moldau.pipelines.reading.file_bytes import NotAFile, read_bytes
from moldau.pipelines.reading.paths import Folder
from moldau.pipelines.reading.sections import Section
from moldau.pipelines.reading.sinks import check_sharing, check_table, read_sink
from moldau.pipelines.reading.sources import read_source
from moldau.pipelines.reading.steps import read_step
from moldau.pipelines.reading.value_files import ValueFiles
from moldau.pipelines.reading.variables import Outside, replace_variables
from moldau.pipelines.reading.yaml_tree import FILE_BYTES_MAX, MappingNode, Node, ScalarNode, SequenceNode, read_yaml
from moldau.pipelines.spec import (
    BackendSink,
    Connector,
    Pipeline,
    Place,
    Sink,
    Source,
    Step,
    TextMap,
    TopicSink,
    TopicSource,
)

_CONNECTORS: Final[tuple[Connector, ...]] = ("moldau", "kafka")
_SYNONYMS: Final = {
    "variables": "vars", "bootstrap_servers": "bootstrap", "bootstrap.servers": "bootstrap", "brokers": "bootstrap",
    "command-config": "command_config", "properties": "command_config",
    "source": "sources", "inputs": "sources", "transforms": "steps", "outputs": "sinks", "interval": "trigger",
}  # fmt: skip
_PIPELINE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_VIEW_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
_ADDRESS: Final = re.compile(r"(?:[0-9a-zA-Z._%-]*://)?(?:\[[0-9a-fA-F:.%]+\]|[0-9a-zA-Z._%-]+):(\d{1,5})")
RESERVED_WORDS: Final = {
    "and", "as", "by", "case", "cross", "except", "from", "full", "group", "having", "in", "inner", "intersect", "is",
    "join", "lateral", "left", "natural", "not", "null", "on", "or", "order", "outer", "right", "select", "stream",
    "table", "union", "using", "values", "where", "with",
}  # fmt: skip
"""Words that SQL reserves, and some that a person who reads SQL would not take for the name of a view."""


def load(
    path: str | Path,
    variables: Mapping[str, str] | None = None,
    bootstrap: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    check_files: bool = True,
    connects: bool = True,
) -> Pipeline:
    """Read a pipeline. `variables` are those of --set; `bootstrap` overrides the file's. With `check_files` off, files
    that sources read need not exist, as in a test that brings its own. With `connects` off, the pipeline has no
    settings of TLS and SASL, and their passwords need not be known."""
    file = Path(path)
    folder = file.absolute().parent
    root = read_yaml(str(path), _read_bytes(file))
    outside = Outside(os.environ if environ is None else environ, ValueFiles(folder), must_resolve_unused=connects)
    tree, problems = replace_variables(root if connects else without_connection(root), variables or {}, outside)
    section = Section(tree, "", Place(file=str(path), line=1, column=1), problems)
    pipeline = _PipelineReader(section, Folder(folder, check_files, connects)).pipeline(file, bootstrap)
    if problems:
        raise InvalidPipeline(problems)
    return pipeline


def _read_bytes(file: Path) -> bytes:
    try:
        if file.is_dir():
            inside = file / "pipeline.yaml"
            hint = f"did you mean {inside}?" if inside.is_file() else "give the YAML file of a pipeline"
            raise InvalidPipeline([Problem(f"{file} is a directory", None, hint)])
        return read_bytes(file, FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        hint = "'moldau pipeline init' writes one to begin with"
        raise InvalidPipeline([Problem(f"there is no pipeline file {file}", None, hint)]) from None
    except NotAFile:
        raise InvalidPipeline([Problem(f"{file} is not a file", None)]) from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidPipeline([Problem(f"{quoted(str(file))} cannot be read: {why}", None)]) from None


class _PipelineReader:
    """Reads the file section by section and adds what is wrong to `section.problems`."""

    def __init__(self, section: Section, folder: Folder) -> None:
        self.section = section
        self.folder = folder
        self.problems = section.problems
        self.views: dict[str, str] = {}
        """Names of the sources and steps read so far, by their lower-case form, because Spark ignores case."""

    def pipeline(self, file: Path, bootstrap: str | None) -> Pipeline:
        section = self.section
        name = self._name()
        connector = section.choice("connector", _CONNECTORS, "moldau")
        address, trigger = self._bootstrap(), section.trigger(has_real_time=connector == "kafka")
        kafka, address_of_file = read_connection(section, ValueFiles(self.folder.path))
        for wrong in _wrong_addresses(bootstrap or ""):
            self.problems.append(Problem(f"the bootstrap address {quoted(wrong.strip())} is not host:port", None))
        if not (bootstrap or address) and address_of_file is not None:
            self._check_address_of_file(address_of_file)
        sources = self._sources(connector)
        steps = self._steps(sources)
        pipeline = Pipeline(
            name=name,
            file=file.absolute(),
            bootstrap=bootstrap or address or address_of_file,
            kafka=kafka,
            spark=self._spark(),
            trigger=trigger,
            connector=connector,
            sources=sources,
            steps=steps,
            sinks=self._sinks(sources, steps, trigger),
            places={"": section.place, **dict(_places(section.entries))},
            key_places=dict(_key_places(section.entries)),
            texts=dict(_texts(section.entries)),
        )
        section.known_keys.add("vars")
        section.finish(_SYNONYMS)
        return pipeline

    def _name(self) -> str:
        name = self.section.required_text("name")
        if name and not _PIPELINE_NAME.fullmatch(name):
            message = f"{quoted(name)} cannot be the pipeline's name: use lowercase letters, digits, '.', '_' and '-'"
            self.section.refuse(message, self.section.value_place("name"))
        return name

    def _bootstrap(self) -> str | None:
        text = self.section.text("bootstrap")
        for address in _wrong_addresses(text or ""):
            self.section.refuse(f"{quoted(address)} is not host:port", self.section.value_place("bootstrap"))
        return text

    def _check_address_of_file(self, text: str) -> None:
        file = quoted(self.section.text(COMMAND_CONFIG) or "")
        for address in _wrong_addresses(text):
            message = f"{BOOTSTRAP} in {file}: {quoted(address.strip())} is not host:port"
            self.section.refuse(message, self.section.value_place(COMMAND_CONFIG))

    def _spark(self) -> Mapping[str, str]:
        settings = self.section.mapping("spark")
        inner = self.section.entries.values.get("spark")
        places = inner.keys if isinstance(inner, MappingNode) else {}
        for name in settings:
            if not name.startswith("spark."):
                message = f"{quoted(name)} is not a setting of Spark, did you mean 'spark.{name}'?"
                self.section.refuse(message, places[name])
        return settings

    def _add_view(self, name: str, place: Place) -> None:
        """Add a view; refuse a name that SQL cannot use, or that another view has."""
        if name.startswith("_"):
            self.section.refuse(f"{quoted(name)} cannot be a view: names that begin with _ are Moldau's", place)
        elif not _VIEW_NAME.fullmatch(name):
            better = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
            suggestion = f", did you mean '{better}'?" if _VIEW_NAME.fullmatch(better) else ""
            self.section.refuse(f"{quoted(name)} cannot be a view: use letters, digits and _{suggestion}", place)
        elif name.lower() in RESERVED_WORDS:
            self.section.refuse(f"{quoted(name)} cannot be a view: SQL reserves this word", place)
        elif (other := self.views.get(name.lower())) is not None:
            as_written = "" if other == name else f" (as {quoted(other)}: SQL ignores case)"
            self.section.refuse(f"the name {quoted(name)} is used twice{as_written}", place)
        self.views.setdefault(name.lower(), name)

    def _sources(self, connector: Connector) -> dict[str, Source]:
        if not self.section.has("sources"):
            self.section.refuse("missing key 'sources'")
        inner = self.section.section("sources")
        sources: dict[str, Source] = {}
        for name, value in inner.entries.values.items() if inner else ():
            assert inner is not None
            place = inner.entries.keys[name]
            self._add_view(name, place)
            if not isinstance(value, MappingNode):
                inner.refuse(f"{quoted(name)} must be a mapping with 'topic', 'file' or 'table'", place)
                continue
            source = read_source(name, Section(value, f"source '{name}'", place, self.problems), self.folder, connector)
            if source is not None:
                sources[name] = source
        if inner and not inner.entries.values:
            self.section.refuse("there are no sources", self.section.key_place("sources"))
        return sources

    def _list_sections(self, key: str) -> Iterator[Section]:
        """Yield the mappings of a list such as `steps`. Messages call each by its name, or by its number."""
        node = self.section.node(key)
        if node is not None and not isinstance(node, SequenceNode):
            self.section.refuse(f"'{key}' must be a list: begin each with '- '", self.section.key_place(key))
            return
        kind = key.removesuffix("s")
        for number, value in enumerate(node.values if node else (), 1):
            if not isinstance(value, MappingNode):
                self.section.refuse(f"{kind} {number} must be a mapping", value.place)
                continue
            name = value.values.get("name")
            if isinstance(name, ScalarNode) and not name.empty:
                yield Section(value, f"{kind} {quoted(name.text)}", name.place, self.problems)
            else:
                yield Section(value, f"{kind} {number}", value.place, self.problems)

    def _steps(self, sources: Mapping[str, Source]) -> tuple[Step, ...]:
        sections = [(section, section.required_text("name")) for section in self._list_sections("steps")]
        node = self.section.entries.values.get("sources")
        above = list(node.values) if isinstance(node, MappingNode) else []
        names = {*above, *(name for _, name in sections)}
        watermarked = any(getattr(source, "watermark", None) for source in sources.values())
        steps = []
        for section, name in sections:
            if name:
                self._add_view(name, section.value_place("name"))
            watermarked = watermarked or section.has("watermark")
            if section.has("deduplicate") and not watermarked:
                hint = "such as  watermark: {column: ts, delay: 10 seconds}, here or on its source"
                section.refuse("'deduplicate' needs a watermark", section.key_place("deduplicate"), hint)
            step = read_step(name, section, self.folder, above, names)
            if step is not None:
                steps.append(step)
            above.append(name)
        return tuple(steps)

    def _sinks(self, sources: Mapping[str, Source], steps: Collection[Step], trigger: str | None) -> tuple[Sink, ...]:
        sinks: list[Sink] = []
        names: set[str] = set()
        if not self.section.has("sinks"):
            self.section.refuse("missing key 'sinks'")
        for section in self._list_sections("sinks"):
            sink = read_sink(section, self.folder, trigger)
            self._check_from(section)
            if sink is None:
                continue
            if sink.name.lower() in names:
                place = section.value_place("name") if section.has("name") else section.place
                hint = None if section.has("name") else "give each of them a 'name'"
                section.refuse(f"the name {quoted(sink.name)} is used twice", place, hint)
            names.add(sink.name.lower())
            self._refuse_name_of_dead_letters(section, sink, sources)
            self._refuse_loop(section, sink, sources)
            if isinstance(sink, BackendSink):
                check_dead_letter(section, sink, sources.values())
            check_sharing(section, sink, sinks)
            check_table(section, sink, sinks)
            sinks.append(sink)
        for name in sinks_by_query(sinks):
            if len(name) > QUERY_NAME_LENGTH_MAX:
                self.section.refuse(
                    f"the names of sinks that share a query are too long together: {len(name)} characters, at most"
                    f" {QUERY_NAME_LENGTH_MAX}",
                    self.section.key_place("sinks"),
                )
        node = self.section.entries.values.get("sinks")
        if isinstance(node, SequenceNode) and not node.values:
            self.section.refuse("there are no sinks", self.section.key_place("sinks"))
        return tuple(sinks)

    def _check_from(self, section: Section) -> None:
        view = section.entries.values.get("from")
        if not isinstance(view, ScalarNode) or view.empty or not view.text.strip() or not self.views:
            return
        if view.text in self.views.values():
            return
        suggestion = did_you_mean(view.text, self.views.values())
        hint = None if suggestion else f"there are: {', '.join(self.views.values())}"
        section.refuse(f"unknown view {quoted(view.text)}{suggestion}", view.place, hint)

    def _refuse_name_of_dead_letters(self, section: Section, sink: Sink, sources: Mapping[str, Source]) -> None:
        """Refuse the name that the query of a source's dead letters has: the checkpoint of both would be the same."""
        for source in sources.values():
            name = f"{source.name}{DEAD_LETTERS}"
            if isinstance(source, TopicSource) and source.dead_letter_topic and sink.name.lower() == name.lower():
                message = f"{quoted(sink.name)} is the query of the dead letters of source {quoted(source.name)}"
                section.refuse(f"{message}: choose another name", section.value_place("name"))

    def _refuse_loop(self, section: Section, sink: Sink, sources: Mapping[str, Source]) -> None:
        if not isinstance(sink, TopicSink) or sink.topic is None:
            return
        for source in sources.values():
            if isinstance(source, TopicSource) and source.is_on_cluster_of(sink) and source.reads(sink.topic):
                section.refuse(
                    f"it writes to {quoted(sink.topic)}, which source {quoted(source.name)} reads: "
                    "the pipeline would feed itself",
                    section.value_place("topic"),
                )


def _wrong_addresses(bootstrap: str) -> list[str]:
    """Return the addresses of a list that are not host:port. As in Kafka's client, a protocol may stand in front
    (`SASL_SSL://`), and empty ones beside others are ignored."""
    addresses = [address for address in bootstrap.split(",") if address.strip()] or [bootstrap] * bool(bootstrap)
    matches = {address: _ADDRESS.fullmatch(address.strip()) for address in addresses}
    return [address for address, match in matches.items() if match is None or not 0 < int(match[1]) <= PORT_MAX]


def _places(node: Node, path: str = "") -> Iterator[tuple[str, Place]]:
    """Yield the place of each value by its dotted path: a text's first character, the key of a mapping or list."""
    inner: Iterator[tuple[str, Node, Place]]
    if isinstance(node, ScalarNode):
        return
    if isinstance(node, SequenceNode):
        inner = ((str(number), value, value.place) for number, value in enumerate(node.values))
    else:
        inner = ((name, value, node.keys[name]) for name, value in node.values.items())
    for name, value, place in inner:
        yield path + name, value.place if isinstance(value, ScalarNode) else place
        yield from _places(value, f"{path}{name}.")


def _key_places(node: Node, path: str = "") -> Iterator[tuple[str, Place]]:
    """Yield the place of each key of a mapping by the dotted path of its value."""
    if isinstance(node, SequenceNode):
        for number, value in enumerate(node.values):
            yield from _key_places(value, f"{path}{number}.")
    elif isinstance(node, MappingNode):
        for name, value in node.values.items():
            yield path + name, node.keys[name]
            yield from _key_places(value, f"{path}{name}.")


def _texts(node: Node, path: str = "") -> Iterator[tuple[str, TextMap]]:
    if isinstance(node, ScalarNode):
        yield path[:-1], node.map
    elif isinstance(node, SequenceNode):
        for number, value in enumerate(node.values):
            yield from _texts(value, f"{path}{number}.")
    else:
        for name, value in node.values.items():
            yield from _texts(value, f"{path}{name}.")
