"""The nouns of dgw: frozen values that survive a JSON round trip.

Values are stored in base units (s, B, FLOP/s, ratio); only reports format them. Everything here is data: what computes,
measures or explains lives elsewhere.
"""

from dgw.model.device import Device, sm
from dgw.model.finding import Evidence, Finding, Step
from dgw.model.noun import Noun, digest
from dgw.model.plan import (
    DECIDED_LATER,
    SCALAR_BYTES,
    Argument,
    Dim3,
    Fill,
    Launch,
    Plan,
    Pointer,
    Scalar,
    Source,
    TensorMap,
    Workspace,
)
from dgw.model.problem import DTYPE_BITS, Config, Epilogue, Operand, OperandName, Problem, gemm, unknown_problem
from dgw.model.record import Artifact, Case, Check, Defect, Environment, Measurement, Outcome, Record, Run
from dgw.model.variant import Bind, Claim, MakePlan, Refuses, Tunable, Variant

__all__ = [
    "DECIDED_LATER",
    "DTYPE_BITS",
    "SCALAR_BYTES",
    "Argument",
    "Artifact",
    "Bind",
    "Case",
    "Check",
    "Claim",
    "Config",
    "Defect",
    "Device",
    "Dim3",
    "Environment",
    "Epilogue",
    "Evidence",
    "Fill",
    "Finding",
    "Launch",
    "MakePlan",
    "Measurement",
    "Noun",
    "Operand",
    "OperandName",
    "Outcome",
    "Plan",
    "Pointer",
    "Problem",
    "Record",
    "Refuses",
    "Run",
    "Scalar",
    "Source",
    "Step",
    "TensorMap",
    "Tunable",
    "Variant",
    "Workspace",
    "digest",
    "gemm",
    "sm",
    "unknown_problem",
]
