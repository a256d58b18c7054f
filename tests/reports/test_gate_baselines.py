"""What is approved, for a terminal: figures, and which of them nobody knows."""

from __future__ import annotations

import pytest

from dgw.reports.baselines import CONFLICTS, SPILLS, render
from dgw.workbench.baselines import Approval, Approved, BaselineFile
from tests.workbench.gate.exact_samples import facts


def shown(figures: dict[str, float], until: str = "") -> list[list[str]]:
    """The rows of the table of cases and of that of approvals."""
    entry = Approval(approved="2027-01-01", reason="the first", dgw="0", until=until)
    file = BaselineFile(
        family="cuda", arch="sm_90a", toolchain="nvrtc-1", compiler="nvrtc 1", history=(entry,),
        cases={"k": Approved(facts=facts(figures=figures))},
    )  # fmt: skip
    return [line.split() for line in render([file], 200).splitlines()]


@pytest.mark.parametrize(
    ("figures", "conflicts", "spilled"),
    [
        ({}, "-", "-"),
        (dict.fromkeys((*CONFLICTS, *SPILLS), 0), "0", "0 B"),
        (dict.fromkeys((*CONFLICTS, *SPILLS), 4), "16", "8.000 B"),
        (dict.fromkeys((*CONFLICTS[1:], SPILLS[0]), 4), "-", "-"),  # a part of a sum is no sum
    ],
)
def test_what_is_unknown_is_shown_as_unknown_and_not_as_none(
    figures: dict[str, float], conflicts: str, spilled: str
) -> None:
    (row,) = [words for words in shown(figures) if words[:1] == ["h200"]]
    assert " ".join(row).split("cuda/")[0].split()[5:] == [conflicts, *spilled.split()]


def test_an_approval_says_how_long_it_holds() -> None:
    assert ["0", "2027-01-01", "0", "the", "first", "(until", "2030-12-31)"] in shown({}, "2030-12-31")
