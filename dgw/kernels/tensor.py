"""What the tensor-core stages share: CTA and warp tiles, pipeline stages, shared memory, registers, refusals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dgw.kernels import declaring
from dgw.model import Argument, Config, Device, Pointer, Problem, Scalar, Tunable, sm

INPUTS = ("f16", "bf16", "tf32")
OUTPUTS = ("f16", "bf16", "f32")
REGISTERS = 65536
STEP_BYTES = 32  # depth of one mma.sync
COLUMNS = 8  # of a row of D that a thread stores at once
MOST_SUMS = 128  # accumulators of a thread beside which two sets of fragments fit into 255 registers
ACTIVATIONS = {"none": "NO_ACTIVATION", "relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELU_TANH", "silu": "SILU"}
QUANTISATIONS = {"none": "NO_SCALE", "tensor": "SCALE_PER_TENSOR", "row": "SCALE_PER_ROW"}

SPACE = (
    Tunable(name="BM", default=128, values=(64, 128, 256), meaning="rows of D a CTA computes"),
    Tunable(name="BN", default=256, values=(32, 64, 128, 256), meaning="columns of D a CTA computes"),
    Tunable(
        name="BK",
        default=64,
        values=(16, 32, 64, 128),
        meaning="k depth of a shared-memory tile, in elements of 16 bits (tf32: half as many)",
    ),
    Tunable(name="WM", default=64, values=(16, 32, 64), meaning="rows of D a warp computes"),
    Tunable(name="WN", default=64, values=(32, 64), meaning="columns of D a warp computes"),
    Tunable(name="STAGES", default=3, values=(2, 3, 4, 5), meaning="tiles of each operand in shared memory"),
    Tunable(name="SPREAD", default=2, values=(2, 3, 4), meaning="quarters of a k tile's steps that carry its copies"),
    Tunable(name="GROUP_M", default=8, values=(1, 2, 4, 8, 16), meaning="rows of tiles that blocks take together"),
)


@dataclass(frozen=True)
class Tiling:
    """What the tunables mean for one problem. Sizes in elements unless said otherwise."""

    bm: int
    bn: int
    bk: int
    wm: int
    wn: int
    stages: int
    element_bytes: int
    a_k_major: bool
    b_k_major: bool

    @classmethod
    def of(cls, problem: Problem, config: Config) -> Tiling:
        """The tiling that `config` asks for."""
        bm, bn, bk, wm, wn, stages = (
            declaring.integer(config, name) for name in ("BM", "BN", "BK", "WM", "WN", "STAGES")
        )
        element_bytes = declaring.element_bytes(problem.a.dtype)
        return cls(
            bm=bm,
            bn=bn,
            bk=bk * 2 // element_bytes,
            wm=wm,
            wn=wn,
            stages=stages,
            element_bytes=element_bytes,
            a_k_major=declaring.k_major(problem, "a"),
            b_k_major=declaring.k_major(problem, "b"),
        )

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * (self.bm // self.wm) * (self.bn // self.wn)

    @property
    def stage_bytes(self) -> int:
        """Bytes of shared memory for one tile of A and one of B."""
        return (self.bm + self.bn) * self.bk * self.element_bytes

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory for the tiles of all stages."""
        return self.stage_bytes * self.stages

    def registers(self) -> int:
        """Registers a thread needs at least: sums, two sets of fragments, and 40 for addresses and values in use."""
        return self.wm * self.wn // 32 + 2 * (self.wm // 4 + self.wn // 4) + 40

    def min_blocks(self) -> int:
        """Blocks an SM shall hold at least, so that the compiler caps registers without spilling."""
        return max(1, min(8, REGISTERS // (self.threads * self.registers())))

    def resident_blocks(self, device: Device) -> int:
        """Blocks that an SM of `device` holds at once, by threads, registers and shared memory; at least 1."""
        by_shared = device.shared_per_sm // (self.shared_bytes + device.shared_reserved_per_block)
        by_threads = device.max_threads_per_sm // self.threads
        return max(1, min(self.min_blocks(), by_shared, by_threads, device.max_blocks_per_sm))

    def refuses(self) -> str | None:
        """Why the sizes do not fit together."""
        if self.bm % self.wm or self.bn % self.wn:
            return f"BM={self.bm} must be a multiple of WM={self.wm}, and BN={self.bn} of WN={self.wn}"
        if self.wm % 16 or self.wn % 32:
            return f"WM={self.wm} must be a multiple of 16, and WN={self.wn} of 32"
        if self.wm * self.wn // 32 > MOST_SUMS:
            return f"WM x WN = {self.wm}x{self.wn} needs {self.wm * self.wn // 32} sums a thread; {MOST_SUMS} fit"
        if self.threads * self.registers() > REGISTERS:
            return (
                f"{self.threads} threads of about {self.registers()} registers do not fit an SM's {REGISTERS}; "
                "take a smaller tile"
            )
        if self.bk * self.element_bytes < 2 * STEP_BYTES:
            return f"a tile of {self.bk} k is one step of the tensor cores, but the pipeline needs two: BK={STEP_BYTES}"
        if self.stages < 2:
            return f"STAGES={self.stages} leaves no tile to copy into; at least 2 are needed"
        elements = 16 // self.element_bytes
        for name, extent, along_k in (("a", self.bm, self.a_k_major), ("b", self.bn, self.b_k_major)):
            in_row = (self.bk if along_k else extent) // elements
            if extent * self.bk // elements % self.threads or self.threads % in_row:
                return (
                    f"the {extent}x{self.bk} tile of {name} cannot be copied "
                    f"in whole accesses by {self.threads} threads"
                )
        return None


def refuses(problem: Problem, config: Config, device: Device, outputs: Iterable[str] = OUTPUTS) -> str | None:
    """Why the tensor-core stages cannot run `problem` with `config` on `device`; says nothing of epilogues."""
    found = declaring.refuses_problem(problem, INPUTS, outputs)
    found = found or declaring.not_powers_of_two(config, ("BM", "BN", "BK", "WM", "WN", "GROUP_M"))
    if found:
        return found
    tiling = Tiling.of(problem, config)
    if found := tiling.refuses():
        return found
    blocks = declaring.tiles(problem, tiling.bm, tiling.bn)
    found = declaring.refuses_launch(tiling.threads, tiling.shared_bytes, blocks, device)
    fitting = device.shared_per_block // tiling.stage_bytes
    return f"{found}; STAGES={fitting} fits" if found and 2 <= fitting < tiling.stages else found


def defines(problem: Problem, config: Config) -> Config:
    """The defines that every tensor-core stage takes. Operands aligned to less than 4 bytes go through registers."""
    tiling = Tiling.of(problem, config)
    found = {name: config[name] for name in ("BM", "BN", "WM", "WN", "STAGES", "SPREAD", "GROUP_M")} | {"BK": tiling.bk}
    found |= declaring.operand_defines(problem)
    for name in ("VEC_C", "VEC_D"):
        found[name] = min(int(found[name]), COLUMNS)
    narrowest = min(int(found["VEC_A"]), int(found["VEC_B"])) * tiling.element_bytes
    return found | {
        "MIN_BLOCKS": tiling.min_blocks() if narrowest == 16 else 1,
        "ASYNC": "true" if narrowest >= 4 else "false",
    }


def refuses_epilogue(problem: Problem, device: Device) -> str | None:
    """Why the fused epilogue cannot produce what `problem` asks for."""
    dtype, quantise = problem.d.dtype, problem.epilogue.quantise
    if (quantise == "none") != (dtype in OUTPUTS):
        return f"quantise {quantise} does not go with an output of {dtype}"
    if dtype == "e4m3" and sm(device.arch) < 89:
        return f"{device.name} ({device.arch}) has no conversion to e4m3; sm_89 is the first"
    if dtype == "e4m3" and problem.d.zero_point != 0:
        return "e4m3 has no zero point"
    return None


def fused_defines(problem: Problem, config: Config) -> Config:
    """The defines of the stages with a fused epilogue."""
    return defines(problem, config) | epilogue_defines(problem)


def epilogue_defines(problem: Problem) -> Config:
    """What epilogue.cuh knows at compile time: the addends, the activation and the scale of D."""
    found: Config = {}
    for name in ("bias", "residual"):
        operand = problem.operands().get(name)
        found[f"USE_{name.upper()}"] = "true" if operand else "false"
        found[f"TYPE_{name.upper()}"] = declaring.type_name(operand.dtype if operand else "f16")
        vector = declaring.vector_elements(problem, name) if operand else 1
        found[f"VEC_{name.upper()}"] = min(vector, COLUMNS)
    found["ACTIVATION"] = ACTIVATIONS[problem.epilogue.activation]
    found["QUANTISATION"] = QUANTISATIONS[problem.epilogue.quantise]
    return found


def fused_arguments(problem: Problem) -> tuple[Argument, ...]:
    """The plain arguments with bias, residual and the output's scale after the pointers, ldr and the zero point.

    `d_scale` points to one f32 (quantise tensor) or one a row of D; what the problem lacks is null.
    """
    pointers, scalars = declaring.gemm_arguments(problem)[:4], declaring.gemm_arguments(problem)[4:]
    ldr = None if problem.residual is not None else 0
    return (
        *pointers,
        Pointer(operand="bias"),
        Pointer(operand="residual"),
        Pointer(operand="d_scale"),
        *scalars[:7],
        Scalar(name="ldr", dtype="i64", value=ldr),
        *scalars[7:],
        Scalar(name="zero_point", dtype="f32", value=float(problem.d.zero_point)),
    )
