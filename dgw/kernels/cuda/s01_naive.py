"""Stage 1, naive: one thread for each element of D, operands straight from global memory."""

from __future__ import annotations

from dgw.kernels import declaring
from dgw.model import Config, Device, Launch, Plan, Problem, Source, Tunable, Variant

TYPES = ("f16", "bf16", "f32")


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why this kernel cannot run `problem` with `config` on `device`."""
    columns, rows = declaring.integer(config, "BX"), declaring.integer(config, "BY")
    return (
        declaring.refuses_problem(problem, TYPES, TYPES)
        or declaring.refuses_epilogue(problem)
        or declaring.not_powers_of_two(config, ("BX", "BY"))
        or declaring.refuses_launch(columns * rows, 0, declaring.tiles(problem, rows, columns), device)
    )


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One launch; the blocks that cover D are numbered along one grid dimension, row of blocks after row."""
    columns, rows = declaring.integer(config, "BX"), declaring.integer(config, "BY")
    defines = {**config, **declaring.operand_defines(problem)}
    launch = Launch(
        source=Source(path="s01_naive.cu", defines=tuple(defines.items())),
        entry="naive",
        grid=(declaring.tiles(problem, rows, columns), 1, 1),
        block=(columns, rows, 1),
        arguments=declaring.gemm_arguments(problem),
    )
    return Plan(steps=(launch,), tile=(rows, columns))


VARIANT = Variant(
    id="cuda/naive",
    version=1,
    stage=1,
    idea="one thread computes one element of D from global memory",
    dtypes=TYPES,
    space=(
        Tunable(name="BX", default=32, values=(8, 16, 32, 64, 128), meaning="columns of D a CTA computes"),
        Tunable(name="BY", default=8, values=(1, 2, 4, 8, 16), meaning="rows of D a CTA computes"),
    ),
    refuses=refuses,
    plan=plan,
    notes="Every element of A is read by N threads and every element of B by M threads; only the caches help.",
)
