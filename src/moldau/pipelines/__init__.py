"""Data pipelines: one YAML file with SQL in it, from topics to topics and lake tables, run on Spark.

Inside: spec (what a pipeline is), reading (a file becomes a spec, or a list of problems that point at words), drawing
(the flow as a picture), planning and running (the flow as Spark queries), cases (its tests), workbench (a Spark that
stays, for who works on one).
Nothing of the broker enters; reading and drawing a pipeline needs neither Spark nor Java.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.pipelines.workbench.notebook import LoadedPipeline


def load(file: str | os.PathLike[str], bootstrap: str | None = None, **variables: str) -> LoadedPipeline:
    """A pipeline for a notebook: `moldau.pipelines.load("pipeline.yaml").preview("enriched")` is a DataFrame.

    `bootstrap` goes before what the file says, `variables` before its vars. Raises InvalidPipeline, which tells each
    mistake with its line.
    """
    from moldau.pipelines.workbench.notebook import LoadedPipeline

    return LoadedPipeline(file, bootstrap, variables)
