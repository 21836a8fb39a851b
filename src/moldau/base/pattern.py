"""Regular expressions sent by clients. RE2 matches them: its time is linear in the length of the name, whatever the
pattern, and the memory of a pattern and of its matching is limited. Python's `re` has no such limits, so it never
replaces RE2: where google-re2 is not installed, patterns are refused with an explanation.
"""

from __future__ import annotations

from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError

PATTERN_MEMORY_BYTES_MAX: Final = 1 << 15
"""The memory limit of a compiled pattern and its matching states, enough for 2,600 plain characters. The slowest
pattern found takes 1.5 µs for a character, 0.4 ms for the longest name of a topic; an ordinary one 5 µs for a name."""


WITHOUT_RE2: Final = (
    "this broker cannot match patterns, because google-re2 is not installed (it has no wheel for Python 3.15 yet);"
    " name the topics or ids one by one, or run the broker on Python 3.14 or older"
)


def compile_pattern(pattern: str) -> Any:
    """Return the RE2 pattern; use its `fullmatch`. Raise KafkaError if `pattern` is not a valid expression."""
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
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is not a regular expression: {text}"
        ) from error
