"""The sinks of a pipeline file that are backends: `backend: http` and its like, or `backend: module:Class`.

Which parts, options and defaults a named backend has is in `moldau.backends.catalog`. The module of a class is parsed
here, never imported.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, get_args

from moldau.backends.catalog import BATCH_ROWS_MAX, KINDS, OF_USER, PARALLEL_MAX, TASKS_MAX, Kind
from moldau.backends.delivery import Delivery, GiveUpAs
from moldau.backends.http_message import header_line
from moldau.backends.interface import Refused
from moldau.backends.options import Options
from moldau.pipelines.problems import did_you_mean, quoted
from moldau.pipelines.reading.paths import Folder, read_path
from moldau.pipelines.reading.sections import Section
from moldau.pipelines.reading.steps import function_problem, module_problem, read_args
from moldau.pipelines.reading.times import duration_ms
from moldau.pipelines.reading.yaml_tree import MappingNode
from moldau.pipelines.spec import DROP, FAIL, BackendSink, BackendSource, Source, TopicMode, TopicSource

KEYS: Final = (
    "url", "key", "headers", "args", "rate", "batch_rows", "parallel", "tasks", "retries", "retry_for", "timeout",
    "give_up", "dead_letter",
)  # fmt: skip
PARTS: Final = tuple(dict.fromkeys(part for kind in KINDS.values() for part in kind.parts))
RETRIES_MAX: Final = 1_000
_MODES: Final[tuple[TopicMode, ...]] = get_args(TopicMode)
_GIVE_UP: Final[tuple[GiveUpAs, ...]] = get_args(GiveUpAs)
_CLASS: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)", re.ASCII)


def target_name(section: Section) -> str:
    """Return the last part of the sink's default name."""
    return (section.text("backend") or "backend").rpartition(":")[2]


def read_backend(section: Section, name: str, view: str, folder: Folder, trigger: str | None) -> BackendSink:
    backend = section.text("backend") or ""
    kind = KINDS.get(backend)
    if kind is None:
        _check_class(section, backend, folder)
    sink = BackendSink(
        name=name,
        place=section.place,
        view=view,
        backend=backend,
        url=_url(section, kind, folder),
        key=section.text("key"),
        parts=_parts(section, kind),
        headers=_headers(section, kind),
        args=_args(section, kind),
        delivery=_delivery(section, kind),
        dead_letter=_dead_letter(section, name),
        mode=section.choice("mode", _MODES, "append", " of a backend"),
        trigger=trigger,
        shares_query_of=section.text("with"),
        options=_options(section, kind),
    )
    if kind is not None and folder.connects:
        _check_settings(section, kind, sink)
    return sink


def read_backend_source(name: str, section: Section, folder: Folder) -> BackendSource:
    """Read a source that is a class. The caller checks what it shares with other streams."""
    backend = section.text("backend") or ""
    if _CLASS.fullmatch(backend) or not backend:
        _check_class(section, backend, folder)
    else:
        section.refuse(f"{quoted(backend)} is not module:Class", section.value_place("backend"))
    if not section.has("schema") and not section.has("schema_file"):
        section.refuse("missing key 'schema'", hint="such as  schema: id string, name string")
    return BackendSource(
        name=name,
        place=section.place,
        backend=backend,
        args=read_args(section),
        schema=section.text("schema"),
        schema_file=read_path(section, "schema_file", folder),
        max_per_trigger=section.count("max_per_trigger"),
        watermark=section.watermark(),
        deduplicate=section.texts("deduplicate"),
    )


def check_dead_letter(section: Section, sink: BackendSink, sources: Collection[Source]) -> None:
    """Refuse a topic of dead letters that the pipeline reads."""
    topic = sink.dead_letter_topic
    for source in sources:
        if topic is not None and isinstance(source, TopicSource) and source.reads(topic):
            message = f"its dead letters go to {quoted(topic)}, which source {quoted(source.name)} reads"
            section.refuse(f"{message}: the pipeline would feed itself", section.value_place("dead_letter"))


def _check_class(section: Section, backend: str, folder: Folder) -> None:
    place = section.value_place("backend")
    match = _CLASS.fullmatch(backend)
    if match is None:
        if backend:
            hint = f"there are: {', '.join(KINDS)}, or module:Class for one of your own"
            suggestion = did_you_mean(backend, KINDS)
            section.refuse(f"there is no backend {quoted(backend)}{suggestion}", place, None if suggestion else hint)
        return
    if folder.files_must_exist:
        module, class_name = match.groups()
        problem = module_problem(module, folder.path) or function_problem(module, class_name, folder.path, "class")
        if problem is not None:
            section.refuse(problem, place)


def _url(section: Section, kind: Kind | None, folder: Folder) -> str:
    if kind is None:
        section.refuse_keys(("url",), lambda key: f"'{key}' is not for a class: give it under 'args'")
        return ""
    if not section.has("url") and folder.connects:
        section.refuse("missing key 'url': where is the backend?")
    written = section.text("url") or ""
    return folder.resolve(written) if kind.url_may_be_path else written


def _parts(section: Section, kind: Kind | None) -> Mapping[str, str]:
    if kind is None:
        section.refuse_keys(PARTS, lambda key: f"'{key}' is not for a class, which gets all columns of the view")
        return {}
    section.refuse_keys(
        (part for part in PARTS if part not in kind.parts), lambda key: f"'{key}' is not for {kind.title}"
    )
    for part in kind.required:
        if not section.has(part):
            section.refuse(f"missing key '{part}', an SQL expression")
    return {part: text for part in kind.parts if (text := section.text(part)) is not None}


def _headers(section: Section, kind: Kind | None) -> Mapping[str, str]:
    if kind is None or not kind.takes_headers:
        section.refuse_keys(("headers",), lambda key: f"'{key}' is not for this backend")
        return {}
    headers = section.mapping("headers")
    node = section.node("headers")
    for name in headers:
        try:
            header_line(name, "")
        except Refused as error:
            assert isinstance(node, MappingNode), "the headers come from it"
            section.refuse(str(error), node.keys[name])
    return headers


def _args(section: Section, kind: Kind | None) -> Mapping[str, object]:
    if kind is None:
        return read_args(section)
    section.refuse_keys(("args",), lambda key: f"'{key}' is for a class: settings of {kind.title} are under 'options'")
    return {}


def _options(section: Section, kind: Kind | None) -> Mapping[str, str]:
    if kind is None:
        section.refuse_keys(("options",), lambda key: f"'{key}' is not for a class: give it under 'args'")
        return {}
    options = section.mapping("options")
    node = section.node("options")
    section.option_names = kind.options
    for name in options:
        if not kind.is_option(name):
            assert isinstance(node, MappingNode), "the options come from it"
            suggestion = did_you_mean(name, kind.options)
            hint = None if suggestion else f"there are: {', '.join(sorted(kind.options))}"
            section.refuse(f"there is no option '{name}'{suggestion}", node.keys[name], hint)
    return options


def _delivery(section: Section, kind: Kind | None) -> Delivery:
    default = OF_USER if kind is None else kind.defaults
    if kind is not None and not kind.takes_batches:
        section.refuse_keys(("batch_rows",), lambda key: f"'{key}' is not for {kind.title}, which takes row by row")
    retry_for_s = _seconds(section, "retry_for")
    if section.has("give_up") and retry_for_s is None:
        section.refuse("'give_up' says what happens after 'retry_for': give both", section.key_place("give_up"))
    return replace(
        default,
        rate=_rate(section),
        batch_rows=section.count("batch_rows", BATCH_ROWS_MAX) or default.batch_rows,
        parallel=section.count("parallel", PARALLEL_MAX) or default.parallel,
        tasks=section.count("tasks", TASKS_MAX) or default.tasks,
        retries=_retries(section, default.retries),
        retry_for_s=retry_for_s,
        timeout_s=_seconds(section, "timeout") or default.timeout_s,
        give_up=section.choice("give_up", _GIVE_UP, default.give_up),
    )


def _rate(section: Section) -> float | None:
    value = section.scalar("rate", "a number of rows a second")
    if value is None:
        return None
    if not re.fullmatch(r"\d{1,9}(\.\d{1,6})?", value.text) or float(value.text) <= 0:
        section.refuse(f"'rate' must be a number of rows a second, not {quoted(value.text)}", value.place)
        return None
    return float(value.text)


def _retries(section: Section, default: int) -> int:
    value = section.scalar("retries", "a whole number")
    if value is None:
        return default
    if not re.fullmatch(r"\d{1,6}", value.text) or int(value.text) > RETRIES_MAX:
        section.refuse(f"'retries' must be a whole number from 0 to {RETRIES_MAX}", value.place)
        return default
    return int(value.text)


def _seconds(section: Section, key: str) -> float | None:
    value = section.duration(key)
    milliseconds = None if value is None else duration_ms(value)
    if milliseconds == 0:
        section.refuse(f"'{key}' must be longer than nothing", section.value_place(key))
    return None if not milliseconds else milliseconds / 1000


def _dead_letter(section: Section, name: str) -> str:
    value = section.scalar("dead_letter", f"a topic, {FAIL} or {DROP}")
    if value is None:
        return f"{name}.dead"
    return value.text if value.text in (FAIL, DROP) else section.topic_name(value)


def _check_settings(section: Section, kind: Kind, sink: BackendSink) -> None:
    try:
        kind.prepare(sink.url, Options(sink.options), sink.delivery)
    except ValueError as error:
        if sink.url:
            section.refuse(str(error), section.value_place("options" if "option" in str(error) else "url"))
