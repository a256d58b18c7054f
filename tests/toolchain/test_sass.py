from __future__ import annotations

from pathlib import Path

import pytest

from dgw.errors import CompileError, Missing, UsageError
from dgw.model import Source
from dgw.toolchain import sass, toolkit
from dgw.toolchain.build import build
from dgw.toolchain.sass import SassInstruction, disassemble, histogram, memory_instructions, width_bytes

CUDA = Path(__file__).parents[1] / "data" / "cuda"
MMA_LINE = 1 + next(i for i, line in enumerate((CUDA / "mma.cu").read_text().splitlines()) if "mma.sync" in line)


def kernel(arch: str, name: str = "mma") -> list[SassInstruction]:
    return disassemble(build(Source(path=f"{name}.cu"), CUDA, [CUDA / "include"], arch).cubin, name)


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a"])
def test_instructions_have_addresses_lines_and_files_on_every_architecture(arch: str) -> None:
    instructions = kernel(arch)
    assert [i.address for i in instructions] == [16 * n for n in range(len(instructions))]
    (product,) = (i for i in instructions if i.base == "HMMA")
    assert product.opcode == "HMMA.16816.F32"
    assert product.line in range(MMA_LINE, MMA_LINE + 3)
    assert Path(product.file).name == "mma.cu"
    assert product.operands.count(",") == 3
    (copy,) = (i for i in instructions if i.base == "LDGSTS" and not i.never_executes)
    assert Path(copy.file).name == "tile.cuh"
    assert any(i.predicate.startswith("@") for i in instructions)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_memory_instructions_have_their_class_space_and_width(arch: str) -> None:
    found = {(m.kind, m.space, m.width) for m in memory_instructions(kernel(arch))}
    assert found == {
        ("LDG", "global", 2), ("STS", "shared", 2), ("LDGSTS", "global", 16), ("LDSM", "shared", 16),
        ("LDSM", "shared", 8), ("HMMA", "tensor", 0), ("STG", "global", 16),
    }  # fmt: skip


def test_spills_are_local_memory_instructions() -> None:
    found = memory_instructions(kernel("sm_80", "spill"))
    assert {"LDL", "STL"} <= {m.kind for m in found if m.space == "local"}


def test_the_histogram_counts_base_opcodes_without_padding() -> None:
    counts = histogram(kernel("sm_80"))
    assert counts["HMMA"] == 1
    assert counts["LDSM"] == 2
    assert "NOP" not in counts
    assert "LDS" not in counts  # ptxas pads LDGSTS with loads that never execute
    assert list(counts.values()) == sorted(counts.values(), reverse=True)


@pytest.mark.parametrize(
    ("opcode", "width"),
    [
        ("LDS", 4), ("LDS.U8", 1), ("LDS.S16", 2), ("LDS.64", 8), ("LDS.U.128", 16), ("STS.128", 16), ("STS.U16", 2),
        ("LDG.E.LTC128B.64.CONSTANT", 8), ("LDG.E.128.STRONG.GPU", 16), ("LDG.E.ENL2.256", 32), ("LDL.LU.64", 8),
        ("LDSM.16.M88", 4), ("LDSM.16.MT88.2", 8), ("LDSM.16.M88.4", 16), ("STSM.16.MT88.4", 16),
        ("LDGSTS.E", 4), ("LDGSTS.E.BYPASS.LTC128B.128", 16), ("ATOMS.CAST.SPIN.64", 8), ("ATOMS.ADD", 4),
        ("RED.E.ADD.F32.FTZ.RN.STRONG.GPU", 4), ("REDG.E.ADD.F32x4.FTZ.RN.STRONG.GPU", 16),
        ("REDG.E.ADD.F64.RN.STRONG.GPU", 8), ("HMMA.16816.F32", 0), ("UTMALDG.2D", 0), ("SYNCS.EXCH.64", 8), ("MOV", 0),
    ],
)  # fmt: skip
def test_the_width_of_an_opcode_is_in_its_modifiers(opcode: str, width: int) -> None:
    assert width_bytes(opcode) == width


def test_an_unknown_kernel_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="it has mma"):
        disassemble(build(Source(path="mma.cu"), CUDA, [CUDA / "include"], "sm_80").cubin, "nothing")


def test_a_file_that_is_no_cubin_is_a_compile_error_without_a_path() -> None:
    with pytest.raises(CompileError) as caught:
        disassemble(b"no cubin", "mma")
    assert "nvdisasm" in caught.value.message
    assert "/" not in caught.value.message


def test_output_in_another_form_is_an_error_and_not_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvdisasm"
    tool.write_text("#!/bin/sh\necho 'not JSON'\n")
    tool.chmod(0o755)
    monkeypatch.setattr(sass, "find_tool", lambda _: tool)
    with pytest.raises(CompileError, match="not understood"):
        disassemble(b"another image", "mma")


def test_a_missing_disassembler_is_named_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "_package_roots", lambda: iter(()))
    monkeypatch.setattr(toolkit, "_toolkit_roots", lambda: iter(()))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Missing) as caught:
        disassemble(b"image that was never seen", "mma")
    assert "nvdisasm" in caught.value.message
    assert caught.value.hint == "pip install nvidia-cuda-nvdisasm"


def test_a_listing_that_is_kept_needs_no_disassembler_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cubin = build(Source(path="mma.cu"), CUDA, [CUDA / "include"], "sm_80").cubin
    sass._listing.cache_clear()
    first = disassemble(cubin, "mma", tmp_path / "sass")
    (kept,) = (tmp_path / "sass").iterdir()
    sass._listing.cache_clear()
    monkeypatch.setattr(sass, "_disassembled", lambda *_: {})
    assert disassemble(cubin, "mma", tmp_path / "sass") == first
    kept.write_bytes(kept.read_bytes()[:100])  # damaged: as good as absent
    sass._listing.cache_clear()
    monkeypatch.undo()
    assert disassemble(cubin, "mma", tmp_path / "sass") == first
