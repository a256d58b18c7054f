"""PTX text: what is read, and that anything else is an error that names the instruction and its line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dgw.errors import DgwError
from dgw.workbench.emulator.errors import EmulatorError
from dgw.workbench.emulator.kernel import Kernel
from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.memory import Memory
from dgw.workbench.emulator.ptx.operands import Address, Register
from dgw.workbench.emulator.ptx.parser import parse_module
from tests.workbench.emulator.compiling import HERE, ptx_of

TILED = ptx_of((HERE / "mutants" / "tiled.cu").read_text())
LINES = TILED.splitlines()


def entry(body: str, registers: str = ".reg .b32 %r<9>;\n.reg .pred %p<3>;\n.reg .b64 %d<3>;") -> str:
    return f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n{registers}\n{body}\nret;\n}}\n"


def test_statements_end_at_semicolons_not_at_lines() -> None:
    module = parse_module(entry("{ .reg .b32 t; mov.b32 t, 1; add.s32 %r1,\n  t, 2; } mov.b32 %r2, %r1;"))
    names = [instruction.name for instruction in module.functions["k"].instructions]
    assert names == ["mov.b32", "add.s32", "mov.b32", "ret"]


def test_inner_scopes_hide_registers_and_labels() -> None:
    body = "{ .reg .b32 %r1; mov.b32 %r1, 7; L: mov.b32 %r2, %r1; }\n{ L: bra L; }\nmov.b32 %r1, %r2;"
    function = parse_module(entry(body)).functions["k"]
    inner, outer = function.instructions[0].operands[0], function.instructions[3].operands[0]
    assert isinstance(inner, Register)
    assert isinstance(outer, Register)
    assert inner.name != outer.name
    assert len(function.labels) == 2
    assert function.labels[function.instructions[2].operands[0].name] == 2  # type: ignore[union-attr]


def test_lines_come_from_loc_directives_with_and_without_inlining() -> None:
    body = (
        ".loc 1 5 2\nmov.b32 %r1, 1;\n.loc 1 9 3, function_name $L__info_string0, inlined_at 1 5 2\n"
        "{ mov.b32 %r2, 2;\n.loc 1 11 1\nmov.b32 %r3, 3; }"
    )
    text = entry(body) + '.file 1 "some.cu"\n.section .debug_str { $L__info_string0: .b8 95,90,0 }\n'
    instructions = parse_module(text).functions["k"].instructions
    assert [(i.source.file, i.source.line) for i in instructions[:3]] == [("some.cu", line) for line in (5, 9, 11)]


def test_inlined_code_knows_its_line_in_the_file_of_the_kernel() -> None:
    body = (
        ".loc 1 5 2\nmov.b32 %r1, 1;\n"
        ".loc 1 20 3, function_name $L0, inlined_at 1 5 2\nmov.b32 %r1, 2;\n"  # a function of the same file
        ".loc 2 7 1, function_name $L1, inlined_at 1 20 3\nmov.b32 %r1, 3;\n"  # one of another file, called there
        ".loc 3 9 1, function_name $L2, inlined_at 2 7 1\nmov.b32 %r1, 4;\n"  # and what that one calls
        ".loc 2 7 1\nmov.b32 %r1, 5;"  # the same line, not inlined any more
    )
    text = entry(body) + "".join(f'.file {n} "/f/{name}"\n' for n, name in enumerate(("k.cu", "a.cuh", "b.cuh"), 1))
    found = [(str(i.source), str(i.site)) for i in parse_module(text).functions["k"].instructions[:5]]
    assert found == [
        ("k.cu:5", "k.cu:5"),
        ("k.cu:20", "k.cu:20"),
        ("a.cuh:7", "k.cu:20 (a.cuh:7)"),
        ("b.cuh:9", "k.cu:20 (b.cuh:9)"),
        ("a.cuh:7", "a.cuh:7"),
    ]


def test_a_circle_of_inlined_lines_ends() -> None:
    lines = ".loc 1 5 2, function_name $L0, inlined_at 1 6 2\n.loc 1 6 2, function_name $L0, inlined_at 1 5 2\n"
    body = f"{lines}mov.b32 %r1, 1;"
    assert parse_module(entry(body)).functions["k"].instructions[0].site.line == 6


def test_addresses_take_signs_and_spaces() -> None:
    body = "ld.global.u32 %r1, [ %d1 + 0 ];\nld.global.u32 %r1, [%d1+-8];\nld.global.u32 %r1, [%d1 - 0x10];"
    instructions = parse_module(entry(body)).functions["k"].instructions
    offsets = [i.operands[1].offset for i in instructions[:3] if isinstance(i.operands[1], Address)]
    assert offsets == [0, -8, -16]


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("frobnicate.b32 %r1, %r2;", "frobnicate.b32"),
        ("add.s31 %r1, %r2, %r3;", "add.s31"),
        ("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r1}, %d1, %d1, 1;", "wgmma.mma_async"),
        ("cp.async.bulk.prefetch.L2.global [%d1], 16;", "cp.async.bulk"),
        ("mma.sync.aligned.m16n8k99.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};", "m16n8k99"),
        ("add.s32 %r1, %r2;", "add.s32"),
        ("add.s32 %r1, %r2, %d1;", "add.s32"),
        ("ld.global.v4.u32 {%r1, %r2}, [%d1];", "ld.global"),
        ("@%r1 bra L;", "@%r1 bra"),
        ("bra NOWHERE;", "NOWHERE"),
        ("mov.b32 %r1, %r99;", "%r99"),
        ("mov.b32 %r1, UNKNOWN;", "UNKNOWN"),
        ("ld.global.u32 %r1, [%d1;", "brackets"),
        ("cp.async.cg.shared.global [%r1], [%d1], 12;", "12"),
        ("mov.b32 %r1, 12x;", "12x"),
        ("call.uni nowhere, ();", "nowhere"),
        ("cvt.f32.f64 %r1, %d1;", "cvt.f32.f64"),
    ],
)
def test_an_unknown_or_malformed_instruction_is_named_with_its_line(body: str, names: str) -> None:
    with pytest.raises(EmulatorError) as caught:
        Kernel.from_ptx(entry("mov.b32 %r1, 0;\n" + body), "k")
    assert "line 10" in caught.value.message
    assert names.split()[0].split(".")[0] in caught.value.message
    assert isinstance(caught.value, DgwError)
    assert caught.value.hint


def test_a_missing_kernel_is_an_error_that_lists_the_others() -> None:
    with pytest.raises(EmulatorError, match="it has tiled"):
        Kernel.from_ptx(TILED, "other")


def attempt(text: str) -> None:
    """Read, build and run a few steps: only EmulatorErrors may come out."""
    memory = Memory()
    pointers = [memory.register(name, np.zeros(4096, np.uint8)) for name in "abc"]
    try:
        EmulatedLaunch(text, "tiled", (1, 1, 1), (64, 1, 1), [*pointers, 8, 8, 8], memory).run(step_limit=40)
    except EmulatorError:
        return


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_ptx_gives_no_traceback(data: st.DataObject) -> None:
    lines = list(LINES)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(lines) - 1))
        line = lines[place]
        how = data.draw(st.sampled_from(["drop", "double", "cut", "swap", "character", "digits", "word"]))
        if how == "drop":
            del lines[place]
        elif how == "double":
            lines.insert(place, line)
        elif how == "cut":
            lines[place] = line[: data.draw(st.integers(0, len(line)))]
        elif how == "swap":
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[place], lines[other] = lines[other], line
        elif how == "character" and line:
            at = data.draw(st.integers(0, len(line) - 1))
            character = data.draw(st.sampled_from(list("{}[]();,.@!%$_+-|<>:\"'/*\\ 09azAZ\0é")))
            lines[place] = line[:at] + character + line[at + 1 :]
        elif how == "digits":
            lines[place] = "".join(str(9 - int(c)) if c.isdecimal() and c.isascii() else c for c in line)
        else:
            lines[place] = line.replace(".u32", ".f16").replace(".f32", ".b64").replace("%r", "%rd")
    attempt("\n".join(lines))


SOUP = st.sampled_from(list('.{}[]();,@%r1f<>=:"/*+- \nentryregaddmovbretld_p0x$'))


@settings(max_examples=150, deadline=None)
@given(text=st.text(alphabet=SOUP, max_size=120))
@example("{")
@example("}")
@example('.file 1 "')
@example(".pragma")
@example(".visible .entry tiled(")
@example(".visible .entry tiled()\n{\n@")
def test_any_text_gives_no_traceback(text: str) -> None:
    attempt(text)
    attempt(entry(text).replace("entry k", "entry tiled"))
