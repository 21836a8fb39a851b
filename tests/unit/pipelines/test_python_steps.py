"""How the module of a Python step is found and loaded, and its errors. tests/spark calls steps with real DataFrames."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from moldau.pipelines.planning.python_steps import FailedStep, call, load
from moldau.pipelines.spec import Place, PythonStep

PLACE = Place(file="p.yaml", line=1, column=1)


def step(function: str = "loud", module: str = "detect", **args: object) -> PythonStep:
    return PythonStep(name="s", place=PLACE, module=module, function=function, inputs=(), args=args)


def test_two_pipelines_may_have_modules_of_the_same_name(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "detect.py").write_text(f"NAME = {name!r}\n")
    one, two = load("detect", tmp_path / "one"), load("detect", tmp_path / "two")
    assert (one.NAME, two.NAME) == ("one", "two")
    assert "detect" not in sys.modules


def test_an_edited_module_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "detect.py"
    file.write_text("N = 1\n")
    assert load("detect", tmp_path).N == 1
    file.write_text("N = 1 + 41\n")
    assert load("detect", tmp_path).N == 42


def test_a_module_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "moldau_test_neighbour.py").write_text("N = 7\n")
    (tmp_path / "detect.py").write_text("from moldau_test_neighbour import N\n")
    path = list(sys.path)
    assert load("detect", tmp_path).N == 7
    assert sys.path == path
    assert "moldau_test_neighbour" not in sys.modules


@pytest.mark.parametrize(
    ("code", "step", "message"),
    [
        ("", step(module="missing"), "there is no file {folder}/missing.py"),
        ("def loudd(): ...", step(), "{folder}/detect.py has no function loud, did you mean 'loudd'?"),
        ("def loud(:\n", step(), "{folder}/detect.py:1: invalid syntax"),
        (
            "x = 1\nimport no_such_module_of_mine\n",
            step(),
            "{folder}/detect.py:2: ModuleNotFoundError: No module",
        ),
        ("def loud(n):\n    return 1 / n\n", step(n=0), "{folder}/detect.py:2: ZeroDivisionError: division by zero"),
        ("def loud(n): ...", step(m=0), "TypeError: loud() got an unexpected keyword argument 'm'"),
        ("def loud(): return 5", step(), "detect:loud returned int, not a DataFrame"),
    ],
)
def test_errors_have_file_and_line(tmp_path: Path, code: str, step: PythonStep, message: str) -> None:
    (tmp_path / "detect.py").write_text(code)
    with pytest.raises(FailedStep) as failed:
        call(step, tmp_path, [])
    assert str(failed.value).startswith(message.format(folder=tmp_path))


def test_imported_modules_are_read_again_and_are_not_those_of_another_pipeline(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "step.py").write_text("from beside import answer\nimport beside\n")
        (folder / "beside.py").write_text(f"def answer(): return '{folder.name}'\n")
    first, second = load("step", one), load("step", other)
    assert (first.answer(), second.answer(), first.beside.answer()) == ("one", "other", "one")
    (one / "beside.py").write_text("def answer(): return 'edited'\n")
    assert load("step", one, reread=False).answer() == "one", "a run that continues keeps the loaded module"
    assert load("step", one).answer() == "edited"
    assert cloudpickle.loads(cloudpickle.dumps(second.answer))() == "other"
    assert cloudpickle.loads(cloudpickle.dumps(lambda: second.beside.answer()))() == "other"
