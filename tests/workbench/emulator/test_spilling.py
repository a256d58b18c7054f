"""Spills in machine code, as often as the products of their loop."""

from __future__ import annotations

import pytest

from dgw.toolchain.sass import SassInstruction
from dgw.workbench.emulator.spilling import spilled_sectors

WARPS, STEPS = 8, 100


def code(*texts: str) -> list[SassInstruction]:
    """Instructions at addresses 0, 16, 32 ...: `@P0 BRA 0x10`."""
    found = []
    for place, text in enumerate(texts):
        predicate, rest = text.split(" ", 1) if text.startswith("@") else ("", text)
        opcode, _, operands = rest.partition(" ")
        found.append(SassInstruction(16 * place, predicate, opcode, operands, 1, "kernel.cu"))
    return found


LOOP = ("HMMA.16816.F32 R0", "LDL R1,[R1+0x4]", "HMMA.16816.F32 R4", "STL.128 [R1+0x4],R1", "@P0 BRA 0x10")


def test_what_stands_in_the_loop_of_the_products_is_executed_as_often() -> None:
    found = code("STL [R1],R0", *LOOP, "LDL.64 R0,[R1]", "EXIT", "BRA 0x80")
    products = 2 * STEPS * WARPS
    assert spilled_sectors(found, products, 0, WARPS) == STEPS * WARPS * (4 + 16) + WARPS * (4 + 8)
    assert spilled_sectors(found, 2 * products, 0, WARPS) == 2 * STEPS * WARPS * (4 + 16) + WARPS * (4 + 8)


def test_what_stands_outside_the_loops_of_products_is_executed_once() -> None:
    around = code("LDL R0,[R1]", "HMMA.16816.F32 R0", "@P0 BRA 0x10", "STL [R1],R0", "@P1 BRA 0x0")
    assert spilled_sectors(around, STEPS * WARPS, 0, WARPS) == WARPS * 8  # an outer loop, of which nothing is known
    other = code("STL [R1],R0", "@P0 BRA 0x0", "HMMA.16816.F32 R0")
    assert spilled_sectors(other, STEPS * WARPS, 0, WARPS) == WARPS * 4


@pytest.mark.parametrize(
    ("instruction", "moved"), [("@!PT LDL R0,[R1]", 0), ("LDS R0,[R1]", 0), ("@P1 LDL R0,[R1]", STEPS * WARPS * 4)]
)
def test_only_local_memory_that_can_be_reached_counts(instruction: str, moved: int) -> None:
    found = code("FFMA R0,R1,R2,R0", instruction, "@P0 BRA 0x0")
    assert spilled_sectors(found, 0, STEPS * WARPS, WARPS) == moved


def test_a_kernel_without_products_or_loops_moves_each_spill_once_a_warp() -> None:
    assert spilled_sectors(code("STL [R1],R0", "LDL R0,[R1]", "EXIT"), 0, 0, WARPS) == WARPS * 8
    assert spilled_sectors(code(*LOOP), 0, 0, WARPS) == WARPS * 20
    assert spilled_sectors([], 5, 5, WARPS) == 0
