"""How the copy engine reads the lines of an operand: in place, in phases, or out of a copy.

It steps through lines that are multiples of 16 bytes apart. Of others it reads every second, fourth or eighth: lines of
one phase are such multiples apart, and a tensor map for each phase reaches all of them (Lines in tma.cuh).
"""

from __future__ import annotations

from math import gcd

from dgw.kernels import declaring
from dgw.model import Config, Problem

ELEMENTS = 8  # of two bytes in 16
MOST = 8  # phases: so many lines are a multiple of 16 bytes apart whatever one is

Phases = dict[str, int]
"""Of A and B: in how many their lines are read, each a power of two to 8; 0 for an operand that is copied first."""


def stored_shape(problem: Problem, name: str) -> tuple[int, int]:
    """Lines and elements a line of operand `name` as it is stored."""
    rows, cols = problem.logical_shape(name)
    return (rows, cols) if problem.operands()[name].order == "row" else (cols, rows)


def can_step(problem: Problem, name: str) -> bool:
    """Whether the copy engine can step through operand `name`: its lines are multiples of 16 bytes apart."""
    step = problem.leading_dimension(name) * declaring.element_bytes(problem.operands()[name].dtype)
    return (stored_shape(problem, name)[0] == 1 or step % 16 == 0) and step < 2**40


def shift(problem: Problem, name: str) -> int:
    """Elements from the last multiple of 16 bytes to the first of operand `name`; bases are multiples of 256 bytes."""
    operand = problem.operands()[name]
    return operand.offset % (16 // declaring.element_bytes(operand.dtype))


def exchanges_columns(problem: Problem, config: Config) -> bool:
    """Whether columns of D have to be put in order, which takes registers."""
    return declaring.k_major(problem, "b") and phases(problem, config)["b"] > 1


def takes_registers(problem: Problem, config: Config) -> bool:
    """Whether bringing lines in phases in order takes registers while products are added up, or after that."""
    return exchanges_columns(problem, config) or meets_in_registers(problem, phases(problem, config))


def phases(problem: Problem, config: Config | None = None) -> Phases:
    """How the lines of A and B are read. Several phases only with PHASED in `config`.

    Lines in phases come out of order. Along m and n that is put right on the way to D: rows of a warp are then lines of
    one phase, and columns are exchanged in blocks of eight for each phase. Along k the order may be any that A and B
    share: where only one of them lies across k, in eight phases, the fragments of A bring the two together. CTAs of a
    cluster that share a tile load some of the phases each.
    """
    given = {"PHASED": 0, "CLUSTER_M": 1, "CLUSTER_N": 1, **(config or {})}
    apart = {name: _apart(problem, name) for name in ("a", "b")}
    found = {name: 1 if count == 1 else 0 for name, count in apart.items()}
    if not declaring.integer(given, "PHASED"):
        return found
    sharers = {"a": declaring.integer(given, "CLUSTER_N"), "b": declaring.integer(given, "CLUSTER_M")}
    across = [name for name in apart if not declaring.k_major(problem, name)]
    if len(across) == 2:
        most = max(apart.values())
        fits = most <= problem.k and all(most % count == 0 for count in sharers.values())
        return dict.fromkeys(apart, most) if most > 1 and fits else found
    for name in (name for name, count in found.items() if not count):
        count = MOST if name in across else apart[name]
        if (
            count % sharers[name] == 0
            and stored_shape(problem, name)[0] >= count
            and (name in across or _can_be_ordered(problem, given, name, count))
        ):
            found[name] = count
    return found


def _can_be_ordered(problem: Problem, config: Config, name: str, count: int) -> bool:
    """Whether lines along k, in `count` phases, are put in the order of D: rows in sixteens, columns in eights."""
    if name == "b":
        return declaring.integer(config, "BN") % (8 * count) == 0
    return declaring.integer(config, "BM") % (16 * count) == 0 and problem.d.dtype in ("f16", "bf16", "f32")


def meets_in_registers(problem: Problem, found: Phases) -> bool:
    """Whether the order of k of A and B is brought together in A's fragments: the one of them across k is in phases."""
    across = [name for name in found if not declaring.k_major(problem, name)]
    return len(across) == 1 and found[across[0]] > 1


def is_spread(problem: Problem, found: Phases) -> bool:
    """Whether the phases of A are spread in shared memory, because fragments are loaded across them."""
    return meets_in_registers(problem, found) and not declaring.k_major(problem, "a")


def _apart(problem: Problem, name: str) -> int:
    """After so many lines the distance is a multiple of 16 bytes."""
    return 1 if can_step(problem, name) else ELEMENTS // gcd(ELEMENTS, problem.leading_dimension(name))


def reasons(problem: Problem, found: Phases) -> tuple[str, ...]:
    """How operands whose lines are not multiples of 16 bytes apart are read, in words; nothing of others."""
    said = [
        f"{name}: lines {problem.leading_dimension(name)} elements apart are "
        + (f"read where they lie, in {count} phases" if count else "copied first")
        for name, count in found.items()
        if count != 1
    ]
    met = ["a is multiplied from registers, in the order of k that the other one has"]
    return (*said, *(met if meets_in_registers(problem, found) else []))


def defines(problem: Problem, found: Phases) -> Config:
    """PHASES_*, SHIFT_* and STEP_* of A and B, in elements, and whether A is multiplied from registers."""
    said: Config = {"A_IN_REGISTERS": "true" if meets_in_registers(problem, found) else "false"}
    for name, count in found.items():
        said[f"PHASES_{name.upper()}"] = max(count, 1)
        said[f"SHIFT_{name.upper()}"] = shift(problem, name) if count else 0
        said[f"STEP_{name.upper()}"] = problem.leading_dimension(name) % ELEMENTS if count > 1 else 0
    return said


def rows_apart(problem: Problem, found: Phases) -> int:
    """Rows of D from one that a warp computes to the next."""
    return found["a"] if declaring.k_major(problem, "a") and found["a"] else 1
