"""Stage 6, persistent: as many programs as fit the device, each taking one tile after another."""

from __future__ import annotations

from dgw.kernels import declaring
from dgw.kernels.triton import defects, family
from dgw.kernels.triton.defects import Use
from dgw.model import Claim, Config, Device, Plan, Problem, Tunable, Variant, sm

RUNG = family.Rung(
    entry="persistent", file="s06_persistent_kernel.py", inputs=family.TENSOR_INPUTS, epilogue=True
)  # fmt: skip


def descriptors(problem: Problem, config: Config, device: Device) -> tuple[bool, bool]:
    """Whether A and B, and whether D, are moved by the tensor memory accelerator (sm_90 and newer)."""
    if sm(device.arch) < 90 or not declaring.integer(config, "DESCRIPTORS"):
        return False, False
    return all(family.describable(problem, name) for name in ("a", "b")), family.describable(problem, "d")


def use(problem: Problem, config: Config, device: Device) -> Use:
    """What this kernel does that some version of Triton may get wrong."""
    loads, stores = descriptors(problem, config, device)
    return Use(
        warp_specialize=bool(config["WARP_SPECIALIZE"]),
        flatten=bool(config["FLATTEN"]),
        descriptors=loads or stores,
        pointer_loads=not loads or bool({"c", "bias", "residual"} & problem.operands().keys()),
        bm=declaring.integer(config, "BM"),
        bn=declaring.integer(config, "BN"),
        warps=declaring.integer(config, "WARPS"),
    )


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why this kernel cannot run `problem` with `config` on `device`."""
    return family.refuses(RUNG, problem, config, device, use(problem, config, device))


def warns(problem: Problem, config: Config, device: Device) -> tuple[str, ...]:
    """What the installed Triton gets wrong elsewhere on `device`."""
    return defects.warnings(use(problem, config, device), device)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One launch of CTAS_PER_SM programs for each SM, or of one for each tile where there are fewer tiles."""
    loads, stores = descriptors(problem, config, device)
    extra = {
        "DESCRIPTORS": int(loads),
        "STORE_DESCRIPTOR": int(stores),
        "SUBTILES": declaring.integer(config, "SUBTILES"),
        "FLATTEN": declaring.integer(config, "FLATTEN"),
        "WARP_SPECIALIZE": declaring.integer(config, "WARP_SPECIALIZE"),
    }
    tiles = declaring.tiles(problem, declaring.integer(config, "BM"), declaring.integer(config, "BN"))
    blocks = min(tiles, device.sms * declaring.integer(config, "CTAS_PER_SM"))
    return family.plan(RUNG, problem, config, device, blocks=blocks, extra=extra)


VARIANT = Variant(
    id="triton/persistent",
    version=1,
    stage=6,
    idea="as many programs as fit the device take one tile after another, and tensor descriptors move the tiles",
    dtypes=family.TENSOR_INPUTS,
    space=(
        *family.space(bm=128, bn=256, bk=64, warps=8, group=8, stages=3),
        Tunable(
            name="DESCRIPTORS", default=1, values=(0, 1), meaning="tiles move by TMA where device and strides allow"
        ),
        Tunable(name="SUBTILES", default=2, values=(1, 2), meaning="column blocks in which a tile of D is stored"),
        Tunable(name="FLATTEN", default=0, values=(0, 1), meaning="one loop over tiles and k, pipelined across tiles"),
        Tunable(name="CTAS_PER_SM", default=1, values=(1, 2, 3, 4), meaning="programs for each SM"),
        Tunable(name="WARP_SPECIALIZE", default=0, values=(0, 1), meaning="warps of their own for the loads"),
    ),
    refuses=refuses,
    warns=warns,
    plan=plan,
    needs=("triton",),
    claims=(
        Claim(
            metric="blocks",
            relation="falls",
            value=1.0,
            when=("many-tiles",),
            why="no more programs are started than run at the same time",
        ),
        Claim(
            metric="tensor_pipe_util",
            relation="rises",
            value=1.0,
            when=("many-tiles", "short-k"),
            why="starting a program and filling its pipeline costs as much as many of its few k tiles",
        ),
    ),
    notes=(
        "Descriptors are made by the kernel, in scratch memory that the plan declares. They need bases and leading "
        "dimensions that are multiples of 16 bytes; other operands are read through pointers. Warp specialisation is "
        "off, and refused where the installed Triton is known to fail with it."
    ),
    synchronises="mbarrier",
)
