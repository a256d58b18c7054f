"""What the register-blocked stages without tensor cores share: tile sizes, threads, shared memory, refusals."""

from __future__ import annotations

from dataclasses import dataclass

from dgw.kernels import declaring
from dgw.model import Config, Device, Launch, Plan, Problem, Source, Tunable

INPUTS = ("f16", "bf16", "f32")
OUTPUTS = ("f16", "bf16", "f32")
LANES_M, LANES_N = 8, 4  # threads of a warp along m and n
REGISTERS = 65536
MOST_SUMS = 128  # accumulators of a thread that leave room for operands below 255 registers

SPACE = (
    Tunable(name="BM", default=128, values=(32, 64, 128, 256), meaning="rows of D a CTA computes"),
    Tunable(name="BN", default=128, values=(32, 64, 128, 256), meaning="columns of D a CTA computes"),
    Tunable(name="BK", default=32, values=(8, 16, 32, 64), meaning="k depth of a shared-memory tile"),
    Tunable(name="TM", default=8, values=(4, 8, 16), meaning="rows of D a thread computes"),
    Tunable(name="TN", default=8, values=(4, 8, 16), meaning="columns of D a thread computes"),
    Tunable(
        name="GRANULARITY",
        default=8,
        values=(4, 8),
        meaning="elements that one shared-memory access moves (at most 16 bytes)",
    ),
)


@dataclass(frozen=True)
class Tiling:
    """What BM, BN, BK, TM, TN and GRANULARITY mean for one problem. Sizes in elements unless said otherwise."""

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    chunk: int  # elements that one shared-memory access moves
    element_bytes: int
    a_k_major: bool
    b_k_major: bool

    @classmethod
    def of(cls, problem: Problem, config: Config) -> Tiling:
        """The tiling that `config` asks for."""
        bm, bn, bk, tm, tn, granularity = (
            declaring.integer(config, name) for name in ("BM", "BN", "BK", "TM", "TN", "GRANULARITY")
        )
        size = declaring.element_bytes(problem.a.dtype)
        return cls(
            bm=bm,
            bn=bn,
            bk=bk,
            tm=tm,
            tn=tn,
            chunk=min(granularity, 16 // size),
            element_bytes=size,
            a_k_major=declaring.k_major(problem, "a"),
            b_k_major=declaring.k_major(problem, "b"),
        )

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return (self.bm // self.tm) * (self.bn // self.tn)

    @property
    def tile_bytes(self) -> int:
        """Bytes of shared memory for one tile of A and one of B."""
        return (self.bm + self.bn) * self.bk * self.element_bytes

    def refuses(self) -> str | None:
        """Why the sizes do not fit together."""
        if self.bm % (LANES_M * self.tm) or self.bn % (LANES_N * self.tn):
            return (
                f"BM={self.bm} must be a multiple of {LANES_M} x TM={self.tm}, "
                f"and BN={self.bn} of {LANES_N} x TN={self.tn}"
            )
        if self.tm * self.tn > MOST_SUMS:
            return f"TM x TN = {self.tm * self.tn} sums a thread do not fit its registers; at most {MOST_SUMS} do"
        if self.threads * self.registers() > REGISTERS:
            return (
                f"{self.threads} threads of about {self.registers()} registers do not fit an SM's {REGISTERS}; "
                "take a smaller tile"
            )
        if self.bk % self.chunk:
            return f"BK={self.bk} is not a multiple of the {self.chunk} elements that one access moves"
        for name, extent, per_thread, along_k in (
            ("a", self.bm, self.tm, self.a_k_major),
            ("b", self.bn, self.tn, self.b_k_major),
        ):
            if not along_k and per_thread % self.chunk:
                return f"a thread's {per_thread} elements of {name} are no multiple of the {self.chunk} in an access"
            in_row = (self.bk if along_k else extent) // self.chunk
            if extent * self.bk // self.chunk % self.threads or self.threads % in_row:
                return (
                    f"the {extent}x{self.bk} tile of {name} cannot be copied "
                    f"in whole accesses by {self.threads} threads"
                )
        return None

    def registers(self) -> int:
        """Registers a thread needs at least: sums, the chunks it holds, and 24 for addresses and values in use."""
        words = self.chunk * self.element_bytes // 4
        chunks = sum(
            per_thread if along_k else per_thread // self.chunk
            for per_thread, along_k in ((self.tm, self.a_k_major), (self.tn, self.b_k_major))
        )
        return self.tm * self.tn + chunks * words + 24


def access_elements(problem: Problem, tiling: Tiling) -> dict[str, int]:
    """VEC_A .. VEC_D: elements of each global access, at most a chunk of A and B and a thread's row of C and D."""
    limits = {"a": tiling.chunk, "b": tiling.chunk, "c": tiling.tn, "d": tiling.tn}
    defines = declaring.operand_defines(problem)
    return {f"VEC_{name.upper()}": min(int(defines[f"VEC_{name.upper()}"]), most) for name, most in limits.items()}


def can_copy_asynchronously(problem: Problem, tiling: Tiling) -> bool:
    """Whether the alignment of A and B allows cp.async, which moves at least 4 bytes."""
    vectors = access_elements(problem, tiling)
    return min(vectors["VEC_A"], vectors["VEC_B"]) * tiling.element_bytes >= 4


def min_blocks(problem: Problem, tiling: Tiling) -> int:
    """Blocks an SM shall hold at least, so that the compiler caps registers without spilling; 1 for scalar copies."""
    vectors = access_elements(problem, tiling)
    if min(vectors["VEC_A"], vectors["VEC_B"]) < tiling.chunk:
        return 1
    return max(1, min(8, REGISTERS // (tiling.threads * tiling.registers())))


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why the register-blocked stages cannot run `problem` with `config` on `device`."""
    found = declaring.refuses_problem(problem, INPUTS, OUTPUTS) or declaring.refuses_epilogue(problem)
    found = found or declaring.not_powers_of_two(config, ("BM", "BN", "BK", "TM", "TN", "GRANULARITY"))
    if found:
        return found
    tiling = Tiling.of(problem, config)
    stages = int(config.get("STAGES", 1))
    blocks = declaring.tiles(problem, tiling.bm, tiling.bn)
    return tiling.refuses() or declaring.refuses_launch(tiling.threads, tiling.tile_bytes * stages, blocks, device)


def plan(problem: Problem, config: Config, source: str, entry: str, extra: Config | None = None) -> Plan:
    """One launch of one block per tile of D. `extra` are defines beside those that every stage takes."""
    tiling = Tiling.of(problem, config)
    defines = {name: config[name] for name in ("BM", "BN", "BK", "TM", "TN", "GRANULARITY")}
    defines |= declaring.operand_defines(problem) | access_elements(problem, tiling)
    defines |= {"MIN_BLOCKS": min_blocks(problem, tiling)} | (extra or {})
    launch = Launch(
        source=Source(path=source, defines=tuple(defines.items())),
        entry=entry,
        grid=(declaring.tiles(problem, tiling.bm, tiling.bn), 1, 1),
        block=(tiling.threads, 1, 1),
        arguments=declaring.gemm_arguments(problem),
        shared_bytes=tiling.tile_bytes * int(config.get("STAGES", 1)),
    )
    return Plan(steps=(launch,), tile=(tiling.bm, tiling.bn))
