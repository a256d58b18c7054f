"""What a recipe concludes."""

from __future__ import annotations

from typing import Literal

from dgw.model.noun import Noun
from dgw.model.problem import Config


class Evidence(Noun, frozen=True, kw_only=True):
    """One observation behind a Finding."""

    metric: str
    value: float | int | str | None
    threshold: float | None = None
    why: str = ""


class Finding(Noun, frozen=True, kw_only=True):
    """What a recipe concluded: verdict, confidence (high, medium, low), evidence, and the next step.

    `cost` is the share of the time that the cause takes, as estimated from the counters; None where it is not a matter
    of time or cannot be told.
    """

    recipe: str
    verdict: str
    confidence: Literal["high", "medium", "low"] = "medium"
    evidence: tuple[Evidence, ...] = ()
    next_step: str = ""
    cost: float | None = None


class Step(Noun, frozen=True, kw_only=True):
    """One step of a sequence that is done: what was seen (evidence, findings, sentences), and whether to go on.

    `variant` and `config` are the kernel in hand after it.
    """

    title: str
    evidence: tuple[Evidence, ...] = ()
    findings: tuple[Finding, ...] = ()
    seen: tuple[str, ...] = ()
    decision: Literal["go on", "stop"] = "go on"
    why: str = ""
    variant: str = ""
    config: Config = {}
