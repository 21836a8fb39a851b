"""The topic configs that make a topic a view of another topic. `views/definition.py` says what they mean."""

from __future__ import annotations

from typing import Final

from moldau.base.config_def import ConfigDef, ConfigType

VIEW_PREFIX: Final = "moldau.view."
VIEW_FROM: Final = "moldau.view.from"
VIEW_WHERE: Final = "moldau.view.where"
VIEW_SELECT: Final = "moldau.view.select"
VIEW_FORMAT: Final = "moldau.view.format"
VIEW_KEY: Final = "moldau.view.key"
VIEW_HEADERS: Final = "moldau.view.headers"
VIEW_ON_ERROR: Final = "moldau.view.on.error"
VIEW_SOURCE_ID: Final = "moldau.view.source.id"
"""The source's id, set by the controller: if the source is deleted and another topic gets its name, the view does not
show that one."""
VIEW_MADE_BY: Final = "moldau.view.made.by"
"""The program that made the view unasked; if the view is deleted, that program makes it again."""
VIEW_MADE_BY_LENGTH_MAX: Final = 200

_DOCUMENTATION: Final = {
    VIEW_FROM: "The topic that this view shows.",
    VIEW_WHERE: "Which records the view shows.",
    VIEW_SELECT: "Which fields the values have.",
    VIEW_FORMAT: "How values are read: json, or csv(name, …).",
    VIEW_KEY: "What becomes of keys: keep, sha256 or null.",
    VIEW_HEADERS: "What becomes of headers: keep or drop.",
    VIEW_ON_ERROR: "What becomes of a record that cannot be read: skip (leave it out) or pass (show it unchanged).",
    VIEW_SOURCE_ID: "The id of the source topic.",
    VIEW_MADE_BY: "The program that made the view by itself.",
}
VIEW_CONFIGS: Final[tuple[ConfigDef, ...]] = tuple(
    ConfigDef(name, ConfigType.STRING, None, documentation=documentation, internal=True)
    for name, documentation in _DOCUMENTATION.items()
)
"""DescribeConfigs shows these only if they are set."""

VIEW_STATISTICS: Final = {
    "seen": ConfigDef("moldau.view.count.seen", ConfigType.LONG, 0, documentation="Records evaluated.", internal=True),
    "shown": ConfigDef("moldau.view.count.shown", ConfigType.LONG, 0, documentation="Records shown.", internal=True),
    "unreadable": ConfigDef(
        "moldau.view.count.unreadable",
        ConfigType.LONG,
        0,
        documentation="Values that could not be read.",
        internal=True,
    ),
    "skipped_runs": ConfigDef(
        "moldau.view.count.skipped",
        ConfigType.LONG,
        0,
        documentation="Stretches of the log that were not read, because the index excludes a match.",
        internal=True,
    ),
    "failures": ConfigDef(
        "moldau.view.count.failures", ConfigType.LONG, 0, documentation="Evaluations that failed.", internal=True
    ),
    "last_failure": ConfigDef(
        "moldau.view.last.failure",
        ConfigType.STRING,
        "",
        documentation="Why the last evaluation failed.",
        internal=True,
    ),
}
"""What the answering broker has evaluated of a view, since it started or somebody first read the view there, by the
attribute of `replica/view_counts.ViewCounts`. Brokers show these like configs, so that every admin client can ask;
nobody can set them."""
