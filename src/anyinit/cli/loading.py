"""Models, batches and losses named on the command line: ``path.py:name`` or ``package.module:name``."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from anyinit.errors import ConfigError, near

FORM = "Write path.py:name or package.module:name, where name is a model, its class or a function that returns it."
HIDDEN = "anyinit_cli_"


def named(target: str) -> Any:
    """The object that ``target`` names.

    Raises:
        ConfigError: there is no such file, module or name, or reading it failed; the exception is chained.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise ConfigError("This names no object in a file", value=target, remedy=FORM)
    found: Any = _file(Path(place)) if place.endswith(".py") else _module(place)
    for part in name.split("."):
        if not hasattr(found, part):
            known = [n for n in vars(found) if not n.startswith("_")] if hasattr(found, "__dict__") else []
            raise ConfigError(f"There is no {part} in {place}", value=target, remedy=near(part, known) if known else "")
        found = getattr(found, part)
    return found


def model(target: str) -> tuple[Any, Any]:
    """The model that ``target`` names or builds, and its parameters where they live apart.

    A class is made without arguments, a function called without; either may return ``(model, params)``.

    Raises:
        ConfigError: as :func:`named`, or building failed.
    """
    found = named(target)
    if inspect.isclass(found) or inspect.isroutine(found):
        found = _built(found, target)
    if found is None:
        raise ConfigError("The function returned nothing", value=target, remedy="Let it return the model.")
    if type(found) is tuple:
        if len(found) != 2:
            remedy = "Return a model, or (model, params)."
            raise ConfigError(f"The function returned a tuple of {len(found)}", value=target, remedy=remedy)
        return found
    return found, None


def data(target: str) -> Any:
    """The batch that ``target`` names, or that it returns when called without arguments."""
    found = named(target)
    return _built(found, target) if inspect.isroutine(found) else found


def _built(make: Any, target: str) -> Any:
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # some built-in callables have none to show
        parameters = ()
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if required:
        remedy = "Give them defaults, or name a function without arguments that returns the model, or (model, params)."
        raise ConfigError(f"{target} takes arguments", value=", ".join(required), remedy=remedy)
    with _reading(f"{target} could not be built"):
        return make()


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "no such file"
        nearby = near(path.name, [p.name for p in path.parent.glob("*.py")]) if path.parent.is_dir() else ""
        raise ConfigError(f"The file cannot be read: {kind}", value=str(path), remedy=nearby)
    path = path.resolve()
    name = HIDDEN + path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    with _importing(path.parent), _reading(f"{path.name} could not be imported"):
        spec.loader.exec_module(found)
    return found


def _module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError("This is neither a .py file nor a module", value=name, remedy=FORM)
    with _importing(Path.cwd()), _reading(f"{name} could not be imported"):
        return importlib.import_module(name)


@contextmanager
def _importing(folder: Path) -> Generator[None]:
    """Imports look in ``folder`` first, from now on; what is read meanwhile leaves no ``__pycache__`` behind."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = kept


@contextmanager
def _reading(cause: str) -> Generator[None]:
    """Whatever the user's code raises, with its place and what to do."""
    try:
        yield
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(cause, value=_told(error), remedy=_remedy(error)) from error


def _told(error: BaseException) -> str:
    """Type, message and line of an exception, the line in the user's own code."""
    message = " ".join(str(error).split())
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:
        return f"{kind}: {error.msg} ({Path(error.filename).name}, line {error.lineno})"
    own = [f for f in traceback.extract_tb(error.__traceback__) if not _foreign(f.filename)]
    place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"{kind}{': ' if message else ''}{message}{place}"


def _foreign(filename: str) -> bool:
    here = str(Path(__file__).parent)
    return filename.startswith((here, "<")) or "site-packages" in filename or "importlib" in filename


def _remedy(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "The file ends the program when it is imported: put that under if __name__ == '__main__':."
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"Install {error.name.partition('.')[0]} in this environment ({sys.prefix}), or run from its folder."
    if isinstance(error, ImportError) and "relative import" in str(error):
        return "The file is part of a package: name it as package.module:name, from the folder above the package."
    return "Mend it there; --traceback shows the whole way."
