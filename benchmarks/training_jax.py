"""The benchmark of training.py for models in JAX (Flax linen and NNX, Equinox, plain functions) and Keras.

    python benchmarks/training_jax.py --seeds 3 --out docs/data/training_jax.jsonl   # train; can be resumed

Same search for a learning rate, same figure of a run, same comparison. The rivals are each library's own default and
the textbook schemes of ``scheme=``; Xavier and orthogonal get the gain of the activation that a weight feeds.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import training
from scoring import Row

DATA = Path(__file__).parents[1] / "docs" / "data" / "training_jax.jsonl"
NAMES = ("default", "xavier", "orthogonal", "he", "lecun", "lsuv", "anyinit", "anyinit unit")
OURS = ("anyinit", "anyinit unit")
SCHEMES = {
    "xavier": "xavier_normal", "orthogonal": "orthogonal", "he": "he_normal", "lecun": "lecun_normal", "lsuv": "lsuv",
}  # fmt: skip
TASKS = {
    "linen tanh 40": "Flax linen, tanh MLP, 40 layers of 64, a function of two coordinates",
    "nnx conv 12": "Flax NNX, relu conv net without norms, 12 layers, 16 channels, digits",
    "linen gpt": "Flax linen, GPT on letters, 2 blocks of 48, 32 letters",
    "nnx mixer": "Flax NNX, MLP-mixer, 4 blocks of 32, digits",
    "equinox residual 16": "Equinox, gelu residual MLP without norms, 16 blocks of 64, digits",
    "equinox pinn": "Equinox, tanh MLP, 7 layers of 48, a driven oscillator's equation",
    "function siren": "plain JAX, SIREN, 4 layers of 48, a photograph",
    "keras lstm": "Keras, LSTM on letters, width 64, 32 letters",
    "keras conv bn": "Keras, conv net with batch norm and pooling, 4 convolutions, digits",
    "keras silu 12": "Keras, silu MLP, 12 layers of 64, a function of two coordinates",
}


def gain(activation: str) -> float:
    """PyTorch's recommendation for relu and tanh; a unit second moment behind any other."""
    import anyinit

    known = {"relu": math.sqrt(2), "tanh": 5 / 3, "sin": 1 / math.sqrt(0.5 * (1 - math.exp(-2)))}
    return known[activation] if activation in known else anyinit.gain(activation)


def start(task: Any, contender: str, seed: int, inputs: Any) -> tuple[Any, Any]:
    """Parameters and state at the start of a contender."""
    held = task.model.fresh(1000 + seed, inputs)
    if contender in OURS:
        target = "auto" if contender == "anyinit" else "unit"
        forward = {} if task.forward is None else {"forward": task.forward}
        held = task.model.placed(held, inputs, seed=seed, target=target, **forward)
    elif contender != "default":
        kept = [f"*{t}*" for t in task.tables]
        held = task.model.placed(held, inputs, seed=seed, scheme=SCHEMES[contender], skip=kept or None)
    params, state = task.model.split(held)
    return (task.gained(params, gain(task.activation)) if contender in {"xavier", "orthogonal"} else params), state


def stepper(task: Any) -> Callable[..., Any]:
    """One step of Adam, compiled once per task."""
    import jax
    import optax

    adam = optax.scale_by_adam()

    def step(params: Any, state: Any, memory: Any, rate: Any, inputs: Any, targets: Any) -> Any:
        aux = jax.value_and_grad(task.objective, has_aux=True)
        (loss, state), slopes = aux(params, state, inputs, targets)
        moves, memory = adam.update(slopes, memory)
        return jax.tree.map(lambda p, m: p - rate * m, params, moves), state, memory, loss

    return jax.jit(step)


STEPPERS: dict[str, Callable[..., Any]] = {}


def train(task: Any, jobs: list[training.Job]) -> Iterator[Row]:
    """Runs of one task, one after the other."""
    return (one(task, *job) for job in jobs)


def one(task: Any, contender: str, seed: int, rate: float, steps: int | None = None) -> Row:
    """One run; the loss is infinite if it stops being finite on the way."""
    import numpy as np
    import optax

    step = STEPPERS.setdefault(task.name, stepper(task))
    rng = np.random.default_rng(2000 + seed)
    params, state = start(task, contender, seed, task.batch(rng)[0])
    memory, losses, steps = optax.scale_by_adam().init(params), list[float](), steps or task.steps
    for _ in range(steps):
        params, state, memory, loss = step(params, state, memory, np.float32(rate), *task.batch(rng))
        losses.append(float(loss))
        if not math.isfinite(losses[-1]):
            break
    whole = len(losses) == steps and math.isfinite(losses[-1])
    final = statistics.fmean(losses[-max(1, steps // 10) :]) if whole else math.inf
    return {
        "task": task.name, "contender": contender, "seed": seed, "rate": rate, "loss": float(f"{final:.6g}"),
        "first": float(f"{losses[0]:.6g}"), "steps": task.steps, "constant": float(f"{task.constant:.6g}"),
    }  # fmt: skip


def known_tasks() -> list[Any]:
    """All tasks in JAX and Keras."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    from tasks_jax import equinox_tasks, flax_tasks, keras_tasks

    return [*flax_tasks.tasks(), *equinox_tasks.tasks(), *keras_tasks.tasks()]


def first_loss(task: Any, contender: str, seed: int) -> float:
    """The first loss of a run."""
    return one(task, contender, seed, 0.0, 1)["first"]


def main() -> None:
    args = training.options(__doc__, NAMES).parse_args()
    known = known_tasks()
    assert {t.name for t in known} == set(TASKS)
    wanted, log = [t for t in known if not args.tasks or t.name in args.tasks], training.Log(args.out, train)
    if args.refresh:
        training.refresh(log, wanted, OURS, first_loss)
    training.everything(log, wanted, args.seeds, args.contenders)


if __name__ == "__main__":
    main()
