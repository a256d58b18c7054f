"""Does the machine code do what the PTX says? Memory and tensor instructions of both, paired by source line.

ptxas may merge, widen, split, remove or add accesses, and a different width means different phases and so different
wavefronts. Where every line has the same instructions of the same widths in both, what the emulator counts for that
family of instructions is what the hardware executes. Whether the machine code guards an access or branches around it
is no difference: ncu's SASS level counts where a lane takes part, and so does the emulator.

Matrix instructions are told apart by opcode and shape: ptxas computes some that PTX has with several others (fp8 on
sm_90 with two HMMA). It also likes to make constants with HFMA2.MMA, which runs on the tensor pipe: the hardware
counter of that pipe has them, PTX does not. They are a family of their own.

What the copy engine and wgmma do in shared and global memory, beside the pipes of warps, has not been compared with
Nsight Compute: of a kernel that uses them nothing in these families, and no product, is exact.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from dgw.toolchain.sass import MemoryInstruction, SassInstruction, memory_instructions
from dgw.workbench.emulator.observer import InstructionInfo

EXACT, PTX_LEVEL = "exact", "ptx-level"
FAMILIES = ("shared", "copy", "global", "local", "tensor", "constants")

_SASS = {
    "LDS": ("shared", "load"), "STS": ("shared", "store"), "LDSM": ("shared", "ldmatrix"),
    "STSM": ("shared", "stmatrix"), "ATOMS": ("shared", "atomic"), "REDS": ("shared", "atomic"),
    "LDGSTS": ("copy", "cp.async"), "LDG": ("global", "load"), "STG": ("global", "store"),
    "ATOMG": ("global", "atomic"), "REDG": ("global", "atomic"), "RED": ("global", "atomic"),
    "LDL": ("local", "load"), "STL": ("local", "store"),
    "LD": ("global", "generic load"), "ST": ("global", "generic store"), "ATOM": ("global", "generic atomic"),
}  # fmt: skip
_PTX = {"ld": "load", "st": "store", "atom": "atomic", "red": "atomic"}
_MMA_OPCODES = ("mma", "wmma", "wgmma")
_PIPES = {
    "f16": "HMMA", "bf16": "HMMA", "tf32": "HMMA", "f64": "DMMA", "e4m3": "QMMA", "e5m2": "QMMA", "b1": "BMMA",
    "s8": "IMMA", "u8": "IMMA", "s4": "IMMA", "u4": "IMMA",
}  # fmt: skip
_PTX_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_SASS_SHAPE = re.compile(r"\d+(x\d+x\d+)?")

_BESIDE = "the copy engine or wgmma works beside the pipes of warps, and is not compared with Nsight Compute"

Line = tuple[str, int]  # file name without folders, line
Operation = tuple[str, str, int]  # family, name, bytes a thread (0 for tensor)


@dataclass(frozen=True)
class Audit:
    """The outcome: per family the differences in words (none: clean), and how many instructions were paired."""

    differences: dict[str, tuple[str, ...]]
    paired: int

    @property
    def clean(self) -> bool:
        """Whether nothing differs."""
        return not any(self.differences.values())

    def tier(self, *families: str) -> str:
        """`exact` when all these families are clean, else `ptx-level`."""
        return EXACT if not any(self.differences.get(family) for family in families) else PTX_LEVEL

    def words(self) -> tuple[str, ...]:
        """All differences."""
        return tuple(text for texts in self.differences.values() for text in texts)


def unaudited(reason: str) -> Audit:
    """The audit of a kernel whose machine code could not be looked at: nothing is exact."""
    return Audit(dict.fromkeys(FAMILIES, (reason,)), 0)


def audit(instructions: Sequence[InstructionInfo], sass: Sequence[SassInstruction]) -> Audit:
    """Compare the PTX instructions of a kernel with its machine code.

    On each source line the operations must be of the same kinds and widths, each at least as often as in PTX: unrolling
    and its remainder loops repeat instructions and execute none more often. Lines that differ are forgiven when, taken
    together, they have the same operations: then the compilers only disagree on which line of an inlined function to
    name.
    """
    intended = _group(_of_ptx(instructions))
    found = _group((*_of_sass(memory_instructions(sass)), *_constants(sass)))
    differences: dict[str, tuple[str, ...]] = {}
    paired = 0
    for family in FAMILIES:
        texts, mine, theirs = [], Counter[Operation](), Counter[Operation]()
        for line in sorted(intended.keys() | found.keys()):
            here, there = _of_family(intended.get(line), family), _of_family(found.get(line), family)
            if _same(here, there):
                paired += here.total()
                continue
            mine, theirs = mine + here, theirs + there
            texts.append(f"{_place(line)}: PTX has {_say(here)}, SASS has {_say(there)}")
        moved = mine == theirs
        paired += mine.total() if moved else 0
        differences[family] = () if moved else tuple(texts)
    if any(_is_beside(info) for info in instructions):
        for family in ("shared", "global", "tensor"):
            differences[family] = (*differences[family], _BESIDE)
    return Audit(differences, paired)


def _is_beside(info: InstructionInfo) -> bool:
    """Whether an instruction has the copy engine or wgmma do something beside the pipes of warps."""
    bulk = info.opcode == "cp" and "bulk" in info.modifiers and "tensor" in info.modifiers
    return bulk or (info.opcode == "wgmma" and "mma_async" in info.modifiers)


def _of_family(operations: Counter[Operation] | None, family: str) -> Counter[Operation]:
    return Counter({op: count for op, count in (operations or Counter()).items() if op[0] == family})


def _same(here: Counter[Operation], there: Counter[Operation]) -> bool:
    return here.keys() == there.keys() and all(there[operation] >= count for operation, count in here.items())


def _group(items: Iterable[tuple[Line, Operation]]) -> dict[Line, Counter[Operation]]:
    found: dict[Line, Counter[Operation]] = {}
    for line, operation in items:
        found.setdefault(line, Counter())[operation] += 1
    return found


def _of_ptx(instructions: Iterable[InstructionInfo]) -> Iterable[tuple[Line, Operation]]:
    for info in instructions:
        line = (PurePath(info.source.file).name, info.source.line)
        if info.opcode in _MMA_OPCODES and not info.kind:
            if info.opcode != "wgmma" or "mma_async" in info.modifiers:
                yield line, ("tensor", _matrix(info), 0)
        elif info.kind in ("ldmatrix", "stmatrix"):
            yield line, ("shared", info.kind, 4 * info.matrices)
        elif info.kind == "cp.async":
            yield line, ("copy", "cp.async", info.width_bytes)
        elif info.kind and info.space in ("shared", "global", "local"):
            yield line, (info.space, _PTX[info.kind], info.width_bytes)
        elif info.kind and info.space == "generic":
            yield line, ("global", f"generic {_PTX[info.kind]}", info.width_bytes)


def _of_sass(instructions: Iterable[MemoryInstruction]) -> Iterable[tuple[Line, Operation]]:
    for instruction in instructions:
        line = (PurePath(instruction.file).name, instruction.line)
        if instruction.space == "tensor":
            shape = next((word for word in instruction.opcode.split(".")[1:] if _SASS_SHAPE.fullmatch(word)), "")
            yield line, ("tensor", f"{instruction.kind} {shape.replace('x', '')}", 0)
        elif instruction.kind in _SASS:
            family, name = _SASS[instruction.kind]
            yield line, (family, name, instruction.width)


def _matrix(info: InstructionInfo) -> str:
    """The machine instruction that a matrix instruction should become: `HMMA 16816` of mma.m16n8k16 on f16."""
    shape = next((found for word in info.modifiers if (found := _PTX_SHAPE.fullmatch(word))), None)
    dtypes = [word for word in info.modifiers if word in _PIPES]
    if shape is None or not dtypes:
        return info.opcode
    dtype = dtypes[-2] if len(dtypes) > 2 else dtypes[-1]  # D A B C, of which f32 and s32 name no pipe
    pipe = _PIPES[dtype].replace("MMA", "GMMA") if info.opcode == "wgmma" else _PIPES[dtype]
    return f"{pipe} {''.join(shape.groups())}"


def _constants(instructions: Iterable[SassInstruction]) -> Iterable[tuple[Line, Operation]]:
    for instruction in instructions:
        if instruction.opcode.startswith("HFMA2.MMA") and not instruction.never_executes:
            yield (PurePath(instruction.file).name, instruction.line), ("constants", "HFMA2.MMA", 0)


def _place(line: Line) -> str:
    return f"{line[0]}:{line[1]}" if line[0] else "no source line"


def _say(operations: Counter[Operation]) -> str:
    """`4 shared load of 2 B, 1 mma`, or `nothing`."""
    words = []
    for (family, name, width), count in sorted(operations.items()):
        space = f"{family} " if family in ("shared", "global", "local") else ""
        words.append(f"{count} {space}{name}" + (f" of {width} B" if width else ""))
    return ", ".join(words) or "nothing"
