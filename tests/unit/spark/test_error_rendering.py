"""How IPython shows an exception: a short message first, the traceback on request."""

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


def test_an_error_is_shown_short_first_and_with_its_traceback_later() -> None:
    error = raised()
    show = Rendering(error, "There is no topic nope")
    assert show() == [
        "Refused: There is no topic nope",
        'in line 16: raise Refused("long, with a plan")',
        HINT,
    ]
    assert "Traceback (most recent call last)" in "".join(show())
    assert "long, with a plan" in "".join(show())


def test_an_error_that_was_not_raised_has_no_line() -> None:
    assert Rendering(Refused(), "Nothing works")() == ["Refused: Nothing works", HINT]


def test_ipython_shows_the_short_form_and_tb_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
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
