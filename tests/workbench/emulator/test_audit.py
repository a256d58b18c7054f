"""Pairing PTX with machine code by line, kind and width."""

from __future__ import annotations

import pytest

from dgw.toolchain.sass import SassInstruction
from dgw.workbench.emulator.audit import audit, unaudited
from tests.workbench.emulator.events import instruction


def sass(opcode: str, line: int, predicate: str = "") -> SassInstruction:
    return SassInstruction(0, predicate, opcode, "", line, "/anywhere/kernel.cu")


PTX = [
    instruction(0, "ld.global.v4.u32", 10, width=16),
    instruction(1, "st.shared.v4.u32", 11, width=16),
    instruction(2, "ldmatrix.sync.aligned.m8n8.x4.shared.b16", 12, width=16, matrices=4),
    instruction(3, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 13),
    instruction(4, "cp.async.cg.shared.global", 14, width=16),
    instruction(5, "add.s32", 15),
]
SASS = [
    sass("LDG.E.128", 10), sass("STS.128", 11), sass("LDSM.16.M88.4", 12), sass("HMMA.16816.F32", 13),
    sass("LDS", 14, "@!PT"), sass("LDGSTS.E.BYPASS.128", 14), sass("IADD3", 15),
]  # fmt: skip


def test_the_same_operations_on_the_same_lines_are_exact() -> None:
    found = audit(PTX, SASS)
    assert found.clean
    assert found.paired == 5
    assert found.tier("shared", "global", "copy", "tensor", "local") == "exact"


def test_a_wider_access_in_machine_code_is_named_and_leaves_other_families_exact() -> None:
    narrow = [instruction(0, "ld.shared.u16", 20, width=2), instruction(1, "ld.shared.u16", 20, width=2)]
    found = audit([*narrow, *PTX], [sass("LDS.64", 20), *SASS])
    assert found.tier("shared") == "ptx-level"
    assert found.tier("global", "copy", "tensor") == "exact"
    assert found.words() == ("kernel.cu:20: PTX has 2 shared load of 2 B, SASS has 1 shared load of 8 B",)


def test_unrolling_repeats_instructions_and_removing_them_is_a_difference() -> None:
    ptx = [instruction(0, "ld.shared.f32", 20, width=4), instruction(1, "ld.shared.f32", 20, width=4)]
    assert audit(ptx, [sass("LDS", 20)] * 8).clean
    assert audit(ptx, [sass("LDS", 20)] * 9).clean  # a remainder loop
    assert not audit(ptx, [*[sass("LDS", 20)] * 7, sass("LDS.64", 20)]).clean
    assert not audit(ptx, [sass("LDS", 20)]).clean


def test_an_access_that_only_changed_its_line_is_forgiven() -> None:
    ptx = [instruction(0, "ld.global.f32", 20, width=4), instruction(1, "ld.global.f32", 20, width=4)]
    assert audit(ptx, [sass("LDG.E", 20), sass("LDG.E", 27)]).clean
    assert not audit(ptx, [sass("LDG.E", 20), sass("LDG.E.64", 27)]).clean


def test_constants_made_by_the_tensor_pipe_leave_only_its_count_inexact() -> None:
    found = audit(PTX, [*SASS, sass("HFMA2.MMA", 15), sass("HFMA2.MMA", 16, "@!PT"), sass("HFMA2", 17)])
    assert found.tier("constants") == "ptx-level"
    assert found.tier("shared", "global", "copy", "local", "tensor") == "exact"
    assert found.words() == ("kernel.cu:15: PTX has nothing, SASS has 1 HFMA2.MMA",)


@pytest.mark.parametrize(
    ("ptx", "opcode", "exact"),
    [
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "HMMA.1688.F32.TF32", True),
        ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "HMMA.16816.F16", True),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "IMMA.16832.S8.S8", True),
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "HMMA.SP.16832.F32", True),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "QMMA.16832.F32.E4M3.E4M3", True),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "HMMA.16816.F32", False),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "HMMA.1688.F32", False),
    ],
)
def test_a_matrix_instruction_that_became_another_one_is_a_difference(ptx: str, opcode: str, exact: bool) -> None:
    found = audit([instruction(0, ptx, 13)], [sass(opcode, 13), sass(opcode, 13)])
    assert (found.tier("tensor") == "exact") == exact, found.words()


@pytest.mark.parametrize(("opcode", "differences"), [("HGMMA.64x128x16.F32", 0), ("HGMMA.64x64x16.F32", 1)])
def test_products_of_a_warpgroup_are_paired_and_not_exact(opcode: str, differences: int) -> None:
    wgmma = "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"
    found = audit([instruction(0, wgmma, 13)], [sass(opcode, 13), sass(opcode, 13)])
    assert {found.tier(family) for family in ("shared", "global", "tensor")} == {"ptx-level"}
    assert len({text for text in found.words() if "not compared with Nsight Compute" not in text}) == differences


def test_spills_are_differences_of_local_memory_only() -> None:
    found = audit(PTX, [*SASS, sass("STL", 13), sass("LDL", 13)])
    assert found.tier("local") == "ptx-level"
    assert found.tier("shared", "global", "copy", "tensor") == "exact"
    assert not found.clean


def test_without_machine_code_nothing_is_exact() -> None:
    assert unaudited("no nvdisasm").tier("shared") == "ptx-level"
    assert "no nvdisasm" in unaudited("no nvdisasm").words()
