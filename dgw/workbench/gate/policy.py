"""How a time gate measures and decides: every number of its plan, so that reports state them and tests vary them."""

from __future__ import annotations

from dgw.errors import UsageError
from dgw.model import Noun
from dgw.workbench.locked_clock import at
from dgw.workbench.protocol import PROTOCOL

GATE_PROTOCOL = f"gate-pairs/1 child/{PROTOCOL}"
"""Names the rules of measuring: figures of gates with another protocol are never pooled or compared with these. Figures
at a locked SM clock have one of their own (`GatePolicy.protocol`)."""


class GatePolicy(Noun, frozen=True, kw_only=True):
    """Times in seconds, effects as shares (0.01: 1 %).

    A *round* is one turn (a graph replay of about `turn_s`) of each side in random order; a *pair* is a fresh process
    for each side, alive at once, which take turns for `rounds` rounds of every case. `screen_pairs` pairs look at all
    cases; those that look slower (one-sided p <= `flag_p` and at least half of `floor`) are decided on `confirm_pairs`
    fresh pairs alone.

    `floor` is the least slowdown that counts, `mean_floor` that of the geometric mean; `alpha` bounds the chance of a
    false alarm over all cases (Holm), and once more that of the geometric mean.
    """

    screen_pairs: int = 4
    confirm_pairs: int = 8
    rounds: int = 5
    turn_s: float = 0.010
    floor: float = 0.01
    mean_floor: float = 0.005
    alpha: float = 0.01
    flag_p: float = 0.05
    certainty: float = 0.95  # of the one-sided bound below which a case is called unchanged
    sentinels: int = 4
    locked_hz: float = 0.0  # the SM clock that the GPU is held at, 0 where its clocks are its own
    most_dropped: float = 0.2  # share of rounds that may be invalid
    clock_apart: float = 0.05  # SM clocks of the two turns, against their usual ratio for this case
    first_warm_up_s: float = 1.0
    warm_up_s: float = 0.2
    most_warm_up: float = 5.0  # warm-up lasts at most this many times as long
    max_sets: int = 256
    seed: int = 0

    @property
    def protocol(self) -> str:
        """What figures that were taken by this policy are named by: the rules of measuring, and the locked clock."""
        return GATE_PROTOCOL + at(self.locked_hz)

    @property
    def underpowered(self) -> float:
        """A case whose minimum detectable effect is above this is inconclusive."""
        return 2 * self.floor


PLANS = {
    "default": GatePolicy(),
    "wide": GatePolicy(screen_pairs=5, confirm_pairs=10, rounds=10),
    "release": GatePolicy(screen_pairs=6, confirm_pairs=12, rounds=20),
}
"""What `--plan` takes; reference: 80 % power at 1.6, 1.2 and 1.1 % slowdown where a turn scatters by 1 %."""


def plan(name: str) -> GatePolicy:
    """The policy of this name. Raises UsageError."""
    if name not in PLANS:
        raise UsageError(f"no plan is named {name!r}", f"--plan {' or '.join(PLANS)}")
    return PLANS[name]
