"""Python steps: a function from a module beside the pipeline's file, called with DataFrames and the step's arguments.

The module is loaded under a name of its own, so that two pipelines may both have a `detect.py`; what it and the modules
beside it define is sent to executors by value, since they have no such files. Errors name the step, file and line.
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
"""How the names begin under which the modules of steps are loaded."""


class FailedStep(ValueError):
    """A Python step that cannot be loaded or called. One line, with file and line of the user's code."""


def call(step: PythonStep, folder: Path, inputs: Sequence[DataFrame], *, reread: bool = True) -> DataFrame:
    module = load(step.module, folder, reread=reread)
    function = getattr(module, step.function, None)
    if not callable(function):
        near = did_you_mean(step.function, [name for name, value in vars(module).items() if callable(value)])
        raise FailedStep(f"{module.__file__} has no function {step.function}{near}")
    with _telling(folder), _importing(folder):
        result = function(*inputs, **step.args)
    if not isinstance(result, DataFrame):
        raise FailedStep(f"{step.module}:{step.function} returned {type(result).__name__}, not a DataFrame")
    return result


def load(name: str, folder: Path, *, reread: bool = True) -> ModuleType:
    """The module from `folder`, read anew unless a run goes on: an edited file counts from the next run on."""
    file = folder.joinpath(*name.split(".")).with_suffix(".py")
    if not file.is_file():
        raise FailedStep(f"there is no file {file}")
    private = f"{PRIVATE}{hashlib.sha256(str(file).encode()).hexdigest()[:12]}_{file.stem}"
    if not reread and private in sys.modules:
        return sys.modules[private]
    spec = importlib.util.spec_from_file_location(private, file)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    sys.modules[private] = module
    with _telling(folder), _importing(folder):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _importing(folder: Path) -> Iterator[None]:
    """Modules beside the file may be imported by it; all that come from there are pickled by value.

    Python forgets them afterwards, though who imported them does not: the next to import one of that name reads it
    anew, after an edit or from the folder of another pipeline.
    """
    sys.path.insert(0, str(folder))
    try:
        with warnings.catch_warnings():
            # Of an ordinary @udf, where pandas is not installed: it runs all the same.
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
def _telling(folder: Path) -> Iterator[None]:
    try:
        yield
    except FailedStep:
        raise
    except SyntaxError as error:
        raise FailedStep(f"{error.filename}:{error.lineno}: {error.msg}") from error
    except Exception as error:
        said = message_of(error) if isinstance(error, PySparkException) else f"{type(error).__name__}: {error}"
        raise FailedStep(f"{_where(error, folder)}{' '.join(said.split())}") from error


def _where(error: Exception, folder: Path) -> str:
    """The innermost line of the user's own code."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent == folder]
    return f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
