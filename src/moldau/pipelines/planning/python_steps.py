"""Calls Python steps: a function of a module beside the pipeline's file, with DataFrames and the step's arguments.

The module is loaded under a unique name, so that two pipelines may both have a `detect.py`. Its definitions and those
of modules beside it are pickled by value, because executors do not have these files. Errors name step, file and line.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from moldau.pipelines.planning.sql_errors import message_of
from moldau.pipelines.problems import did_you_mean
from moldau.pipelines.spec import PythonStep

PRIVATE = "_moldau_pipeline_"
"""Prefix of the unique names of step modules in `sys.modules`."""


class FailedStep(ValueError):
    """A Python step cannot be loaded or called. The message is one line, with file and line of the user's code."""


def call(step: PythonStep, folder: Path, inputs: Sequence[DataFrame], *, reread: bool = True) -> DataFrame:
    module = load(step.module, folder, reread=reread)
    function = getattr(module, step.function, None)
    if not callable(function):
        near = did_you_mean(step.function, [name for name, value in vars(module).items() if callable(value)])
        raise FailedStep(f"{module.__file__} has no function {step.function}{near}")
    with _errors_as_failed_step(folder), _importing(folder):
        result = function(*inputs, **step.args)
    if not isinstance(result, DataFrame):
        raise FailedStep(f"{step.module}:{step.function} returned {type(result).__name__}, not a DataFrame")
    return result


def load(name: str, folder: Path, *, reread: bool = True) -> ModuleType:
    """Return the module from `folder`. With `reread` load it again; without, as in a run that continues, reuse it."""
    file = folder.joinpath(*name.split(".")).with_suffix(".py")
    if not file.is_file():
        raise FailedStep(f"there is no file {file}")
    unique_name = f"{PRIVATE}{hashlib.sha256(str(file).encode()).hexdigest()[:12]}_{file.stem}"
    if not reread and unique_name in sys.modules:
        return sys.modules[unique_name]
    spec = importlib.util.spec_from_file_location(unique_name, file)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique_name] = module
    with _errors_as_failed_step(folder), _importing(folder):
        spec.loader.exec_module(module)
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
        for name, module in list(sys.modules.items()):
            if _is_beside(module, folder):
                cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
                if not name.startswith(PRIVATE):
                    del sys.modules[name]


def _is_beside(module: object, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(module, ModuleType) and isinstance(file, str) and Path(file).parent == folder


@contextmanager
def _errors_as_failed_step(folder: Path) -> Iterator[None]:
    try:
        yield
    except FailedStep:
        raise
    except SyntaxError as error:
        raise FailedStep(f"{error.filename}:{error.lineno}: {error.msg}") from error
    except Exception as error:
        message = message_of(error) if isinstance(error, PySparkException) else f"{type(error).__name__}: {error}"
        raise FailedStep(f"{_where(error, folder)}{' '.join(message.split())}") from error


def _where(error: Exception, folder: Path) -> str:
    """Return file and line of the innermost frame in the user's own code, or ""."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent == folder]
    return f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
