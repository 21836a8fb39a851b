"""Calls Python steps: a function of a module in the pipeline's folder, with DataFrames and the step's arguments.

The folder is that of the pipeline's file; a module `a.b` is its file `a/b.py`. A step's module is loaded under a unique
name, so that two pipelines may both have a `detect.py`. Spark pickles the definitions of all modules in the folder by
value, because executors do not have these files. Errors have the file and line of the user's code.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from moldau.pipelines.planning.sql_errors import SPARK_ERRORS, message_of
from moldau.pipelines.problems import did_you_mean
from moldau.pipelines.spec import PythonStep

MODULE_NAME_PREFIX = "_moldau_pipeline_"
"""Prefix of the unique names of step modules in `sys.modules`."""


class PythonStepError(ValueError):
    """A Python step cannot be loaded or called. The message is one line, with file and line of the user's code."""


class UnknownArgument(PythonStepError):
    """The step's `args` have a name that its function does not accept."""

    def __init__(self, argument: str, function: str, parameters: Iterable[str]) -> None:
        super().__init__(f"{function}() has no argument {argument}{did_you_mean(argument, parameters)}")
        self.argument = argument


def call_step(step: PythonStep, folder: Path, inputs: Sequence[DataFrame], *, reload: bool = True) -> DataFrame:
    """Call the step's function with the DataFrames of its inputs and return its result. Raises PythonStepError."""
    module = load(step.module, folder, reload=reload)
    function = getattr(module, step.function, None)
    if not callable(function):
        suggestion = did_you_mean(step.function, [name for name, value in vars(module).items() if callable(value)])
        raise PythonStepError(f"{module.__file__} has no function {step.function}{suggestion}")
    _check_argument_names(function, step)
    with _errors_with_position(folder), _importing(folder):
        result = function(*inputs, **step.args)
    if not isinstance(result, DataFrame):
        raise PythonStepError(f"{step.module}:{step.function} returned {type(result).__name__}, not a DataFrame")
    return result


def class_of(module: str, name: str, folder: Path, *, reload: bool) -> Callable[..., Any]:
    """Return a class of a module beside the pipeline's file. Raises PythonStepError if there is none."""
    loaded = load(module, folder, reload=reload)
    found: Callable[..., Any] | None = getattr(loaded, name, None)
    if not callable(found):
        suggestion = did_you_mean(name, [each for each, value in vars(loaded).items() if isinstance(value, type)])
        raise PythonStepError(f"{loaded.__file__} has no class {name}{suggestion}")
    return found


def _check_argument_names(function: Callable[..., object], step: PythonStep) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a function in C may have no signature; the call checks its arguments
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY]
    for argument in step.args:
        if argument not in names:
            raise UnknownArgument(argument, step.function, names[len(step.inputs) :])


def load(name: str, folder: Path, *, reload: bool = True) -> ModuleType:
    """Return the module from `folder`. Without `reload`, as in a run that continues, reuse it if it is loaded."""
    file = folder.joinpath(*name.split(".")).with_suffix(".py")
    if not file.is_file():
        raise PythonStepError(f"there is no file {file}")
    unique_name = f"{MODULE_NAME_PREFIX}{hashlib.sha256(str(file).encode()).hexdigest()[:12]}_{file.stem}"
    if not reload and unique_name in sys.modules:
        return sys.modules[unique_name]
    spec = importlib.util.spec_from_file_location(unique_name, file)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique_name] = module
    try:
        with _errors_with_position(folder), _importing(folder):
            spec.loader.exec_module(module)
    except BaseException:
        # A later call without `reload` would reuse the incomplete module.
        sys.modules.pop(unique_name, None)
        raise
    return module


@contextmanager
def _importing(folder: Path) -> Iterator[None]:
    """Let the step import modules from `folder`, and pickle all modules from there by value.

    Afterwards they are removed from `sys.modules` (their importers keep them): the next import of such a name reads the
    file again, after an edit or from the folder of another pipeline.
    """
    sys.path.insert(0, str(folder))
    try:
        with warnings.catch_warnings():
            # An ordinary @udf warns so where pandas is not installed, but runs.
            warnings.filterwarnings("ignore", "Arrow optimization failed to enable", RuntimeWarning)
            yield
    finally:
        sys.path.remove(str(folder))
        # A copy, because reading an attribute of a lazy module may import others. All modules are registered before one
        # is removed, because cloudpickle accepts only modules that are in `sys.modules`.
        modules = {name: module for name, module in list(sys.modules.items()) if _is_module_of(module, name, folder)}
        for module in modules.values():
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        for name in modules:
            if not name.startswith(MODULE_NAME_PREFIX):
                del sys.modules[name]


def _is_module_of(module: object, name: str, folder: Path) -> bool:
    if not isinstance(module, ModuleType) or name == "__main__":  # the running program, even if it is in the folder
        return False
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return _is_file_of(file, name, folder)
    # A folder without __init__.py is a namespace package. It keeps its submodules as attributes, so it must go as well.
    package_folders = vars(module).get("__path__") or ()
    return list(package_folders) == [_path_without_suffix(name, folder)]


def _is_file_of(file: str, module_name: str, folder: Path) -> bool:
    """Return whether the user's code in `folder` has this file.

    A file in a subfolder must also be at the path of its module's name: a virtual environment is often a subfolder, and
    the packages installed there are not the user's code.
    """
    if not file.startswith(f"{folder}{os.sep}"):
        return False
    if os.path.dirname(file) == str(folder) or module_name.startswith(MODULE_NAME_PREFIX):
        return True
    path = _path_without_suffix(module_name, folder)
    return file in (f"{path}.py", os.path.join(path, "__init__.py"))


def _path_without_suffix(module_name: str, folder: Path) -> str:
    return os.path.join(folder, *module_name.split("."))


@contextmanager
def _errors_with_position(folder: Path) -> Iterator[None]:
    """Turn every error of the user's code into a PythonStepError with file and line."""
    try:
        yield
    except PythonStepError:
        raise
    except SyntaxError as error:
        raise PythonStepError(f"{error.filename}:{error.lineno}: {error.msg}") from error
    except Exception as error:
        message = message_of(error) if isinstance(error, SPARK_ERRORS) else f"{type(error).__name__}: {error}"
        raise PythonStepError(f"{_position(error, folder)}{' '.join(message.split())}") from error


def _position(error: Exception, folder: Path) -> str:
    """Return "file:line: " of the innermost frame in the user's code, or "" if no frame is in the user's code."""
    positions = [
        f"{frame.f_code.co_filename}:{line}: "
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_file_of(frame.f_code.co_filename, str(frame.f_globals.get("__name__")), folder)
    ]
    return positions[-1] if positions else ""
