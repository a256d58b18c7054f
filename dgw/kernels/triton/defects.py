"""Known defects of Triton versions: which use of which version on which GPU is refused, and which version warns.

Only what concerns matrix multiplication on sm_80 and newer is listed. A version range is [since, fixed); `fixed` empty
means that no released version is known to be free of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dgw.model import Device, sm
from dgw.toolchain.triton_compiler import version

OLDEST = (3, 4)  # the first with tl.make_tensor_descriptor and the present interface of its compiler


@dataclass(frozen=True)
class Use:
    """What a kernel does that some version gets wrong. `transposed_sums`: tl.dot of another's transposed sums."""

    warp_specialize: bool = False
    flatten: bool = False
    descriptors: bool = False
    pointer_loads: bool = True
    host_descriptors: bool = False
    transposed_sums: bool = False
    bm: int = 128
    bn: int = 128
    warps: int = 4


@dataclass(frozen=True)
class Defect:
    """One defect: where it is reported, from which version to before which, on which sm (empty: all), what it does."""

    report: str
    since: tuple[int, ...]
    fixed: tuple[int, ...]
    architectures: tuple[int, ...]
    effect: str
    affects: Callable[[Use], bool]
    wrong_result: bool = False


DEFECTS = (
    Defect(
        report="fla-org/flash-linear-attention#640, unslothai/unsloth#5276",
        since=(3, 4, 0),
        fixed=(3, 7, 1),
        architectures=(90,),
        effect="multiplies transposed sums of another tl.dot wrongly",
        affects=lambda use: use.transposed_sums,
        wrong_result=True,
    ),
    Defect(
        report="triton-lang/triton#8311",
        since=(3, 4, 0),
        fixed=(),
        architectures=(90, 100),
        effect="computes wrong results where warp_specialize meets pointer loads beside descriptors",
        affects=lambda use: use.warp_specialize and use.descriptors and use.pointer_loads,
        wrong_result=True,
    ),
    Defect(
        report="meta-pytorch/tritonbench#1094",
        since=(3, 4, 0),
        fixed=(),
        architectures=(90,),
        effect="cannot compile warp_specialize in a loop that is not flattened",
        affects=lambda use: use.warp_specialize and not use.flatten,
    ),
    Defect(
        report="triton-lang/triton#11587",
        since=(3, 4, 0),
        fixed=(),
        architectures=(90,),
        effect="cannot compile warp_specialize with descriptors made by the host and BM=128",
        affects=lambda use: use.warp_specialize and use.host_descriptors and use.bm == 128,
    ),
    Defect(
        report="triton-lang/triton#9728, #8260, #8072, #10284, #8932",
        since=(3, 4, 0),
        fixed=(),
        architectures=(),
        effect="fails assertions of its compiler with warp_specialize",
        affects=lambda use: use.warp_specialize,
    ),
)


def number(text: str) -> tuple[int, ...]:
    """(3, 6, 0) for `3.6.0`, and for `3.6.0+git1234` or `3.6.0rc1` too."""
    parts = []
    for part in text.split("+")[0].split(".")[:3]:
        digits = part[: next((at for at, sign in enumerate(part) if not sign.isdigit()), len(part))]
        parts.append(int(digits or 0))
    return tuple(parts)


def present(installed: str, device: Device) -> tuple[Defect, ...]:
    """The defects that version `installed` has on `device`."""
    have = number(installed)
    return tuple(
        defect
        for defect in DEFECTS
        if defect.since <= have
        and (not defect.fixed or have < defect.fixed)
        and (not defect.architectures or sm(device.arch) in defect.architectures)
    )


def refuses(use: Use, device: Device, installed: str | None = None) -> str | None:
    """Why the installed Triton must not be used this way on `device`; None when nothing is known against it."""
    have = version() if installed is None else installed
    if not have:
        return None  # prepared to be asked for: the variant's `needs` says that it is missing
    if number(have) < OLDEST:
        return f"Triton {have} is older than {'.'.join(map(str, OLDEST))}, the oldest that these kernels compile with"
    found = next((defect for defect in present(have, device) if defect.affects(use)), None)
    return None if found is None else f"Triton {have} {found.effect} on {device.arch} ({found.report})"


def warnings(use: Use, device: Device, installed: str | None = None) -> tuple[str, ...]:
    """What to know about the installed Triton although this use is not affected: its wrong results elsewhere."""
    have = version() if installed is None else installed
    found = [d for d in present(have, device) if d.wrong_result and not d.affects(use)] if have else []
    return tuple(
        f"Triton {have} {d.effect} on {device.arch} ({d.report}); this kernel does not, and its result is checked"
        for d in found
    )
