"""The two files that a kernel of one's own needs: the source, and the declaration that says how it is launched."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from pathlib import Path

from dgw.errors import UsageError
from dgw.kernels.signature import Kernel, Parameter, kernels
from dgw.model import Variant

FAMILY = "mine"
_OPERANDS = {
    "a": "a", "b": "b", "c": "c", "d": "d", "x": "a", "w": "b", "y": "d", "out": "d", "output": "d", "result": "d",
    "bias": "bias", "residual": "residual",
}  # fmt: skip
_NUMBERS = ("m", "n", "k", "lda", "ldb", "ldc", "ldd", "ldr", "alpha", "beta")

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
        block=(COLS, ROWS, 1),{shared}
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
    """Texts of two files; `source` is None where the user's own stays. `open_points` says what is left to fill in,
    `left_out` names the kernels of the source that are not launched."""

    declaration: str
    source: str | None = None
    open_points: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    entry: str = ""


def fresh(file: Path) -> Files:
    """A kernel that is right and slow, and its declaration."""
    entry = _entry(file)
    source = KERNEL.format(name=file.stem, entry=entry)
    return Files(declared(file, source).declaration, source)


def declared(file: Path, source: str, entry: str = "") -> Files:
    """The declaration of a kernel that exists: `entry`, or the first that can be launched; its parameters are read from
    `source`.

    Raises UsageError when there is no kernel in it, none of that name, or none that can be launched by name.
    """
    found = kernels(source)
    kernel = _chosen(file, found, entry)
    lines: list[str] = []
    unknown: list[str] = []
    for parameter in kernel.parameters:
        line, known = _argument(parameter)
        lines.append(f"            {line}")
        unknown += [] if known else [f"what the parameter `{parameter.text}` of {kernel.entry} is"]
    types = {_operand(one): one.element for one in kernel.parameters if _operand(one) and one.element}
    inputs, output = types.get("a", "f16"), types.get("d", types.get("a", "f16"))
    points: tuple[str, ...] = ()
    if source != KERNEL.format(name=file.stem, entry=kernel.entry):
        memory = (f"shared_bytes: {kernel.entry} has extern __shared__ memory",) if kernel.dynamic else ()
        points = (*unknown, "grid and block of the launch, ROWS and COLS", *memory)
    shared = "\n        shared_bytes=0,  # bytes of its extern __shared__ memory, to fill in" if kernel.dynamic else ""
    text = DECLARATION.format(
        file=file.name, entry=kernel.entry, id=f"{FAMILY}/{_idea(file)}", inputs=f'("{inputs}",)',
        outputs=f'("{output}",)', arguments="\n".join(lines), shared=shared,
    )  # fmt: skip
    left = tuple(one.entry for one in found if one.entry != kernel.entry)
    return Files(text, open_points=points, left_out=left, entry=kernel.entry)


def _chosen(file: Path, found: tuple[Kernel, ...], entry: str) -> Kernel:
    if not found:
        raise UsageError(
            f"{file.name} has no __global__ function", f'declare it as extern "C" __global__ in {file.name}'
        )
    names = ", ".join(dict.fromkeys(one.entry for one in found))
    if entry and entry not in [one.entry for one in found]:
        raise UsageError(
            f"{file.name} has no kernel {entry}; it has {names}", f"dgw new {file} --entry {found[0].entry}"
        )
    named = [one for one in found if not entry or one.entry == entry]
    kernel = next((one for one in named if not one.mangled), named[0])
    if kernel.mangled:
        raise UsageError(
            f"{kernel.entry} of {file.name} has a mangled name", f'write extern "C" before __global__ in {file.name}'
        )
    return kernel


def _operand(parameter: Parameter) -> str:
    return _OPERANDS.get(parameter.name.lower(), "") if parameter.pointer else ""


def _argument(parameter: Parameter) -> tuple[str, bool]:
    """The Argument that a C parameter becomes, and whether its name and type say what it is. Where they do not, it is
    a call that raises when the case is run, and a comment that says what can stand there."""
    lower, dtype = parameter.name.lower(), parameter.scalar
    if operand := _operand(parameter):
        return f'Pointer(operand="{operand}"),', True
    if not parameter.pointer and dtype and lower in _NUMBERS:
        kind = "" if dtype == "i32" else f', dtype="{dtype}"'
        return f'Scalar(name="{lower}"{kind}),', True
    if parameter.pointer:
        wanted = "Pointer(operand=...), one of a b c d bias residual, or Workspace(name=...)"
    else:
        wanted = f'Scalar(name="{lower}", dtype="{dtype or "..."}", value=...)'
    return f'# {wanted}:\n            declaring.fill_in(__file__, "{parameter.text}"),', False


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
