"""A callback for Lightning, which is imported with this module, as ``lightning`` or as ``pytorch_lightning``."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyinit
from anyinit.errors import ConfigError

if TYPE_CHECKING:
    from lightning.pytorch import Callback
    from lightning.pytorch.utilities.seed import isolate_rng
elif "pytorch_lightning" in sys.modules or find_spec("lightning") is None:
    from pytorch_lightning import Callback
    from pytorch_lightning.utilities.seed import isolate_rng
else:
    from lightning.pytorch import Callback
    from lightning.pytorch.utilities.seed import isolate_rng

__all__ = ["Initialize"]

_SHARDED = {"FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy"}


class Initialize(Callback):
    """Initializes the module when a fit starts, as :func:`anyinit.initialize` does.

    Once for each module: a second fit goes on with the weights that the first one left, and a fit from a checkpoint
    (``ckpt_path=``) keeps those of the checkpoint. With several processes the first one plans and measures, and all of
    them draw the same weights from its plan. Random states are left as they were.

    Args:
        input_spec: as there; a batch that ``forward`` takes, or a function without arguments that returns one, such as
            ``lambda: next(iter(loader))[0]``. By default the module's ``example_input_array``, else what can be
            inferred.
        mode, options: as there. Without ``seed=`` it is that of ``seed_everything``, and fresh where there was none.

    Attributes:
        report: that of the last module; None before the first fit.

    Raises:
        ConfigError: when the fit starts, as there, and where a strategy has split the weights among devices.
        TraceError: when the fit starts, as there.
    """

    def __init__(self, input_spec: Any = None, mode: Any = "analytic", **options: Any) -> None:
        self.report: anyinit.Report | None = None
        self._arguments = (input_spec, mode, options)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """See the class."""
        if trainer.ckpt_path is not None or (self.report is not None and self.report.model is pl_module):
            return
        if split := _SHARDED & {cls.__name__ for cls in type(trainer.strategy).__mro__}:
            remedy = "Plan on the whole model, on the meta device, and write each shard's part of the plan."
            raise ConfigError("The weights are split among devices already", value=min(split), remedy=remedy)
        spec, mode, options = self._arguments
        if "PL_GLOBAL_SEED" in os.environ:
            options = {"seed": int(os.environ["PL_GLOBAL_SEED"]), **options}
        if trainer.is_global_zero:
            with isolate_rng():
                report = anyinit.initialize(pl_module, spec, mode, **options)
            trainer.strategy.broadcast(report.plan.to_json())
        else:
            report = anyinit.apply(anyinit.Plan.from_json(trainer.strategy.broadcast("")), pl_module)
        self.report = report
