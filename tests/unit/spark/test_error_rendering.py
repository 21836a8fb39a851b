"""An exception as IPython shows it, and when it goes through IPython itself."""

from __future__ import annotations

import pytest

from moldau.spark.errors.rendering import HINT, Rendering


class Refused(Exception):
    pass


def raised() -> Refused:
    try:
        raise Refused("long, with a plan")
    except Refused as error:
        return error


def test_first_the_sentence_and_the_line_then_everything() -> None:
    error = raised()
    show = Rendering(error, "There is no topic nope")
    assert show() == [
        "Refused: There is no topic nope",
        'in line 16: raise Refused("long, with a plan")',
        HINT,
    ]
    assert "Traceback (most recent call last)" in "".join(show())
    assert "long, with a plan" in "".join(show())


def test_an_error_from_nowhere_has_no_line() -> None:
    assert Rendering(Refused(), "Nothing works")() == ["Refused: Nothing works", HINT]


def test_ipython_asks_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    shells = pytest.importorskip("IPython.core.interactiveshell")
    shell = shells.InteractiveShell.instance()
    shell.run_cell(
        "from moldau.spark.errors.rendering import Rendering\n"
        "error = KeyError('the plan')\n"
        "error._render_traceback_ = Rendering(error, 'There is no topic nope')\n"
        "raise error\n"
    )
    assert capsys.readouterr().out.splitlines() == ["KeyError: There is no topic nope", "in line 4: raise error", HINT]
    shell.run_cell("%tb")
    assert "the plan" in capsys.readouterr().out
