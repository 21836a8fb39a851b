"""Finds misspelt names under `options:`, because Spark accepts any name silently.

Spark has more options than this list, and packages add others. So only an unknown name that is similar to a known one
is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from moldau.pipelines.problems import did_you_mean
from moldau.pipelines.reading.sections import Section
from moldau.pipelines.reading.yaml_tree import MappingNode
from moldau.pipelines.spec import Place
from moldau.spark.options import SINK_OPTIONS, SOURCE_OPTIONS

FORMATS: Final = frozenset(
    [
        "allowBackslashEscapingAnyCharacter",
        "allowComments",
        "allowNonNumericNumbers",
        "allowNumericLeadingZeros",
        "allowSingleQuotes",
        "allowUnquotedControlChars",
        "allowUnquotedFieldNames",
        "avroSchema",
        "avroSchemaUrl",
        "charset",
        "charToEscapeQuoteEscaping",
        "codec",
        "columnNameOfCorruptRecord",
        "comment",
        "compression",
        "dateFormat",
        "delimiter",
        "dropFieldIfAllNull",
        "emptyValue",
        "enableDateTimeParsingFallback",
        "enableStableIdentifiersForUnionType",
        "encoding",
        "enforceSchema",
        "escape",
        "escapeQuotes",
        "header",
        "ignoreExtension",
        "ignoreLeadingWhiteSpace",
        "ignoreNullFields",
        "ignoreTrailingWhiteSpace",
        "inferSchema",
        "lineSep",
        "locale",
        "maxCharsPerColumn",
        "maxColumns",
        "mode",
        "multiLine",
        "nanValue",
        "negativeInf",
        "nullValue",
        "positionalFieldMatching",
        "positiveInf",
        "preferDate",
        "prefersDecimal",
        "pretty",
        "primitivesAsString",
        "quote",
        "quoteAll",
        "recordName",
        "recordNamespace",
        "recursiveFieldMaxDepth",
        "samplingRatio",
        "sep",
        "singleVariantColumn",
        "timestampFormat",
        "timestampNTZFormat",
        "times",
        "timeZone",
        "unescapedQuoteHandling",
    ]
)
"""Options of Spark's JSON, CSV and Avro."""
FILES: Final = FORMATS | frozenset(
    [
        "cleanSource",
        "datetimeRebaseMode",
        "fileNameOnly",
        "ignoreCorruptFiles",
        "ignoreMissingFiles",
        "int96RebaseMode",
        "latestFirst",
        "maxBytesPerTrigger",
        "maxCachedFiles",
        "maxFileAge",
        "maxFilesPerTrigger",
        "mergeSchema",
        "modifiedAfter",
        "modifiedBefore",
        "pathGlobFilter",
        "recursiveFileLookup",
        "sourceArchiveDir",
        "wholetext",
    ]
)
TOPICS_READ: Final = SOURCE_OPTIONS | FORMATS
TOPICS_WRITTEN: Final = SINK_OPTIONS | FORMATS
TABLES: Final = frozenset(["order_by"])
DATABASES: Final = frozenset(["add_columns", "order_by"])
CONSOLE: Final = frozenset(["rows", "numRows", "truncate"])


def option_place(section: Section, name: str) -> Place:
    """Return the place of an option that the section has, however its name is written."""
    node = section.node("options")
    assert isinstance(node, MappingNode), "it has the option"
    return next(place for written, place in node.keys.items() if written.lower() == name.lower())


def read_options(section: Section, known: Collection[str]) -> Mapping[str, str]:
    """Return the options of a source or sink; refuse misspelt names. As in Spark, case does not matter: a known option
    is returned with the name in `known`."""
    section.option_names = frozenset(known)
    node = section.node("options")
    by_lower = {name.lower(): name for name in known}
    options: dict[str, str] = {}
    for written, value in section.mapping("options").items():
        name = by_lower.get(written.lower(), written)
        is_known = name in known or name.lower().startswith("kafka.")
        suggestion = "" if is_known else did_you_mean(name, known)
        assert isinstance(node, MappingNode), "the options come from it"
        if suggestion:
            section.refuse(f"there is no option '{name}'{suggestion}", node.keys[written])
        if name in options:
            section.refuse(f"the option '{name}' is given twice", node.keys[written])
        options[name] = value
    return options
