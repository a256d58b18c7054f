"""Kernels with one bug each, made from good ones by one textual edit: each bug is found, with its kind and line."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from dgw.workbench.emulator.observer import Access, Finding, SourceLine
from tests.workbench.emulator.compiling import HERE, GemmRun, run_gemm

RING = (HERE / "mutants" / "ring.cu").read_text()
TILED = (HERE / "mutants" / "tiled.cu").read_text()
RAGGED = (100, 72, 136)


class Stores:
    """Remembers which source line stored last to each global address."""

    def __init__(self) -> None:
        self.lines: dict[int, SourceLine] = {}

    def begin(self, *_: object) -> None: ...

    def block(self, *_: object) -> None: ...

    def branch(self, *_: object) -> None: ...

    def barrier(self, *_: object) -> None: ...

    def memory(self, access: Access) -> None:
        if access.space != "global" or access.instructions[0].kind != "st":
            return
        addresses = access.addresses
        active = np.broadcast_to(access.mask, addresses.shape)
        for member, instruction in enumerate(access.instructions):
            for address in addresses[member][active[member]]:
                for offset in range(0, instruction.width_bytes, 2):
                    self.lines[int(address) + offset] = instruction.source


def run_ring(text: str = RING, shape: tuple[int, int, int] = RAGGED, **more: object) -> GemmRun:
    return run_gemm(text, "ring", shape, (64, 64), 128, 24576, **more)  # type: ignore[arg-type]


def run_tiled(text: str = TILED, shape: tuple[int, int, int] = (40, 50, 70), **more: object) -> GemmRun:
    return run_gemm(text, "tiled", shape, (32, 32), 256, 0, np.float32, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new`; a finding of one of `kinds` must name a line that holds `accused` (after the edit)."""

    name: str
    base: str
    old: str
    new: str
    kinds: tuple[str, ...]
    accused: tuple[str, ...]
    shape: tuple[int, int, int] = (0, 0, 0)
    grid: tuple[int, int, int] | None = field(default=None)


A_FRAGMENT, B_FRAGMENT = "ldmatrix.sync.aligned.m8n8.x4.shared", "ldmatrix.sync.aligned.m8n8.x4.trans"
STORE = "reinterpret_cast<uint4*>(&C"
COPY = "cp.async.cg.shared.global"
PRODUCT = "__half2float(a[y + 8 * i][k])"
MUTANTS = [
    Mutant("dropped wait", "ring", "wait<STAGES - 2>();", "", ("async-pending",), (A_FRAGMENT, B_FRAGMENT)),
    Mutant("wait count off by one", "ring", "wait<STAGES - 2>();", "wait<STAGES - 1>();", ("async-pending",),
           (A_FRAGMENT, B_FRAGMENT)),
    Mutant("dropped barrier before the fragments", "ring", "__syncthreads();  // everybody's copies", "//", ("race",),
           (A_FRAGMENT, B_FRAGMENT, COPY)),
    Mutant("dropped barrier before the product", "tiled", "__syncthreads();  // tiles are complete", "", ("race",),
           (PRODUCT,)),
    Mutant("dropped barrier after the product", "tiled", "__syncthreads();  // tiles are free", "", ("race",),
           ("a[r][x] =", "b[r][x] =")),
    Mutant("swapped buffers", "ring", "stages[t % STAGES]", "stages[(t + 1) % STAGES]",
           ("async-pending", "uninitialised-shared"), (A_FRAGMENT, B_FRAGMENT)),
    Mutant("prefetch into the stage that is read", "ring", "stages[(t + STAGES - 1) % STAGES], A",
           "stages[t % STAGES], A", ("async-pending",), (A_FRAGMENT, B_FRAGMENT)),
    Mutant("dropped commit", "ring", "        commit();\n        const", "        const", ("async-pending",),
           (A_FRAGMENT, B_FRAGMENT)),
    Mutant("wrong swizzle on the read side", "ring", "&stage.a[swizzle_a(wm + i * 16 + lane % 16, k / 8 + lane / 16)]",
           "&stage.a[(wm + i * 16 + lane % 16) * BK + (k / 8 + lane / 16) * 8]", ("wrong",), (STORE,)),
    Mutant("unguarded edge load", "tiled", "row0 + r < M && k0 + x < K ? A", "k0 + x < K ? A", ("out-of-bounds",),
           ("a[r][x] =",), shape=(33, 64, 64)),
    Mutant("unguarded edge copy", "ring", "bool inside = m0 + row < M && k < K;", "bool inside = k < K;",
           ("out-of-bounds",), (COPY,)),
    Mutant("unguarded edge store", "tiled", "if (row0 + y + 8 * i < M && column < N) C", "if (column < N) C",
           ("out-of-bounds",), ("C[(row0 + y",)),
    Mutant("wrong k tail", "ring", "(K + BK - 1) / BK", "K / BK", ("wrong",), (STORE,)),
    Mutant("uninitialised accumulator", "tiled", "for (int i = 0; i < 4; ++i) acc[i] = 0.0f;", "",
           ("uninitialised-register",), (PRODUCT,)),
    Mutant("uninitialised tensor accumulator", "ring", "for (int i = 0; i < 32; ++i) (&acc[0][0][0])[i] = 0.0f;", "",
           ("uninitialised-register",), ("mma.sync.aligned",)),
    Mutant("transposed fragment", "ring", "m8n8.x4.trans.shared", "m8n8.x4.shared", ("wrong",),
           (STORE,)),
    Mutant("grid one too small", "tiled", "", "", ("missing",), (), grid=(2, 1, 1)),
    Mutant("racing epilogue", "ring", "__syncthreads();  // the tile is complete", "//", ("race",),
           ("(&out[row * PAD + column", STORE)),
    Mutant("epilogue over stages in use", "ring", "    wait<0>();\n    __syncthreads();", "    wait<0>();", ("race",),
           ("(&out[row * PAD + wn",)),
    Mutant("misaligned vector load", "ring", "PAD = 72", "PAD = 68", ("misaligned",),
           ("(&out[row * PAD + column", STORE)),
    Mutant("misaligned copy", "ring", "A + (size_t)(m0 + row) * K + k : A", "A + (size_t)(m0 + row) * K + k + 1 : A",
           ("misaligned",), (COPY,), shape=(64, 64, 64)),
    Mutant("shared memory left unwritten", "tiled", "a[r][x] = row0 + r < M && k0 + x < K ? A[(row0 + r) * K + k0 + x] "
           ": __float2half(0.0f);", "if (row0 + r < M && k0 + x < K) a[r][x] = A[(row0 + r) * K + k0 + x];",
           ("uninitialised-shared",), (PRODUCT,)),
    Mutant("tile outside shared memory", "tiled", "a[y + 8 * i][k]", "a[y + 8 * i][k + T * T * 4]", ("out-of-bounds",),
           ("a[y + 8 * i][k + T * T * 4]",)),
    Mutant("barrier in a branch", "tiled", "__syncthreads();  // tiles are free", "if (y < 4) __syncthreads();",
           ("barrier",), ("__syncthreads();",)),
    Mutant("barrier in half a warp", "tiled", "__syncthreads();  // tiles are free",
           "if (x < 16) __syncthreads(); else __syncthreads();", ("divergent",), ("if (x < 16) __syncthreads();",)),
    Mutant("threads that leave early", "tiled", "float acc[4];", "if (column >= N) return; float acc[4];",
           ("uninitialised-shared",), (PRODUCT,)),
    Mutant("barrier for too many threads", "tiled", "__syncthreads();  // tiles are free",
           'asm volatile("bar.sync 1, 512;");', ("deadlock",), ("bar.sync 1, 512",)),
    Mutant("store into an input", "tiled", "C[(row0 + y + 8 * i) * N + column] = acc[i]",
           "const_cast<half*>(A)[(row0 + y) * K + column] = acc[i]", ("read-only",), ("const_cast<half*>(A)",)),
]  # fmt: skip


def line_holds(text: str, source: SourceLine, snippet: str) -> bool:
    lines = text.splitlines()
    return source.file.endswith("kernel.cu") and 0 < source.line <= len(lines) and snippet in lines[source.line - 1]


def accusations(mutant: Mutant, text: str, run: GemmRun, stores: Stores, base: int) -> list[tuple[str, SourceLine]]:
    """Findings as (kind, source); a wrong element as `wrong` at the line that stored it, or `missing`."""
    found = [(finding.kind, finding.source) for finding in run.outcome.findings]
    if not run.correct:
        bad = np.argwhere(~(run.result == run.expected))[0]
        size = 2 if mutant.base == "ring" else 4
        address = base + int(bad[0] * run.result.shape[1] + bad[1]) * size
        line = stores.lines.get(address)
        found.append(("missing", SourceLine()) if line is None else ("wrong", line))
    return found


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_mutant_is_caught_with_its_kind_and_line(mutant: Mutant) -> None:
    original = RING if mutant.base == "ring" else TILED
    assert mutant.old in original
    text = original.replace(mutant.old, mutant.new) if mutant.old else original
    stores = Stores()
    runner = run_ring if mutant.base == "ring" else run_tiled
    more = {"shape": mutant.shape} if mutant.shape[0] else {}
    run = runner(text, observer=stores, grid=mutant.grid, **more)  # type: ignore[operator]
    found = accusations(mutant, text, run, stores, run.output_address)
    hits = [source for kind, source in found if kind in mutant.kinds]
    assert hits, found
    if mutant.accused:
        assert any(line_holds(text, source, snippet) for source in hits for snippet in mutant.accused), found


@pytest.mark.parametrize("shape", [(64, 64, 64), (128, 64, 96), RAGGED, (1, 8, 8), (65, 136, 200)], ids=str)
def test_the_clean_ring_is_exact_and_not_accused(shape: tuple[int, int, int]) -> None:
    run = run_ring(shape=shape)
    assert run.correct
    assert run.outcome.findings == ()


@pytest.mark.parametrize("shape", [(32, 32, 32), (40, 50, 70), (1, 1, 1), (33, 65, 97)], ids=str)
def test_the_clean_tiled_kernel_is_exact_and_not_accused(shape: tuple[int, int, int]) -> None:
    run = run_tiled(shape=shape)
    assert run.correct
    assert run.outcome.findings == ()


def test_a_race_names_both_lines_threads_and_the_address() -> None:
    text = TILED.replace("__syncthreads();  // tiles are complete", "")
    race = next(finding for finding in run_tiled(text).outcome.findings if finding.kind == "race")
    assert isinstance(race, Finding)
    assert line_holds(text, race.source, PRODUCT)
    assert line_holds(text, race.other_source, "[r][x] =")
    assert race.space == "shared"
    assert race.address is not None
    assert race.threads
    assert race.other_line < race.line


def test_a_kernel_that_does_not_end_meets_the_step_limit() -> None:
    from dgw.workbench.emulator.machine import EmulatedLaunch
    from tests.workbench.emulator.compiling import ptx_of

    text = 'extern "C" __global__ void spin(volatile int* p) { while (*p == 0) {} }'
    from dgw.workbench.emulator.memory import Memory

    memory = Memory()
    flag = memory.register("flag", np.zeros(4, np.int32))
    outcome = EmulatedLaunch(ptx_of(text), "spin", (1, 1, 1), (32, 1, 1), [flag], memory).run(step_limit=1000)
    assert [finding.kind for finding in outcome.findings] == ["step-limit"]
    assert not outcome.completed
