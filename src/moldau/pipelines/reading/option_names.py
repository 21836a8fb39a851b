"""Finds misspelt names under `options:`, because Spark accepts any name silently.

Spark has more options than this list, and packages add others. So only an unknown name that is similar to a known one
is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from moldau.pipelines.problems import did_you_mean
from moldau.pipelines.reading.positions import MappingNode
from moldau.pipelines.reading.sections import Section
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
CONSOLE: Final = frozenset(["rows", "numRows", "truncate"])


def read_options(section: Section, known: Collection[str]) -> Mapping[str, str]:
    """Return the options of a source or sink as they are in the file; refuse misspelt names."""
    section.option_names = frozenset(known)
    options = section.mapping("options")
    node = section.node("options")
    lower = {name.lower() for name in known}
    for name in options:
        suggestion = "" if name.lower() in lower or name.lower().startswith("kafka.") else did_you_mean(name, known)
        if suggestion and isinstance(node, MappingNode):
            section.refuse(f"there is no option '{name}'{suggestion}", node.keys[name])
    return options
