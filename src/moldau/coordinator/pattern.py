"""Regular expressions from outside. They are RE2's: matching takes time in proportion to the name, whatever the
pattern, and both a pattern and its matching have a limit in memory. Python's own `re` has no such limits and never
takes RE2's place: where google-re2 is not installed, patterns are refused in words.
"""

from __future__ import annotations

from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError

PATTERN_MEMORY_BYTES_MAX: Final = 1 << 15
"""What a compiled pattern and the states of matching it may take. It is enough for 2,600 plain characters. A bad one
that fits takes under a millisecond for the longest name there can be; an ordinary one takes 5 µs."""

WITHOUT_RE2: Final = (
    "this broker cannot match patterns, because google-re2 is not installed (it has no wheel for Python 3.15 yet);"
    " name the topics or ids one by one, or run the broker on Python 3.14 or older"
)


def compiled(pattern: str) -> Any:
    """KafkaError if it is none. It has to match the whole of a name."""
    try:
        import re2
    except ModuleNotFoundError as missing:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r}: {WITHOUT_RE2}") from missing
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error as wrong:
        reason = wrong.args[0] if wrong.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is not a regular expression: {text}"
        ) from wrong
