"""Refuses a renamed pipeline that would write everything again.

A pipeline's name selects its state directory. Under another name a run has no checkpoints, and would write once more
what it wrote under the old name. The state of the old name is still beside that of the new one: its status.json
names the file, and its identity.json what each query read and wrote. This module does not use Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from moldau.pipelines.running.identity import IDENTITY, QueryIdentity, WrongCheckpoint
from moldau.pipelines.running.state_directory import StateDirectory, StateRefused, read_json
from moldau.pipelines.spec import Pipeline

_LOOPBACK: Final = re.compile(r"^(?:127(?:\.\d+){3}|\[::1\])(?=:\d+$)")


class WrittenBefore(NamedTuple):
    """An output that the pipeline wrote under another name, and that a query without a checkpoint would write again."""

    query: str
    output: str
    """As in identity.json: "topic orders"."""
    former_name: str
    directory: StateDirectory
    """The state directory of the former name."""


def refuse_if_renamed(
    directory: StateDirectory,
    pipeline: Pipeline,
    queries: Mapping[str, QueryIdentity],
    forgotten: Collection[str] | None,
    shown_file: str,
) -> None:
    """Raise WrongCheckpoint if the queries would write again what the pipeline wrote under another name. Those that
    --fresh resets, `forgotten`, may do so; None for all."""
    if forgotten is None:
        return
    written = [one for one in written_before(directory, pipeline, queries) if one.query not in forgotten]
    if not written:
        return
    former_name, former = written[0].former_name, written[0].directory
    written = [one for one in written if one.directory is former]
    names = ", ".join(dict.fromkeys(one.query for one in written))
    outputs = ", ".join(dict.fromkeys(one.output for one in written))
    if former_name == pipeline.name:
        before = f"this pipeline ran before with its checkpoints in {former.path}; {directory.path} has none of {names}"
        remedy = f"run with --state {former.path}"
    else:
        before = (
            f"this pipeline was called {former_name} when it ran before (its checkpoints are in {former.path});"
            f" as {pipeline.name} it has none"
        )
        remedy = f"name it {former_name} again"
    raise WrongCheckpoint(
        f"{before}, so {names} would write everything again to {outputs};"
        f" {remedy}, or run `moldau pipeline run {shown_file} --fresh` to write everything once"
        " more; --existing clear empties the topics and makes new tables before"
    )


def written_before(
    directory: StateDirectory, pipeline: Pipeline, queries: Mapping[str, QueryIdentity]
) -> list[WrittenBefore]:
    """Return what the queries without a checkpoint in `directory` would write again."""
    without_checkpoint = {name: query for name, query in queries.items() if not directory.has_progress(name)}
    if not without_checkpoint:
        return []
    return [
        WrittenBefore(name, output, recorded.get("pipeline", former.path.name), former)
        for former, recorded in _former_identities(directory, pipeline)
        for name, query in without_checkpoint.items()
        for output in _outputs_in_common(former, recorded.get("queries", {}), query)
    ]


def _former_identities(
    directory: StateDirectory, pipeline: Pipeline
) -> Iterator[tuple[StateDirectory, Mapping[str, Any]]]:
    """Yield the state directories beside this one in which the same file ran with the same cluster, and their
    identity.json."""
    for path in _paths_beside(directory.path):
        other = StateDirectory(path)
        try:
            status, recorded = other.read_status(), read_json(path / IDENTITY)
        except (StateRefused, OSError):  # damaged, or of another user: it can neither be resumed nor compared
            continue
        if status is None or recorded is None or not _was_run_from(status.get("file"), pipeline.file):
            continue
        if may_be_same_cluster(status.get("bootstrap"), pipeline.bootstrap):
            yield other, recorded


def _paths_beside(path: Path) -> list[Path]:
    """Return the other directories in the same place; none if they cannot be listed."""
    try:
        return sorted(other for other in path.parent.iterdir() if other != path and os.path.isdir(other))
    except OSError:
        return []


def may_be_same_cluster(recorded: str | None, bootstrap: str | None) -> bool:
    """Return whether two lists of brokers have an address in common, or one list is not known. One file may serve
    several clusters: their topics only have the same names."""
    if recorded is None or bootstrap is None:
        return True
    return not _addresses(recorded).isdisjoint(_addresses(bootstrap))


def _addresses(bootstrap: str) -> set[str]:
    """Return the addresses of a list, without the protocols that may stand in front of them."""
    addresses = (broker.strip().lower().rpartition("://")[2] for broker in bootstrap.split(","))
    return {_LOOPBACK.sub("localhost", address) for address in addresses if address}


def _was_run_from(recorded_file: str | None, file: Path) -> bool:
    """Return whether this file was run, or a file that is gone and was probably renamed. The folder may have moved."""
    if recorded_file is None:
        return False
    path = Path(recorded_file)
    path = path if os.path.exists(path) else file.parent / path.name
    # Unlike Path.exists, this is False for a file in a folder of another user.
    return not os.path.exists(path) or path.samefile(file)


def _outputs_in_common(former: StateDirectory, recorded: Mapping[str, Any], query: QueryIdentity) -> list[str]:
    """Return what the query and a recorded one both write, if they have a source in common: then its records come
    again."""
    outputs: dict[str, None] = {}
    for name, before in recorded.items():
        read_before = set(chain.from_iterable(before.get("sources", {}).values()))
        if former.has_progress(name) and not read_before.isdisjoint(chain.from_iterable(query.sources.values())):
            outputs |= dict.fromkeys(output for output in query.writes if output in before.get("writes", ()))
    return list(outputs)
