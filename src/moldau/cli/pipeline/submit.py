"""`moldau pipeline run --deploy-mode cluster`: what is sent with a pipeline to the driver in the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.cli.connect import CommandFailed
from moldau.cli.pipeline.files import Chosen

if TYPE_CHECKING:
    from moldau.pipelines.spec import Pipeline


def submit_pipeline(chosen: Chosen, master: str | None, conf: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Submit and return the exit status of spark-submit; CommandFailed if it cannot be submitted."""
    from moldau.spark.submit import CannotSubmit, Submission, submit

    if master is None:
        raise CommandFailed("--deploy-mode cluster needs --master: yarn, or k8s://host:port")
    if chosen.state is None:
        raise CommandFailed(
            "--deploy-mode cluster needs --state DIR on storage that the driver sees wherever it runs:"
            " the checkpoints of a driver's own disk are gone with it"
        )
    pipeline = chosen.unconnected  # the driver in the cluster reads the passwords
    submission = Submission(
        master=master,
        name=pipeline.name,
        pipeline=pipeline.file,
        conf={**pipeline.spark, **conf},
        modules=sorted(_modules(pipeline)),
        files=sorted(set(_files(pipeline))),
        words=[*arguments, *_changes(chosen), "--state", str(chosen.state.absolute())],
    )
    try:
        return submit(submission)
    except CannotSubmit as error:
        raise CommandFailed(str(error)) from error


def _changes(chosen: Chosen) -> Iterator[str]:
    for key, value in chosen.settings.items():
        yield from ("--set", f"{key}={value}")
    if chosen.bootstrap:
        yield from ("-b", chosen.bootstrap)


def _modules(pipeline: Pipeline) -> set[Path]:
    from moldau.pipelines.spec import BackendSink, BackendSource, PythonStep

    folder = pipeline.file.parent
    modules = {step.module for step in pipeline.steps if isinstance(step, PythonStep)}
    modules |= {source.user_class[0] for source in pipeline.sources.values() if isinstance(source, BackendSource)}
    modules |= {sink.user_class[0] for sink in pipeline.sinks if isinstance(sink, BackendSink) and sink.user_class}
    return {folder / f"{module}.py" for module in modules}


def _files(pipeline: Pipeline) -> Iterator[Path]:
    """Yield schemas, and data files beside the pipeline's file; other data has to be visible to the whole cluster."""
    from moldau.pipelines.spec import FileSource, TopicSink, TopicSource

    for source in pipeline.sources.values():
        if isinstance(source, TopicSource | FileSource) and source.schema_file:
            yield source.schema_file
        if isinstance(source, FileSource) and Path(source.path).parent == pipeline.file.parent:
            yield Path(source.path)
    for sink in pipeline.sinks:
        if isinstance(sink, TopicSink) and sink.schema_file:
            yield sink.schema_file
