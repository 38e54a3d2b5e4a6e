"""The report: frozen records first, then text, Markdown, HTML and plots made from them."""

from anyinit._solve.plan import Plan
from anyinit.report import pictures as pictures
from anyinit.report.diagnosis import Finding
from anyinit.report.explanation import Explanation
from anyinit.report.records import Layer, OpaqueOp, Unscaled
from anyinit.report.report import Report

__all__ = ["Explanation", "Finding", "Layer", "OpaqueOp", "Plan", "Report", "Unscaled"]
