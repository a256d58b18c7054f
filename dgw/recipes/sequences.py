"""The sequences there are, by name."""

from __future__ import annotations

from collections.abc import Mapping

from dgw.recipes.precision import precision
from dgw.recipes.quick import quick
from dgw.recipes.sequence import Sequence_
from dgw.recipes.seven_step import seven_step

SEQUENCES: Mapping[str, Sequence_] = {"quick": quick, "seven-step": seven_step, "precision": precision}
