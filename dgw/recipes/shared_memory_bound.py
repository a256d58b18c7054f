"""Too few multiply-adds for each load from shared memory: the banks take longer than the products."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes.bank_conflicts import excess_by_kind
from dgw.recipes.facts import FMA_LANES, Facts
from dgw.recipes.overlap import assumed
from dgw.recipes.recipe import Recipe, found
from dgw.recipes.tiling import rate

LEAST = 1.75
"""Cycles of such loads over those of the products. r x c sums a thread take r + c values for r c multiply-adds, one
wavefront each when they are loaded one by one, and an SM makes four multiply-adds of a warp a cycle: 4 (r + c) / (r c),
which is 1 for 8 x 8, 1.5 for 4 x 8, 2 for 4 x 4 and 8 for a single sum."""
GOOD = 1.0
"""The same of 8 x 8 sums a thread, which is taken to be within reach."""
PTX = "as the PTX has it; the machine code has wider or fewer loads, so that the lower bound leaves shared memory out"


def applies(facts: Facts) -> bool:
    """Products with something to share whose operands threads load themselves: wgmma reads shared memory by itself."""
    return facts.problem.known and min(facts.problem.m, facts.problem.n) >= 16 and not facts.ring


def judge(facts: Facts) -> Finding | None:
    """Loads that conflict with nothing, where the banks stay the busiest pipe without their conflicts. What they cost
    is what is beyond the loads of larger tiles of sums in registers."""
    sms, excess = facts.device.sms, excess_by_kind(facts)
    loads = facts.total("smem_wavefronts_sass_ld", "smem_wavefronts_sass_ldsm") - excess["loads"] - excess["ldmatrix"]
    pipe = "tensor" if facts.uses_tensor_cores else "fma"
    products = max(facts.problem.flops / rate(facts) / sms, facts.busy.get(pipe, 0.0))
    cycles, conflicts = loads / sms, sum(excess.values()) / sms
    others = max((busy for name, busy in facts.busy.items() if name not in ("shared", "issue")), default=0.0)
    if cycles < LEAST * products or facts.busy.get("shared", 0.0) - conflicts < others:
        return None
    beyond = cycles - GOOD * products
    waiting = facts.late("short_scoreboard", "mio_throttle") * beyond / facts.busy["shared"]
    share = facts.share("shared")
    cost = max(share * facts.relief({"shared": beyond}), min(share, waiting))
    each, exact = facts.problem.flops / 2 / FMA_LANES / loads, facts.measured or facts.exact("smem_wavefronts_sass_ld")
    balance = rate(facts) / 2 / FMA_LANES
    evidence = (
        Evidence(metric="wavefronts of loads", value=loads, why="" if exact else PTX),
        Evidence(metric="cycles of loads", value=cycles, threshold=products, why=f"cycles of the {pipe} pipe"),
        Evidence(metric="multiply-adds a lane and wavefront", value=each, threshold=balance, why="keep the pipe busy"),
        Evidence(metric="shared", value=share, why="share of the cycles that the banks were busy"),
        *assumed(facts.overlap),
    )
    verdict = (
        f"shared memory is read too often{facts.line('smem_wavefronts_sass_ld', 'smem_wavefronts_actual')}: {each:.2g} "
        f"multiply-adds a lane for each wavefront where {balance:.3g} keep the {pipe} pipe busy, so that the banks "
        f"take {cycles / products:.1f} times as long as the products"
    )
    step = "more sums a thread, 8 x 8 of them, and loads of 16 bytes: dgw show cuda/tiled --source"
    return found(RECIPE.name, verdict, cost, evidence, step, sure=exact)


RECIPE = Recipe(
    name="shared-memory-bound",
    about="too few multiply-adds for each load from shared memory",
    needs=("smem_wavefronts_actual", "smem_wavefronts_ideal", "smem_wavefronts_sass_ld"),
    judge=judge,
    applies=applies,
)
