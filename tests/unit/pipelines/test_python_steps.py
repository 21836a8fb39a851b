"""How the module of a Python step is found and loaded, and its errors. tests/spark calls steps with real DataFrames."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from moldau.pipelines.planning.python_steps import PythonStepError, call_step, load
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
        ("def loud(limit): ...", step(limt=0), "loud() has no argument limt, did you mean 'limit'?"),
        ("def loud(n): ...", step(), "TypeError: loud() missing 1 required positional argument: 'n'"),
        ("def loud(**more): return 5", step(m=0), "detect:loud returned int, not a DataFrame"),
        ("loud = dict", step(m=0), "detect:loud returned dict, not a DataFrame"),
        ("def loud(): return 5", step(), "detect:loud returned int, not a DataFrame"),
    ],
)
def test_errors_have_file_and_line(tmp_path: Path, code: str, step: PythonStep, message: str) -> None:
    (tmp_path / "detect.py").write_text(code)
    with pytest.raises(PythonStepError) as failed:
        call_step(step, tmp_path, [])
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
    assert load("step", one, reload=False).answer() == "one", "a run that continues keeps the loaded module"
    assert load("step", one).answer() == "edited"
    assert cloudpickle.loads(cloudpickle.dumps(second.answer))() == "other"
    assert cloudpickle.loads(cloudpickle.dumps(lambda: second.beside.answer()))() == "other"


class TestModulesInSubfolders:
    def test_an_error_has_file_and_line(self, tmp_path: Path) -> None:
        (tmp_path / "steps").mkdir()
        (tmp_path / "steps" / "detect.py").write_text("def loud():\n    return 1 / 0\n")
        with pytest.raises(PythonStepError) as failed:
            call_step(step(module="steps.detect"), tmp_path, [])
        assert str(failed.value) == f"{tmp_path}/steps/detect.py:2: ZeroDivisionError: division by zero"

    def test_an_error_in_an_imported_module_has_file_and_line(self, tmp_path: Path) -> None:
        (tmp_path / "common").mkdir()
        (tmp_path / "common" / "dividing.py").write_text("def by_zero():\n    return 1 / 0\n")
        (tmp_path / "detect.py").write_text("from common.dividing import by_zero\ndef loud():\n    return by_zero()\n")
        with pytest.raises(PythonStepError) as failed:
            call_step(step(), tmp_path, [])
        assert str(failed.value) == f"{tmp_path}/common/dividing.py:2: ZeroDivisionError: division by zero"

    def test_the_step_is_pickled_by_value(self, tmp_path: Path) -> None:
        (tmp_path / "steps").mkdir()
        (tmp_path / "steps" / "detect.py").write_text("def answer(): return 42\n")
        module = load("steps.detect", tmp_path)
        pickled = cloudpickle.dumps(module.answer)
        del sys.modules[module.__name__]
        assert cloudpickle.loads(pickled)() == 42, "an executor does not have the module"

    @pytest.mark.parametrize("is_package", [False, True])
    def test_imported_modules_are_pickled_by_value_and_not_shared(self, tmp_path: Path, is_package: bool) -> None:
        loaded = []
        for name in ("one", "other"):
            folder = tmp_path / name
            (folder / "common").mkdir(parents=True)
            if is_package:
                (folder / "common" / "__init__.py").write_text("")
            (folder / "common" / "answers.py").write_text(f"def answer(): return {name!r}\n")
            (folder / "step.py").write_text("from common import answers\nfrom common.answers import answer\n")
            loaded.append(load("step", folder))
        assert [module.answer() for module in loaded] == ["one", "other"]
        assert [module.answers.answer() for module in loaded] == ["one", "other"]
        assert not {"common", "common.answers"} & set(sys.modules)
        assert [cloudpickle.loads(cloudpickle.dumps(module.answer))() for module in loaded] == ["one", "other"]

    def test_installed_packages_below_the_folder_stay_imported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A virtual environment is often a subfolder of the project."""
        site = tmp_path / ".venv" / "site-packages"
        (site / "moldau_test_installed").mkdir(parents=True)
        (site / "moldau_test_installed" / "__init__.py").write_text("def fail(): return 1 / 0\n")
        monkeypatch.syspath_prepend(site)
        (tmp_path / "detect.py").write_text("import moldau_test_installed as m\n\ndef loud():\n    m.fail()\n")
        with pytest.raises(PythonStepError) as failed:
            call_step(step(), tmp_path, [])
        assert str(failed.value).startswith(f"{tmp_path}/detect.py:4: "), "the line of the user's own code"
        assert sys.modules.pop("moldau_test_installed")


def test_a_module_whose_import_failed_is_loaded_again(tmp_path: Path) -> None:
    file = tmp_path / "detect.py"
    file.write_text("N = 1\nraise ValueError\n")
    with pytest.raises(PythonStepError):
        load("detect", tmp_path)
    assert not [module for module in sys.modules.values() if getattr(module, "__file__", None) == str(file)]
    file.write_text("N = 1 + 41\n")
    assert load("detect", tmp_path, reload=False).N == 42


def test_the_program_that_loads_a_step_stays_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script beside the pipeline's file is `__main__`: pickle and multiprocessing look it up."""
    program = sys.modules["__main__"]
    monkeypatch.setattr(program, "__file__", str(tmp_path / "script.py"), raising=False)
    (tmp_path / "detect.py").write_text("")
    load("detect", tmp_path)
    assert sys.modules.get("__main__") is program
