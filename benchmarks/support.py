"""Which operations of a framework have a translation: read off the registries, kept as data, shown as a page.

python benchmarks/support.py    # refresh the frameworks that are installed, then docs/support.md
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
DATA, PAGE = DOCS / "data" / "support.json", DOCS / "support.md"
TITLES = {"torch": "PyTorch", "jax": "JAX", "tensorflow": "TensorFlow"}
UNITS = {"torch": "ATen operations", "jax": "primitives", "tensorflow": "operations"}
FAMILIES = (
    "contract", "pointwise", "norm", "attention", "recurrent", "reduce", "structure", "shape", "index", "random",
    "other",
)  # fmt: skip
LOADS = {"torch": "translate", "jax": "runtime", "tensorflow": "runtime"}
FOLLOWED = {
    "torch": "run through PyTorch's own decomposition, whose parts have translations, or are opaque themselves",
    "jax": "any equation that holds a program, whatever its name: calls are inlined, loops unrolled, branches decided",
    "tensorflow": "calls inlined, loops unrolled, branches decided; variables and lists of tensors followed",
}

Support = dict[str, Any]


def home(framework: str) -> Any:
    """Finds modules of the adapters, with every translation of one framework loaded."""
    importlib.import_module(f"anyinit._frameworks.{framework}.{LOADS[framework]}")
    return lambda name: importlib.import_module(f"anyinit._frameworks.{name}")


def installed() -> list[str]:
    """Frameworks that can be read here."""
    return [name for name in TITLES if importlib.util.find_spec(name) is not None]


# --- what has a translation -------------------------------------------------------------------


def registry(framework: str) -> dict[str, Callable[..., Any]]:
    """Every translated operation with its function; overloads share a name."""
    room = home(framework)
    if framework == "torch":
        both = {**room("torch.views").STEPS, **room("torch.lower").ATEN}
        return {name.split(".")[0]: fn for name, fn in both.items() if "::" not in name}
    every = room("primitives.lower").TRANSLATORS
    own = "tensorflow" if framework == "tensorflow" else "primitives"
    return {name: fn for name, fn in every.items() if f".{own}." in fn.__module__}


def neutral(framework: str) -> set[str]:
    """Operations that hand their input on, or do nothing to values."""
    room, known = home(framework), registry(framework)
    if framework == "tensorflow":
        flatten = room("tensorflow.flatten")
        return {*flatten.SAME, *flatten.SILENT}
    model = known["detach" if framework == "torch" else "stop_gradient"]
    return {name for name, fn in known.items() if fn is model}


def family(fn: Callable[..., Any]) -> str:
    """The family of a translation: the file it stands in."""
    file = fn.__module__.rpartition(".")[2]
    return "structure" if file == "views" else file.removeprefix("translate_")


def reasons(fn: Callable[..., Any]) -> list[str]:
    """Why a translation may still give up: the words it hands to ``low.opaque``, or that it refuses without any."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "opaque"]
    words = [a.value for call in calls for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    gives_up = any(isinstance(n, ast.Return) and getattr(n.value, "id", "") == "NotImplemented" for n in ast.walk(tree))
    return sorted({*words, *(["rare arguments"] if gives_up else [])})


# --- what has none ----------------------------------------------------------------------------

INNER = re.compile(
    r"^_|_$|backward|_out$|sparse|quant|fbgemm|mkldnn|cudnn|miopen|nested|sym_|_grad$|_jvp|_forward|qint|q_|int_repr"
    r"|[cb]s[rc]|coo|_indices|^indices|_copy$|_functional$|batch_norm_|convolution_over|^(?:values|set|resize|from_file)$"
)
"""No operation on a model's numbers, by their names in ATen: gradients, variants, formats, kernels of one device."""

MACHINERY = re.compile(
    r"token|after_all|^all_|ragged_all|axis_index|permute|^get$|^swap$|empty2|custom_lin$|_to$|grad_a$"
)
"""The same for JAX: effects, collectives, comparisons inside sorts, derivatives of a function that is listed."""

SERVICE = re.compile(
    r"Grad|[Qq]uant|Cudnn|StackPush|Resource|Sparse|Boosted|Dataset|Iterator|TPU|Collective|Nccl|Xla|Summary|Stateful|Barrier|Queue|Tensor[A-Z]"
    r"|Ragged|Ref|Lookup|Hash|Mkl|Apply|Debug|Experimental|Assign|Variable|Optional|Map[A-Z]|Stage|Save|Restore|Serialize"
    r"|Decode|Encode|Parse|Py|Send|Recv|Shard|Fact|feed|Host|Config|Tree|Session|Worker|Composite|Dynamic|Backprop|UniformD"
    r"|RPC|Delete|Once|Dict|Context|^Batch[A-Z]|Sdca|Copy|CheckPinned|EditDistance|Enter|Exit|Merge|NextIteration|Switch"
    r"|Unbatch|Fused.*Conv|Kmeans|NearestNeighbors|BoundingBox|NonMax|Inplace|^Scatter(?!Nd)|ListDiff"
)
"""The same for TensorFlow: gradients, pipelines, storage, optimizers, devices."""


def torch_rest(known: set[str]) -> tuple[set[str], set[str]]:
    """ATen operations without a translation: those PyTorch takes apart itself, and the others."""
    import torch

    def whole(schema: Any) -> str:
        return f"{schema.name}.{schema.overload_name}".rstrip(".")

    schemas = defaultdict[str, list[Any]](list)
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::") and torch._C._dispatch_has_kernel(whole(schema)):
            schemas[schema.name[6:]].append(schema)

    def on_tensors(schema: Any) -> bool:
        return all(any("Tensor" in str(a.type) for a in side) for side in (schema.arguments, schema.returns))

    def composite(schema: Any) -> bool:
        return torch._C._dispatch_has_kernel_for_dispatch_key(whole(schema), "CompositeImplicitAutograd")

    rest = {n for n, found in schemas.items() if n not in known and not INNER.search(n) and any(map(on_tensors, found))}
    listed = {fn.__name__.split(".")[0] for fn in torch._decomp.decomposition_table}
    apart = {n for n in rest if n in listed or any(map(composite, schemas[n]))}
    return apart, rest - apart


def jax_rest(known: set[str]) -> tuple[set[str], set[str]]:
    """Primitives without a translation: those that hold programs, and the others."""
    from jax.extend.core import primitives

    every = {getattr(primitives, name).name for name in dir(primitives) if name.endswith("_p")}
    holds = {"call", "closed_call", "cond", "jit", "scan", "while", "remat2"}
    holds |= {n for n in every if n.startswith("custom_") and n.endswith("call")} & every
    return holds & every, {name for name in every - known - holds if not MACHINERY.search(name)}


def tensorflow_rest(known: set[str]) -> tuple[set[str], set[str]]:
    """Operations from float tensors to float tensors without a translation: those that are followed, and the others."""
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    source = inspect.getsource(importlib.import_module("anyinit._frameworks.tensorflow.flatten"))
    words = {n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    found = {n: op_def_registry.get(n) for n in dir(tf.raw_ops) if n[0].isupper()}
    single = tf.dtypes.float32.as_datatype_enum

    def takes(op: Any, side: Iterable[Any]) -> bool:
        allowed = {a.name: a.allowed_values.list.type or [single] for a in op.attr if a.type == "type"}
        return any(single in (a.type, *allowed.get(a.type_attr, ())) for a in side)

    followed = {n for n in found if n in words or n.startswith(("TensorList", "EmptyTensorList"))} - known
    floats = {n for n, op in found.items() if op and takes(op, op.input_arg) and takes(op, op.output_arg)}
    return followed, {n for n in floats if not found[n].is_stateful and not SERVICE.search(n)} - known - followed


REST = {"torch": torch_rest, "jax": jax_rest, "tensorflow": tensorflow_rest}


# --- data and page ----------------------------------------------------------------------------


INTRODUCTION = """\
# Supported operations

What a run of a model executes, by framework. Every operation is one of four kinds:

* **handled**: it has a translation into the vocabulary of this library, and from there statistics both ways;
* **neutral**: it hands its input on, or does nothing to numbers;
* **followed**: it holds a program or is made of other operations, which are recorded in its place;
* **opaque**: it has no translation. Its effect on levels is measured on its own; the report names it and is not
  healthy, because nothing is known of pairs of values behind it. A handled operation is opaque in the cases named.

Operations on known numbers (shapes, masks, tables) are simply computed and need no translation. The lists are read off
the source by `python benchmarks/support.py`, and a test compares them with it. Opaque are those of the version
named that map numbers to numbers in a forward run; kernels of one device, quantized, sparse and nested formats, data
pipelines and collectives are left out. Keras runs on one of the three.

| framework | version | handled | of these in part | neutral | followed | opaque |
|---|---|---|---|---|---|---|"""


def translated(framework: str) -> Support:
    """What the registries of this library say; independent of the framework's version."""
    known, idle = registry(framework), neutral(framework)
    by_family = {f: sorted(n for n, fn in known.items() if n not in idle and family(fn) == f) for f in FAMILIES}
    partly = {n: reasons(fn) for n, fn in sorted(known.items()) if n not in idle}
    return {
        "handled": {f: names for f, names in by_family.items() if names},
        "partly": {n: words for n, words in partly.items() if words},
        "neutral": sorted(idle),
    }


def collected(framework: str) -> Support:
    """All that the page says of one framework, from what is installed."""
    followed, opaque = REST[framework]({*registry(framework), *neutral(framework)})
    version = importlib.import_module(framework).__version__.split("+")[0]
    return {"version": version, **translated(framework), "followed": sorted(followed), "opaque": sorted(opaque)}


def read() -> dict[str, Support]:
    """The data in the repository."""
    return json.loads(DATA.read_text()) if DATA.exists() else {}


def page(data: Mapping[str, Support]) -> str:
    """The page made of the data."""
    lines = [*INTRODUCTION.splitlines()]
    for name in TITLES:
        found = data[name]
        counts = [sum(map(len, found["handled"].values())), *(len(found[k]) for k in ("partly", "neutral", "followed"))]
        row = [TITLES[name], found["version"], *counts, len(found["opaque"])]
        lines.append("| " + " | ".join(map(str, row)) + " |")
    for name in TITLES:
        lines += ["", f"## {TITLES[name]}", "", *section(name, data[name])]
    return "\n".join(lines) + "\n"


def section(name: str, found: Support) -> list[str]:
    """One framework."""
    lines = [f"| family | {UNITS[name]} handled |", "|---|---|"]
    lines += [f"| {family} | {ticked(names)} |" for family, names in found["handled"].items()]
    lines += ["", "Opaque in these cases:", ""]
    by_words = defaultdict[str, list[str]](list)
    for op, words in found["partly"].items():
        by_words["; ".join(words)].append(op)
    lines += [f"* {ticked(ops)}: {words}" for words, ops in sorted(by_words.items())]
    lines += ["", f"Neutral: {ticked(found['neutral'])}.", ""]
    lines += [f"Followed ({FOLLOWED[name]}): {ticked(found['followed'])}.", "", f"Opaque: {ticked(found['opaque'])}."]
    return lines


def ticked(names: Iterable[str]) -> str:
    """Names as code."""
    return ", ".join(f"`{name}`" for name in names)


def main() -> None:
    data = {**read(), **{name: collected(name) for name in installed()}}
    DATA.write_text(json.dumps({name: data[name] for name in TITLES if name in data}, indent=1) + "\n")
    if data.keys() >= TITLES.keys():
        PAGE.write_text(page(data))


if __name__ == "__main__":
    main()
