"""How long a call takes, beside the published anyinit 0.4.0 given the same input shape.

    python benchmarks/speed.py                                   # this library alone
    python benchmarks/speed.py --peer .venv-peer/bin/python      # both, turn by turn in fresh processes
    python benchmarks/speed.py --jax .venv-jax/bin/python        # a GPT-2 in Flax too, beside JAX's own tracing of it

Each figure is the best of three fresh processes; importing is not counted, everything after it is.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

SHAPE = (2, 3, 224, 224)
HERE = Path(__file__).resolve()


def worker(job: str) -> float:
    """Seconds of one job in this process."""
    return flax_worker(job) if job.endswith("flax") else torch_worker(job)


def flax_worker(job: str) -> float:
    """Seconds for a GPT-2 of Flax on abstract ids: to plan it, or to trace its ``init`` and ``apply`` and no more."""
    import jax

    import anyinit
    from models_flax import GPT, ids

    call = getattr(anyinit, "plan")  # noqa: B009 (what is loaded on first use is loaded here)
    start = time.perf_counter()
    if job.startswith("plan"):
        call(GPT(), ids(), seed=0)
    else:
        shapes = jax.eval_shape(GPT().init, jax.random.key(0), ids())
        jax.make_jaxpr(GPT().apply)(shapes, ids())
    return time.perf_counter() - start


def torch_worker(job: str) -> float:
    """Seconds of one job with PyTorch."""
    import torch

    sys.path.insert(0, str(HERE.parent))
    import anyinit

    torch.manual_seed(0)
    if job.endswith("gpt2"):
        from transformers import GPT2Config, GPT2LMHeadModel

        model, spec = GPT2LMHeadModel(GPT2Config(use_cache=False)), {"input_ids": torch.randint(0, 50257, (2, 128))}
    else:
        from resnet import resnet50

        model, spec = resnet50(), SHAPE
    call = anyinit.plan if job.startswith("plan") else anyinit.initialize
    start = time.perf_counter()
    call(model, input_spec=spec, seed=0)
    return time.perf_counter() - start


def timed(python: str, job: str) -> float:
    """Seconds of one job in a fresh process of another interpreter."""
    done = subprocess.run([python, str(HERE), "--worker", job], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{python} failed at {job}:\n{done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def import_cost(python: str) -> float:
    """Seconds that ``import anyinit`` adds once NumPy is loaded."""
    program = "import numpy, time; t = time.perf_counter(); import anyinit; print(time.perf_counter() - t)"
    return float(subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--peer", help="interpreter that has anyinit 0.4.0")
    parser.add_argument("--jax", help="interpreter that has JAX and Flax")
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    if chosen.worker:
        print(json.dumps(worker(chosen.worker)))
        return
    imported = min(import_cost(sys.executable) for _ in range(chosen.repeats))
    print(f"{'this library':14s} {'import after NumPy':22s} {imported:6.3f} s")
    jobs = [(sys.executable, "plan resnet50"), (sys.executable, "plan gpt2"), (sys.executable, "initialize resnet50")]
    jobs += [(chosen.peer, "initialize resnet50")] if chosen.peer else []
    jobs += [(chosen.jax, "trace gpt2 flax"), (chosen.jax, "plan gpt2 flax")] if chosen.jax else []
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(chosen.repeats):
        for job in jobs:
            best[job] = min(best[job], timed(*job))
    for (python, job), seconds in best.items():
        name = "JAX alone" if job.startswith("trace") else "anyinit 0.4.0" if python == chosen.peer else "this library"
        print(f"{name:14s} {job:22s} {seconds:6.2f} s")
    if chosen.jax:
        ratio = best[chosen.jax, "plan gpt2 flax"] / best[chosen.jax, "trace gpt2 flax"]
        print(f"{'this library':14s} {'plan over trace':22s} {ratio:6.2f}")


if __name__ == "__main__":
    main()
