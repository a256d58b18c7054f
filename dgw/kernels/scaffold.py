"""The two files that a kernel of one's own needs: the source, and the declaration that says how it is launched."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from pathlib import Path

from dgw.errors import UsageError
from dgw.model import Variant

FAMILY = "mine"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(r"\b__global__\b.*?\bvoid\b(.*?)\b(\w+)\s*\(([^)]*)\)\s*\{", re.DOTALL)
_OPERANDS = {
    "a": "a", "b": "b", "c": "c", "d": "d", "x": "a", "w": "b", "y": "d", "out": "d", "output": "d", "result": "d",
    "bias": "bias", "residual": "residual",
}  # fmt: skip
_NUMBERS = ("m", "n", "k", "lda", "ldb", "ldc", "ldd", "ldr", "alpha", "beta")
_TYPES = {"half": "f16", "__half": "f16", "__nv_bfloat16": "bf16", "nv_bfloat16": "bf16", "float": "f32"}

KERNEL = """// {name}: D = alpha A B for row-major A, B and D. One thread computes one element; your idea goes here.
#include <cuda_fp16.h>

extern "C" __global__ void {entry}(const half* a, const half* b, half* d, int m, int n, int k, long long lda,
                                   long long ldb, long long ldd, float alpha) {{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += __half2float(a[row * lda + i]) * __half2float(b[i * ldb + col]);
    d[row * ldd + col] = __float2half(alpha * sum);
}}
"""

DECLARATION = '''"""How {file} is launched, and what it can compute."""

from __future__ import annotations

from dgw.kernels import declaring
from dgw.model import Config, Device, Launch, Plan, Pointer, Problem, Scalar, Source, Variant

ROWS, COLS = 8, 32  # of D that a block computes; threads of a block


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why this kernel cannot run `problem`, in words; None when it can. A refused case is a row and no failure."""
    if problem.layout != "nn" or problem.beta != 0.0:
        return "layout nn and beta 0 only"
    return declaring.refuses_problem(problem, {inputs}, {outputs}) or declaring.refuses_epilogue(problem)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One launch. The grid counts blocks; `shared_bytes` is dynamic shared memory; `tile` is what a block computes."""
    launch = Launch(
        source=Source(path="{file}"),
        entry="{entry}",
        grid=(declaring.ceil_div(problem.n, COLS), declaring.ceil_div(problem.m, ROWS), 1),
        block=(COLS, ROWS, 1),
        arguments=(
{arguments}
        ),
    )
    return Plan(steps=(launch,), tile=(ROWS, COLS))


VARIANT = Variant(
    id="{id}",
    version=1,  # count it up when the declaration changes what is launched
    idea="say in a sentence what it does differently",
    dtypes={inputs},
    refuses=refuses,
    plan=plan,
)
'''


@dataclass(frozen=True)
class Files:
    """Texts of two files; `source` is None where the user's own stays. `open_points` says what is left to fill in."""

    declaration: str
    source: str | None = None
    open_points: tuple[str, ...] = ()


def fresh(file: Path) -> Files:
    """A kernel that is right and slow, and its declaration."""
    entry = _entry(file)
    source = KERNEL.format(name=file.stem, entry=entry)
    return Files(declared(file, source).declaration, source)


def declared(file: Path, source: str) -> Files:
    """The declaration of a kernel that exists: its entry and parameters are read from `source`.

    Raises UsageError when there is no kernel in it, or none that can be launched by name.
    """
    text = _COMMENT.sub(" ", source)
    found = _KERNEL.search(text)
    if found is None:
        raise UsageError(
            f"{file.name} has no __global__ function", f'declare it as extern "C" __global__ in {file.name}'
        )
    entry = found[2]
    if not re.search(r'extern\s+"C"', text[: found.end()]):
        raise UsageError(
            f"{entry} of {file.name} has a mangled name", f'write extern "C" before __global__ in {file.name}'
        )
    lines: list[str] = []
    unknown: list[str] = []
    types: dict[str, str] = {}
    for parameter in (" ".join(part.split()) for part in found[3].split(",") if part.strip()):
        name = re.split(r"[\s*&]+", parameter)[-1]
        line, known = _argument(parameter, name)
        lines.append(f"            {line}" + ("" if known else f"  # what is {name}?"))
        unknown += [] if known else [f"what the parameter `{parameter}` of {entry} is"]
        operand = _OPERANDS.get(name.lower(), "") if "*" in parameter else ""
        dtype = next((known for word, known in _TYPES.items() if re.search(rf"\b{word}\b", parameter)), "")
        types |= {operand: dtype} if operand and dtype else {}
    inputs, output = types.get("a", "f16"), types.get("d", types.get("a", "f16"))
    points = (*unknown, "grid and block of the launch") if source != KERNEL.format(name=file.stem, entry=entry) else ()
    text = DECLARATION.format(
        file=file.name, entry=entry, id=f"{FAMILY}/{_idea(file)}", inputs=f'("{inputs}",)', outputs=f'("{output}",)',
        arguments="\n".join(lines),
    )  # fmt: skip
    return Files(text, open_points=points)


def _argument(parameter: str, name: str) -> tuple[str, bool]:
    """The Argument that a C parameter becomes, and whether its name says what it is."""
    lower = name.lower()
    if "*" in parameter:
        return f'Pointer(operand="{_OPERANDS.get(lower, lower)}"),', lower in _OPERANDS
    dtype = "i32"
    if "float" in parameter:
        dtype = "f32"
    elif re.search(r"\blong\b|int64|size_t|ptrdiff", parameter):
        dtype = "i64"
    elif re.search(r"\bunsigned\b|uint", parameter):
        dtype = "u32"
    kind = "" if dtype == "i32" else f', dtype="{dtype}"'
    if lower in _NUMBERS:
        return f'Scalar(name="{lower}"{kind}),', True
    return f'Scalar(name="{lower}"{kind}, value=0),', False


def like(file: Path, variant: Variant) -> Files:
    """Copies of a stage's source and declaration under a name of one's own. Raises UsageError for foreign code."""
    if variant.plan is None:
        raise UsageError(f"{variant.id} calls foreign code and has no source to start from", "--like tiled")
    declaration = variant.declaration.read_text(encoding="utf-8")
    paths = [path for path in sorted(variant.root.glob("*.cu")) if f'"{path.name}"' in declaration]
    if len(paths) != 1:
        raise UsageError(f"{variant.id} is not made of one .cu file", "--like naive, tiled, swizzled, tensor-core ...")
    text = declaration.replace(f'"{paths[0].name}"', f'"{file.name}"')
    text = text.replace(f'id="{variant.id}"', f'id="{FAMILY}/{_idea(file)}"')
    text = re.sub(r"\n    stage=\d+,", "", text)
    return Files(text, paths[0].read_text(encoding="utf-8"))


def _idea(file: Path) -> str:
    return file.stem.replace("_", "-")


def _entry(file: Path) -> str:
    name = re.sub(r"\W", "_", file.stem)
    return f"kernel_{name}" if name[:1].isdigit() or keyword.iskeyword(name) else name
