"""The command line: ``python -m anyinit``, or ``anyinit`` where it is installed.

Exit codes: 0 healthy, 1 findings, 2 unusable arguments or a model that cannot be read or run, 3 a fault of the library.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import anyinit
from anyinit.errors import AnyInitError

HEALTHY, FINDINGS, UNUSABLE, FAULT = 0, 1, 2, 3
SCHEMA = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; usage errors exit as ``argparse`` does."""
    parser, commands = _parser()
    options = parser.parse_args(_signed(list(sys.argv[1:] if arguments is None else arguments), commands))
    head = {"schema": SCHEMA, "anyinit": anyinit.__version__, "command": options.command}
    try:
        with contextlib.redirect_stdout(sys.stderr):  # whatever the model's own code prints
            done = options.run(options)
            shown = json.dumps(_plain(head | done.to_dict()), indent=2) if options.json else done.text()
    except AnyInitError as error:
        if options.json:
            told = {"kind": type(error).__name__, "cause": error.cause, "value": _text(error.value)}
            print(json.dumps(head | {"error": told | {"remedy": error.remedy}}, indent=2))
        else:
            print(_told(error), file=sys.stderr)
        if options.traceback:
            traceback.print_exception(error)
        return UNUSABLE
    except Exception as error:  # noqa: BLE001 (an exit code of its own, never mistaken for findings)
        traceback.print_exception(error)
        print("anyinit: this is a fault of the library; please report it with the lines above.", file=sys.stderr)
        return FAULT
    try:
        print(shown, flush=True)
    except BrokenPipeError:
        sys.stderr.close()  # a reader such as head has gone
    return FINDINGS if getattr(done, "findings", ()) else HEALTHY


def _parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    from anyinit.cli import activation, check

    parser = argparse.ArgumentParser("anyinit", description="Look at a model or an activation before training.")
    parser.add_argument("--version", action="version", version=f"anyinit {anyinit.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for module in (check, activation):
        module.add(commands)
    for one in commands.choices.values():
        one.add_argument("--json", action="store_true", help="machine-readable output")
        one.add_argument("--traceback", action="store_true", help="with an error, the whole way to it")
    return parser, dict(commands.choices)


def _signed(arguments: list[str], commands: dict[str, argparse.ArgumentParser]) -> list[str]:
    """An expression that begins with a minus is no option: a blank in front tells argparse so."""
    if not arguments or arguments[0] != "activation":
        return arguments
    options = commands["activation"]._option_string_actions
    return [f" {a}" if a[:1] == "-" and a.partition("=")[0] not in options and a != "--" else a for a in arguments]


def _told(error: AnyInitError) -> str:
    lines = [f"anyinit: {error.cause.rstrip('.')}."]
    value = getattr(error, "marked", None) or (None if error.value is None else _text(error.value))
    if value:
        lines += ["  " + line for line in value.splitlines()]
    if error.remedy:
        lines.append(f"  -> {error.remedy}")
    return "\n".join(lines)


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else repr(value)


def _plain(value: Any) -> Any:
    """Fit for strict JSON: numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
