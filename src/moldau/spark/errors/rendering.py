"""How IPython and Jupyter show an exception: the sentence, the line of the cell, and a hint for the whole trace."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any, Final

_PACKAGES: Final = ("pyspark", "py4j", "moldau")
HINT: Final = "(%tb shows the whole trace)"


class Rendering:
    """IPython calls `_render_traceback_` of an exception: the first call is brief, the next (%tb) shows everything."""

    def __init__(self, error: BaseException, sentence: str) -> None:
        self._error, self._sentence = error, sentence
        self._is_shown = False

    def __call__(self) -> list[str]:
        if self._is_shown:
            return whole(self._error)
        self._is_shown = True
        return brief(self._error, self._sentence)


def brief(error: BaseException, sentence: str) -> list[str]:
    place = _place(error)
    return [f"{type(error).__name__}: {sentence}", *([place] if place else []), HINT]


def _place(error: BaseException) -> str | None:
    """Return the innermost line outside of these packages: that of the user."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_of_package(frame.filename)]
    return f"in line {own[-1].lineno}: {own[-1].line}" if own and own[-1].line else None


def _is_of_package(filename: str) -> bool:
    return any(part in _PACKAGES for part in Path(filename).parts)


def whole(error: BaseException) -> list[str]:
    shell = _shell()
    if shell is None:
        return traceback.format_exception(error)
    lines: list[str] = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
    return lines


def _shell() -> Any:
    """Return the IPython shell of this process, or None if this is not IPython."""
    module: Any = sys.modules.get("IPython")
    return module.get_ipython() if module else None
