"""Runs of one PyTorch task side by side: as one model whose values have an axis of runs, which costs a fraction."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, vmap

from tasks.contenders import start

Job = tuple[str, int, float]
"""Contender, seed and rate of a run."""


def begun(task: Any, job: Job, batch: Any) -> tuple[nn.Module, torch.Generator]:
    """A model as a contender starts it, and the generator of its batches; ``batch(rng)`` draws one."""
    contender, seed, _ = job
    torch.manual_seed(1000 + seed)
    model = task.build()
    rng = torch.Generator().manual_seed(2000 + seed)
    start(contender, task, model, batch(rng)[0], seed)
    return model, rng


def batchable(task: Any) -> bool:
    """Whether side by side is possible and pays: dense layers and norms without a state, one plain call."""
    model = task.build()
    holders = [m for m in model.modules() if next(m.parameters(recurse=False), None) is not None]
    plain = all(isinstance(m, (nn.Linear, nn.LayerNorm)) for m in holders)
    return plain and not list(model.buffers()) and task.forward is None


class Adam:
    """Adam (Kingma & Ba 2015) with a rate for each entry of the first axis."""

    def __init__(self, params: list[torch.Tensor], rates: torch.Tensor) -> None:
        self.params, self.count = params, 0
        self.rates = [rates.view(-1, *(1 for _ in p.shape[1:])) for p in params]
        self.first, self.second = [p.detach() * 0 for p in params], [p.detach() * 0 for p in params]

    def step(self, slopes: Any, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8) -> None:
        """One step down ``slopes``."""
        self.count += 1
        bias = [1 - b**self.count for b in betas]
        for p, m, v, g, rate in zip(self.params, self.first, self.second, slopes, self.rates, strict=True):
            m.lerp_(g, 1 - betas[0])
            v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
            p.data.sub_(m.div(v.sqrt().div_(math.sqrt(bias[1])).add_(epsilon)).mul_(rate / bias[0]))


class Together:
    """Models of one task, one per job. split: whether data is held back."""

    def __init__(self, task: Any, jobs: list[Job], *, split: bool = False) -> None:
        self.task, self.jobs = task, jobs
        self.batch, self.rest = task.batch.split() if split else (task.batch, None)
        pairs = [begun(task, job, self.batch) for job in jobs]
        self.draws = {seed: rng for (_, seed, _), (_, rng) in zip(jobs, pairs, strict=True)}
        self.model, parts = pairs[0][0], [dict(m.named_parameters()) for m, _ in pairs]
        names = [n for n, _ in self.model.named_parameters()]
        self.values = {n: torch.stack([p[n].detach() for p in parts]).requires_grad_(True) for n in names}
        self.adam = Adam(list(self.values.values()), torch.tensor([rate for _, _, rate in jobs]))

    def _loss(self, values: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.task.loss(lambda inputs: functional_call(self.model, values, (inputs,)), (x, y))

    def step(self) -> torch.Tensor:
        """Loss of every job on its next batch, and one step of training."""
        drawn = {seed: self.batch(rng) for seed, rng in self.draws.items()}
        x, y = (torch.stack([drawn[seed][k] for _, seed, _ in self.jobs]) for k in (0, 1))
        losses = vmap(self._loss)(self.values, x, y)
        self.adam.step(torch.autograd.grad(losses.sum(), self.adam.params))
        return losses.detach()

    def held(self) -> torch.Tensor:
        """Loss of every job on what was held back."""
        with torch.no_grad():
            return vmap(self._loss, in_dims=(0, None, None))(self.values, *self.rest)

    def trained(self, steps: int, checks: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses by step and job, and held-out losses by look and job, for ``checks`` looks."""
        losses, held = list[torch.Tensor](), list[torch.Tensor]()
        for step in range(1, steps + 1):
            losses.append(self.step())
            if step * checks // steps > (step - 1) * checks // steps:
                held.append(self.held())
        return torch.stack(losses).double(), torch.stack(held).double() if held else torch.empty(0, len(self.jobs))


def rounded(value: Any) -> float:
    """Six digits; what is not finite is infinite."""
    return float(f"{float(value):.6g}") if math.isfinite(float(value)) else math.inf
