"""Machine code of a cubin: instructions with source lines, counts by opcode, memory accesses with their widths.

nvdisasm does the work (pip package nvidia-cuda-nvdisasm); dgw reads its JSON. From sm_70 on an instruction takes 16
bytes, from which the addresses follow.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import subprocess
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from dgw.errors import CompileError, UsageError
from dgw.toolchain.toolkit import find_tool

INSTRUCTION_BYTES = 16

_SPACES = {
    "LDS": "shared", "STS": "shared", "LDSM": "shared", "STSM": "shared", "ATOMS": "shared", "REDS": "shared",
    "LDGSTS": "global", "LDG": "global", "STG": "global", "ATOMG": "global", "REDG": "global", "RED": "global",
    "LDL": "local", "STL": "local",
    "LD": "generic", "ST": "generic", "ATOM": "generic",
    "UTMALDG": "tma", "UTMASTG": "tma", "UTMAREDG": "tma", "UTMAPF": "tma",
    "UBLKCP": "tma", "UBLKRED": "tma", "UBLKPF": "tma",
    "SYNCS": "mbarrier",
    "LDTM": "tensor memory", "STTM": "tensor memory", "UTCCP": "tensor memory",
    "HMMA": "tensor", "IMMA": "tensor", "QMMA": "tensor", "OMMA": "tensor", "DMMA": "tensor",
    "HGMMA": "tensor", "IGMMA": "tensor", "QGMMA": "tensor", "DGMMA": "tensor",
    "UTCHMMA": "tensor", "UTCIMMA": "tensor", "UTCQMMA": "tensor", "UTCOMMA": "tensor",
}  # fmt: skip
_ACCESSES = ("shared", "global", "local", "generic")
_WIDTHS = {
    "U8": 1, "S8": 1, "U16": 2, "S16": 2, "F16": 2, "BF16": 2, "64": 8, "U64": 8, "S64": 8, "F64": 8, "128": 16,
    "256": 32, "F32x2": 8, "F32x4": 16, "F16x4": 8, "F16x8": 16, "BF16x4": 8, "BF16x8": 16,
}  # fmt: skip


@dataclass(frozen=True)
class SassInstruction:
    """One instruction: byte `address` in its kernel, predicate (`@!P0`, `@!PT`, or empty), full opcode, operands.

    `line` 0 and `file` empty: the compiler gave no source line. Code that was inlined has the line of the inlined
    function.
    """

    address: int
    predicate: str
    opcode: str
    operands: str
    line: int
    file: str

    @property
    def base(self) -> str:
        """The opcode without modifiers: `LDG` of `LDG.E.128`."""
        return self.opcode.partition(".")[0]

    @property
    def never_executes(self) -> bool:
        """Whether its predicate is constant false: ptxas puts such instructions in as padding."""
        return self.predicate in ("@!PT", "@!UPT")


@dataclass(frozen=True)
class MemoryInstruction:
    """A memory or tensor-core instruction. `kind` is its base opcode (LDS, LDSM, LDGSTS, HMMA, ...).

    `space` is shared, global, local, generic, tma, mbarrier, tensor memory or tensor. `width` is bytes a thread: for
    LDSM and STSM what ends up in a thread's registers; 0 where a thread has no width of its own (TMA, tensor cores).
    """

    kind: str
    space: str
    width: int
    address: int
    opcode: str
    line: int
    file: str


Listing = dict[str, tuple[SassInstruction, ...]]
"""Every function of a cubin by name."""


def disassemble(cubin: bytes, entry: str, keep: Path | None = None) -> list[SassInstruction]:
    """The instructions of kernel `entry`, in order of address, padding after the last branch included.

    In the folder `keep` listings are remembered by content. Missing without nvdisasm, CompileError for a file that it
    cannot read, UsageError when there is no such kernel.
    """
    kernels = _listing(cubin, keep)
    if entry not in kernels:
        near = difflib.get_close_matches(entry, kernels, n=3, cutoff=0.0)
        raise UsageError(f"the cubin has no kernel {entry!r}; it has {', '.join(near) or 'none'}", hint="dgw list")
    return list(kernels[entry])


def histogram(instructions: Iterable[SassInstruction]) -> dict[str, int]:
    """Static count by base opcode, most frequent first, without NOP and what never executes."""
    counted = Counter(i.base for i in instructions if not i.never_executes and i.base != "NOP")
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def memory_instructions(instructions: Iterable[SassInstruction]) -> list[MemoryInstruction]:
    """The memory and tensor-core instructions, without those that never execute. Constant loads do not count."""
    return [
        MemoryInstruction(i.base, _SPACES[i.base], width_bytes(i.opcode), i.address, i.opcode, i.line, i.file)
        for i in instructions
        if i.base in _SPACES and not i.never_executes
    ]


def width_bytes(opcode: str) -> int:
    """Bytes a thread that a memory opcode moves: 4 unless a modifier says otherwise; 0 for TMA and tensor cores."""
    base, *modifiers = opcode.split(".")
    if base == "SYNCS":
        return 8
    if _SPACES.get(base) not in _ACCESSES:
        return 0
    if base in ("LDSM", "STSM"):  # the last modifier counts 8x8 matrices of 16 bit (4 bytes a thread); none: one
        return 4 * int(modifiers[-1]) if modifiers and modifiers[-1] in ("2", "4") else 4
    return next((_WIDTHS[modifier] for modifier in modifiers if modifier in _WIDTHS), 4)


@lru_cache(maxsize=8)
def _listing(cubin: bytes, keep: Path | None) -> Listing:
    """Every function of the cubin; one call of nvdisasm serves all kernels of a cubin."""
    tool = Path(find_tool("nvdisasm"))
    if keep is None:
        return _disassembled(cubin, tool)
    made_by = f"{tool.stat().st_size} {tool.stat().st_mtime_ns}".encode()
    place = keep / f"{hashlib.sha256(cubin + made_by).hexdigest()}.json"
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(place.read_bytes(), type=Listing)
    found = _disassembled(cubin, tool)
    draft = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
    with contextlib.suppress(OSError):  # a folder that cannot be written costs a call of nvdisasm next time
        keep.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.encode(found))
        draft.replace(place)
    return found


def _disassembled(cubin: bytes, tool: Path) -> Listing:
    with tempfile.TemporaryDirectory(prefix="dgw-") as folder:
        image = Path(folder) / "kernel.cubin"
        image.write_bytes(cubin)
        done = subprocess.run(
            [str(tool), "--print-code", "--print-line-info", "--emit-json", str(image)],
            capture_output=True,
            check=False,
        )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().replace(str(image), "the cubin")
        raise CompileError(f"nvdisasm: {said.partition(chr(10))[0] or 'failed'}", hint="dgw doctor", log=said)
    try:
        _, functions, *tables = msgspec.json.decode(done.stdout)
        files = _files(tables)
        return {function["function-name"]: _instructions(function, files) for function in functions}
    except (msgspec.DecodeError, ValueError, KeyError, TypeError) as error:
        raise CompileError(
            f"the output of nvdisasm is not understood: {error}", hint="pip install -U nvidia-cuda-nvdisasm"
        ) from error


def _files(tables: list[dict[str, Any]]) -> list[str]:
    """File names by id."""
    found = []
    for table in tables:
        folders = table.get("directories", [])
        for file in table.get("files", []):
            index = file.get("dir-idx", -1)
            folder = folders[index] if 0 <= index < len(folders) else ""
            found.append(str(Path(folder) / file["file"]))
    return found


def _instructions(function: dict[str, Any], files: list[str]) -> tuple[SassInstruction, ...]:
    found, line, file = [], 0, ""
    for position, item in enumerate(function["sass-instructions"]):
        if "source-line" in item:  # given where it changes
            line = item["source-line"]
            identity = item.get("source-file-id", -1)
            file = files[identity] if 0 <= identity < len(files) else ""
        found.append(
            SassInstruction(
                address=function.get("start", 0) + position * INSTRUCTION_BYTES,
                predicate=item.get("predicate", ""),
                opcode=item["opcode"],
                operands=item.get("operands", ""),
                line=line,
                file=file,
            )
        )
    return tuple(found)
