"""Compiles one Triton kernel, in a process of its own: `python -m dgw.toolchain.triton_worker FOLDER`.

Reads FOLDER/request.json, writes kernel.ptx, kernel.cubin and facts.json there; what Triton and ptxas print is the log.
The process is separate because a failed assertion inside Triton's compiler ends the process, and because several
kernels are then compiled at the same time.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import traceback
from pathlib import Path
from typing import Any

DIVISIBLE = [["tt.divisibility", 16]]


def main(folder: Path) -> int:
    """Compile what `folder` asks for; on failure 1, with the error in error.txt."""
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    try:
        _compile(request, folder)
    except BaseException as error:
        innermost = error
        while innermost.__cause__ is not None:
            innermost = innermost.__cause__
        (folder / "error.txt").write_text(f"{type(innermost).__name__}: {innermost}", encoding="utf-8")
        traceback.print_exc()
        return 1
    return 0


def _compile(request: dict[str, Any], folder: Path) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(_module(Path(request["path"])), request["entry"])
    constants = dict(request["constants"])
    runtime = [name for name in kernel.arg_names if name not in constants]
    types = dict(zip(runtime, request["signature"], strict=True))
    position = {name: at for at, name in enumerate(kernel.arg_names)}
    source = ASTSource(
        fn=kernel,
        signature={name: types[name].partition(":")[0] if name in types else "constexpr" for name in kernel.arg_names},
        constexprs=constants,
        attrs={(position[name],): DIVISIBLE for name in runtime if types[name].endswith(":16")},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", request["capability"], 32), options=request["options"])
    ptx, metadata = compiled.asm["ptx"], compiled.metadata
    (folder / "kernel.ptx").write_text(ptx, encoding="utf-8")
    (folder / "kernel.cubin").write_bytes(compiled.asm["cubin"])
    facts = {
        "version": triton.__version__,
        "warps": metadata.num_warps,
        "shared": metadata.shared,
        "scratch": getattr(metadata, "global_scratch_size", 0) or 0,
        "hidden": _parameters(ptx, request["entry"]) - len(runtime),
    }
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _parameters(ptx: str, entry: str) -> int:
    """How many parameters the kernel takes in PTX."""
    found = re.search(rf"\.entry\s+{re.escape(entry)}\s*\((.*?)\)", ptx, re.DOTALL)
    return found[1].count(".param") if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
