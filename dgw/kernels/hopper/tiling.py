"""What the Hopper stages share: the tile of a CTA, its ring of shared memory, clusters, defines and refusals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dgw.kernels import declaring, tensor
from dgw.kernels.declaring import ceil_div, integer
from dgw.kernels.hopper import alignment
from dgw.model import Argument, Config, Device, Pointer, Problem, Scalar, TensorMap, Tunable

INPUTS = ("f16", "bf16")
OUTPUTS = tensor.OUTPUTS
DEPTH = 64  # k elements of a tile: 128 bytes, the widest swizzle
BLOCK_BYTES = 8192  # 64 lines of 128 bytes
WARPGROUP = 128  # threads
BARRIER_BYTES = 16  # of a slot: full and empty
PIECE_BYTES = 2 * 16 * 128  # a warp's two pieces of D on their way to global memory
BY_ENGINE, BY_ROWS, FROM_REGISTERS = "BY_ENGINE", "BY_ROWS", "FROM_REGISTERS"  # ways of D (tile_output.cuh)
MOST_SUMS = 128  # accumulators of a thread that fit beside addresses without spilling
LARGEST_CLUSTER = 8

QUANTISED = (*OUTPUTS, "s8", "e4m3")  # what the fused epilogue stores

BM = Tunable(name="BM", default=128, values=(64, 128, 256), meaning="rows of D a CTA computes")
BN = Tunable(name="BN", default=256, values=tuple(range(16, 257, 16)), meaning="columns of D a CTA computes")
STAGES = Tunable(
    name="STAGES", default=4, values=(2, 3, 4, 5, 6, 7, 8), meaning="tiles of each operand in shared memory"
)
GROUP_M = Tunable(
    name="GROUP_M", default=16, values=(1, 2, 4, 8, 16, 32), meaning="rows of tiles that CTAs take together"
)
PINGPONG = Tunable(
    name="PINGPONG",
    default=0,
    values=(0, 1),
    meaning="whether two warpgroups compute tiles in turn instead of one together",
)
COPY_AHEAD = Tunable(
    name="COPY_AHEAD",
    default=0,
    values=(0, 1),
    meaning="whether operands that have to be copied are copied ahead of what is multiplied, not before",
)
SETMAXNREG = Tunable(
    name="SETMAXNREG",
    default=1,
    values=(0, 1),
    meaning="whether registers move from the warp that copies to the others",
)
CLUSTER_M = Tunable(
    name="CLUSTER_M", default=2, values=(1, 2), meaning="CTAs of a cluster that share tiles of B (rows of tiles)"
)
SPLIT = Tunable(
    name="SPLIT", default=1, values=(1, 2, 4, 8), meaning="CTAs of a cluster that share the k of a tile of D"
)
CLUSTER_N = Tunable(
    name="CLUSTER_N", default=1, values=(1, 2, 4), meaning="CTAs of a cluster that share tiles of A (columns of tiles)"
)


@dataclass(frozen=True)
class Tiling:
    """What the tunables mean for one problem; sizes in elements unless said otherwise."""

    bm: int
    bn: int
    stages: int
    cluster_m: int
    cluster_n: int
    split: int
    a_k_major: bool
    b_k_major: bool
    output: str
    pingpong: bool = False

    @classmethod
    def of(cls, problem: Problem, config: Config, output: str) -> Tiling:
        """The tiling that `config` asks for. `output`: the way of D to global memory."""
        return cls(
            bm=integer(config, "BM"),
            bn=integer(config, "BN"),
            stages=integer(config, "STAGES"),
            cluster_m=integer({"CLUSTER_M": 1, **config}, "CLUSTER_M"),
            cluster_n=integer({"CLUSTER_N": 1, **config}, "CLUSTER_N"),
            split=integer({"SPLIT": 1, **config}, "SPLIT"),
            a_k_major=declaring.k_major(problem, "a"),
            b_k_major=declaring.k_major(problem, "b"),
            output=output,
            pingpong=bool(integer({"PINGPONG": 0, **config}, "PINGPONG")),
        )

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""
        return self.cluster_m * self.cluster_n * self.split

    @property
    def columns(self) -> int:
        """Columns of D that a CTA stores of a tile."""
        return self.bn // self.split

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply."""
        return 1 if self.bm == 64 and not self.pingpong else 2

    @property
    def team(self) -> int:
        """Warpgroups that share a tile of D."""
        return 1 if self.pingpong else self.consumers

    @property
    def threads(self) -> int:
        """Threads of a CTA: the warpgroups that multiply, and one of which a warp copies."""
        return WARPGROUP * (self.consumers + 1)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one tile of A and one of B."""
        return tile_bytes(self.bm, self.a_k_major) + tile_bytes(self.bn, self.b_k_major)

    @property
    def staging_bytes(self) -> int:
        """Bytes in which D waits to be stored."""
        return 0 if self.output == FROM_REGISTERS else self.consumers * 4 * PIECE_BYTES

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory: tiles, staging, barriers."""
        return self.stages * (self.slot_bytes + BARRIER_BYTES) + self.staging_bytes + BARRIER_BYTES

    def deepest(self, limit: int) -> int:
        """The most slots of a ring that fit `limit` bytes of shared memory."""
        return (limit - self.staging_bytes - BARRIER_BYTES) // (self.slot_bytes + BARRIER_BYTES)

    def clusters(self, problem: Problem) -> int:
        """Clusters of tiles that cover D."""
        return declaring.tiles(problem, self.bm * self.cluster_m, self.bn * self.cluster_n)

    def refuses(self) -> str | None:
        """Why the sizes do not fit together."""
        if self.bm not in (64, 128, 256):
            return f"BM={self.bm} must be 64, 128 or 256: a warpgroup multiplies 64 rows"
        if self.bn % 16 or not 16 <= self.bn <= 256:
            return f"BN={self.bn} must be a multiple of 16 from 16 to 256, as wgmma takes them"
        sums = self.bm // self.team * self.bn // 128
        if sums > MOST_SUMS:
            return f"{self.bm}x{self.bn} needs {sums} sums a thread; {MOST_SUMS} fit"
        if self.stages < 2:
            return f"STAGES={self.stages} leaves no tile to copy into; at least 2 are needed"
        if self.pingpong and self.split > 1:
            return f"PINGPONG=1 needs several tiles a CTA, but with SPLIT={self.split} it has a part of one"
        return self._refuses_split() or self._refuses_cluster()

    def _refuses_split(self) -> str | None:
        if self.split == 1:
            return None
        if self.cluster_m * self.cluster_n > 1:
            return "a cluster shares either k (SPLIT) or tiles of operands (CLUSTER_M, CLUSTER_N), not both"
        if self.bn % (16 * self.split):
            return f"SPLIT={self.split} CTAs cannot add up equal parts of BN={self.bn} columns, in sixteens"
        if self.bm * self.columns * 4 * (self.split - 1) > self.stages * self.slot_bytes:
            return f"the sums of {self.bm}x{self.bn} do not fit where {self.stages} tiles of operands were"
        return None

    def _refuses_cluster(self) -> str | None:
        if self.cluster > LARGEST_CLUSTER:
            return f"a cluster of {self.cluster} CTAs is more than {LARGEST_CLUSTER}"
        for name, extent, along_k, shares, tunable in (
            ("a", self.bm, self.a_k_major, self.cluster_n, "CLUSTER_N"),
            ("b", self.bn, self.b_k_major, self.cluster_m, "CLUSTER_M"),
        ):
            parts = extent // 8 if along_k else ceil_div(extent, 64)
            if parts % shares or (along_k and extent % 8):
                return f"{tunable}={shares} CTAs cannot load equal parts of the {extent} wide tile of {name}"
        return None


def tile_bytes(extent: int, along_k: bool) -> int:
    """Bytes of a tile in shared memory; across k it consists of whole blocks of 64."""
    return extent * 128 if along_k else ceil_div(extent, 64) * BLOCK_BYTES


def box(problem: Problem, name: str, lines: int) -> TensorMap:
    """The tensor map of A or B: `lines` of its m or n by 64 of k; stored across k, 64 of k by 64 of m or n."""
    return TensorMap(operand=name, box=(lines, 64) if declaring.k_major(problem, name) else (DEPTH, 64), swizzle="128")


def output_box(problem: Problem, columns: int) -> TensorMap:
    """The tensor map of D: boxes of 16 rows by at most 128 bytes that divide `columns` of it (staged_output.cuh)."""
    size = declaring.element_bytes(problem.d.dtype)
    line = next(width for width in (128, 64, 32) if columns * size % width == 0)
    return TensorMap(operand="d", box=(16, line // size), swizzle=str(line))


def output_of(problem: Problem) -> str:
    """The way of D to global memory, of a kernel that knows all of them.

    BY_ENGINE: through shared memory, by the copy engine, where it reaches D. BY_ROWS: through shared memory, a row at a
    time, where it does not. FROM_REGISTERS: a quantised D, of which a lane has eight neighbours in few bytes.
    """
    if problem.d.dtype not in OUTPUTS:
        return FROM_REGISTERS
    whole = problem.n * declaring.element_bytes(problem.d.dtype) % 16 == 0  # the copy engine writes no less
    return BY_ENGINE if whole and alignment.obstacle(problem, "d") is None else BY_ROWS


def epilogue_arguments(problem: Problem) -> tuple[Argument, ...]:
    """C, D, bias, residual and scale; m, n, k; leading dimensions; alpha, beta, zero point."""
    has_c = "c" in problem.operands()
    return (
        Pointer(operand="c" if has_c else "d"),
        *(Pointer(operand=name) for name in ("d", "bias", "residual", "d_scale")),
        *(Scalar(name=size) for size in ("m", "n", "k")),
        Scalar(name="ldc", dtype="i64", value=None if has_c else 0),
        Scalar(name="ldd", dtype="i64"),
        Scalar(name="ldr", dtype="i64", value=None if problem.residual is not None else 0),
        Scalar(name="alpha", dtype="f32"),
        Scalar(name="beta", dtype="f32"),
        Scalar(name="zero_point", dtype="f32", value=float(problem.d.zero_point)),
    )


def refuses(
    problem: Problem,
    config: Config,
    device: Device,
    outputs: Iterable[str] = OUTPUTS,
    output: str = FROM_REGISTERS,
) -> str | None:
    """Why the Hopper stages cannot run `problem` with `config` on `device`; says nothing of epilogues."""
    found = declaring.refuses_problem(problem, INPUTS, outputs)
    if found:
        return found
    tiling = Tiling.of(problem, config, output)
    if found := tiling.refuses():
        return found
    if tiling.split > ceil_div(problem.k, DEPTH):
        return f"k = {problem.k} has no {tiling.split} tiles of {DEPTH} for SPLIT={tiling.split}"
    blocks = tiling.clusters(problem) * tiling.cluster
    found = declaring.refuses_launch(tiling.threads, tiling.shared_bytes, blocks, device)
    fitting = tiling.deepest(device.shared_per_block)
    return f"{found}; STAGES={fitting} fits" if found and 2 <= fitting < tiling.stages else found


def refuses_fused(problem: Problem, config: Config, device: Device) -> str | None:
    """Why the stages with a fused epilogue cannot run `problem` with `config` on `device`."""
    found = refuses(problem, config, device, QUANTISED, output_of(problem))
    return found or tensor.refuses_epilogue(problem, device)


def defines(problem: Problem, config: Config, output: str) -> Config:
    """The defines of every Hopper stage, those of the fused epilogue included."""
    tiling = Tiling.of(problem, config, output)
    found: Config = {"BM": tiling.bm, "BN": tiling.bn, "STAGES": tiling.stages}
    found["SETMAXNREG"] = integer({"SETMAXNREG": 1, **config}, "SETMAXNREG")
    found["PINGPONG"] = integer({"PINGPONG": 0, **config}, "PINGPONG")
    found |= {"SPLIT": tiling.split} if tiling.split > 1 else {}
    found |= {"CLUSTER_M": tiling.cluster_m, "CLUSTER_N": tiling.cluster_n, "STAGING_BYTES": tiling.staging_bytes}
    found |= declaring.operand_defines(problem) | tensor.epilogue_defines(problem)
    del found["VEC_A"], found["VEC_B"]  # the copy engine's affair
    found["VEC_C"] = min(int(found["VEC_C"]), tensor.COLUMNS) if found["USE_C"] == "true" else 1
    found["VEC_D"] = min(int(found["VEC_D"]), tensor.COLUMNS) if output == FROM_REGISTERS else 1
    found["OUTPUT"] = output
    found["COPY_AHEAD"] = integer({"COPY_AHEAD": 0, **config}, "COPY_AHEAD")
    return found
