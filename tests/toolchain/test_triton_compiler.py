from __future__ import annotations

from pathlib import Path

import pytest

from dgw.errors import CompileError, Missing
from dgw.model import Source
from dgw.toolchain import triton_compiler
from dgw.toolchain.build import build
from dgw.toolchain.triton_compiler import Facts, facts

HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
COPY = HEAD + "def copy(a, b, n, BLOCK: tl.constexpr):\n    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
BODY = "    tl.store(b + at, tl.load(a + at, mask=at < n), mask=at < n)\n"
FLAGS = ("entry=copy", "signature=*fp16:16,*fp16:16,i32", "num_warps=2")


def source(folder: Path, text: str, flags: tuple[str, ...] = FLAGS) -> Source:
    (folder / "copy_kernel.py").write_text(text)
    return Source(path="copy_kernel.py", language="triton", defines=(("BLOCK", 128),), flags=flags)


def test_a_kernel_becomes_ptx_cubin_and_the_facts_of_its_launch(tmp_path: Path) -> None:
    result = build(source(tmp_path, COPY + BODY), tmp_path, (), "sm_80")
    assert ".target sm_80" in result.ptx
    assert result.entries == ("copy",)
    known = facts(result.log)
    assert known == Facts(warps=2, shared_bytes=0, scratch_bytes=0, hidden_pointers=2)
    assert result.resources("copy").registers > 0
    assert result.resources("copy").spill_store_bytes == 0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    tl.store(b + nothing, 0)\n", "nothing"),
        ("    this is no Python\n", "SyntaxError"),
        ("    import os\n    os.abort()\n", ""),
    ],
)
def test_what_does_not_compile_is_one_line_and_leaves_this_process_alone(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(CompileError) as error:
        build(source(tmp_path, COPY + body), tmp_path, (), "sm_80")
    assert error.value.message.startswith("copy_kernel.py does not compile with triton")
    assert said in error.value.message
    assert "\n" not in error.value.message
    assert str(tmp_path) not in error.value.message + error.value.log


def test_a_compiler_that_dies_is_a_compile_error_with_its_signal(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as error:
        build(source(tmp_path, "import os\nprint('Assertion failed: x')\nos.abort()\n"), tmp_path, (), "sm_80")
    assert "SIGABRT" in error.value.message


def test_a_missing_triton_is_said_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_compiler, "version", lambda: "")
    with pytest.raises(Missing) as error:
        build(source(tmp_path, COPY + BODY), tmp_path, (), "sm_80")
    assert error.value.hint == "pip install triton"


def test_the_log_of_another_compiler_holds_no_facts() -> None:
    assert facts("ptxas info    : Used 40 registers") is None
