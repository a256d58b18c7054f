"""What a diagnosis is: a cause that a record may show, what has to be known to tell, and the rule.

One recipe a file of this folder, as `RECIPE`; `dgw.recipes.registry` finds them by themselves. A rule is a pure
function of :class:`~dgw.recipes.facts.Facts`, which are those of one stored record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts

CANNOT_TELL = "cannot tell"
_LEVELS: tuple[Literal["low", "medium", "high"], ...] = ("low", "medium", "high")
HIGH_SHARE, MEDIUM_SHARE, LEAST_SHARE = 0.15, 0.05, 0.02
"""Shares of the time: only what costs the first is named with high confidence, what costs the second with medium,
and what costs less than the third is not named at all."""


def _always(facts: Facts) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One cause that a kernel may suffer from.

    `needs`: metric names; `a|b` where either will do. They are asked for only where the recipe `applies` (what the
    case alone says). `judge` gives None where the cause is not there. `fetch` says how missing metrics are obtained:
    `counters`, `time` or `timeline`.
    """

    name: str
    about: str
    needs: tuple[str, ...]
    judge: Callable[[Facts], Finding | None]
    applies: Callable[[Facts], bool] = _always

    def missing(self, facts: Facts) -> tuple[str, ...]:
        """The needs that the record does not know."""
        return tuple(need for need in self.needs if not any(facts.known(name) for name in need.split("|")))

    def look(self, facts: Facts) -> Finding | None:
        """The finding on one record: the cause, that it cannot be told, or None where it does not concern it."""
        if not self.applies(facts):
            return None
        missing = self.missing(facts)
        if missing:
            return cannot_tell(self, facts, missing)
        finding = self.judge(facts)
        too_little = finding is not None and finding.cost is not None and finding.cost < LEAST_SHARE
        return None if too_little else finding


def found(
    recipe: str, verdict: str, cost: float, evidence: Sequence[Evidence], next_step: str, sure: bool = True
) -> Finding:
    """A finding whose confidence follows from the share of the time that it costs.

    `sure` False caps it at medium: the counters agree with the cause, and with others too.
    """
    cost = min(max(cost, 0.0), 1.0)
    level = 2 if cost >= HIGH_SHARE else 1 if cost >= MEDIUM_SHARE else 0
    confidence: Literal["low", "medium", "high"] = _LEVELS[min(level, 2 if sure else 1)]
    return Finding(
        recipe=recipe, verdict=verdict, confidence=confidence, evidence=tuple(evidence), next_step=next_step, cost=cost
    )


def cannot_tell(recipe: Recipe, facts: Facts, missing: Sequence[str]) -> Finding:
    """That the record does not say, what it would take, and the command that gets it."""
    wanted = [need.split("|")[0] for need in missing]
    reasons = [f"{name} ({facts.absent(name)})" if facts.absent(name) else name for name in wanted]
    return Finding(
        recipe=recipe.name,
        verdict=f"{CANNOT_TELL} {recipe.name}: needs {', '.join(reasons)}",
        confidence="low",
        evidence=tuple(Evidence(metric=name, value=None, why=facts.absent(name)) for name in wanted),
        next_step=facts.command(wanted),
    )
