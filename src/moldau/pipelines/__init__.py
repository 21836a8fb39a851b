"""Data pipelines: one YAML file with SQL in it, from topics to topics and lake tables, run on Spark.

Inside: spec (what a pipeline is), reading (a file becomes a spec, or a list of problems that point at words), drawing
(the flow as a picture), planning and running (the flow as Spark queries), cases (its tests), workbench (a Spark that
keeps running while somebody edits a pipeline).
It may import `spark`, `client`, `prometheus`, `platforms`, `base` and `wire`, never the broker; reading and drawing a
pipeline needs neither Spark nor Java. Begin with `spec`, then `reading/loading` and `running/run`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.pipelines.workbench.notebook import LoadedPipeline


def load(file: str | os.PathLike[str], bootstrap: str | None = None, **variables: str) -> LoadedPipeline:
    """Load a pipeline in a notebook: `moldau.pipelines.load("pipeline.yaml").preview("enriched")` is a DataFrame.

    `bootstrap` overrides the address in the file, `variables` override its vars. Raises InvalidPipeline, which names
    the line of each mistake.
    """
    from moldau.pipelines.workbench.notebook import LoadedPipeline

    return LoadedPipeline(file, bootstrap, variables)
