"""Placeholder."""

from __future__ import annotations

from dgw.commands.session import Session
from dgw.workbench.sweep.engine import Workforce


def cluster_force(scheduler: str, session: Session) -> Workforce:
    """Not yet."""
    raise NotImplementedError
