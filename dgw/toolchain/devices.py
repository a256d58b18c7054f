"""The device table: limits and peak rates of the GPUs that dgw knows, each figure with its source in words.

`clock_hz` is the highest SM clock that the model can run at, and DRAM rates are those of the data sheet, so that a time
computed from them is never above what the device can do. What microbenchmarks really reached is kept apart, in
`Device.measured`. A key `f16/f16` in a table of rates is f16 inputs with f16 accumulation, where that is faster.

Rates per SM and clock follow from the data sheet: dense FLOP/s = SMs x clock x rate. Example, H100 SXM: 989 TFLOP/s =
132 x 1.83 GHz x 4096.
"""

from __future__ import annotations

import difflib
import re

from dgw.errors import UsageError
from dgw.model import Device, sm

KIB = 1024
MIB = 1024 * KIB

_SM_80 = "limits per SM and block: CUDA C++ programming guide, compute capability 8.0"
_SM_86 = "limits per SM and block: CUDA C++ programming guide, compute capability 8.6"
_SM_89 = "limits per SM and block: CUDA C++ programming guide, compute capability 8.9"
_SM_90 = "limits per SM and block: CUDA C++ programming guide, compute capability 9.0"
_SM_100 = "limits per SM and block: CUDA C++ programming guide, compute capability 10.0"
_HOPPER = {"f16": 4096, "bf16": 4096, "tf32": 2048, "e4m3": 8192, "s8": 8192, "f64": 256}
# What mma.sync reached on an H200 (640 TFLOP/s f16, 1275 TOP/s s8, 320 TFLOP/s tf32), over 132 SMs at 1.98 GHz.
_HOPPER_MMA = {"f16": 2449, "bf16": 2449, "tf32": 1224, "s8": 4878}
_ADA_LOVELACE = {"f16": 1024, "bf16": 1024, "tf32": 512, "e4m3": 2048, "s8": 2048, "s4": 4096}
_GEFORCE_ADA = {
    "f16": 512, "f16/f16": 1024, "bf16": 512, "tf32": 256, "e4m3": 1024, "e4m3/f16": 2048, "s8": 2048, "s4": 4096,
}  # fmt: skip
_AMPERE_GA100 = {"f16": 2048, "bf16": 2048, "tf32": 1024, "s8": 4096, "s4": 8192, "f64": 128}
_AMPERE_GA102 = {"f16": 1024, "bf16": 1024, "tf32": 512, "s8": 2048, "s4": 4096}
_BLACKWELL = {"f16": 8192, "bf16": 8192, "tf32": 4096, "e4m3": 16384, "s8": 16384, "f64": 128}

DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        Device(
            name="a100", arch="sm_80", sms=108, clock_hz=1.410e9, l2_bytes=40 * MIB, dram_bytes_per_s=2.039e12,
            shared_per_sm=164 * KIB, shared_per_block=163 * KIB, shared_reserved_per_block=KIB, fma_per_sm_per_clock=64,
            tensor_flops_per_sm_per_clock=_AMPERE_GA100, mma_flops_per_sm_per_clock=_AMPERE_GA100,
            sources=(
                "A100 80 GB SXM data sheet: 312 TFLOP/s f16, 624 TOP/s s8, 19.5 TFLOP/s f32, 2,039 GB/s",
                "A100 architecture whitepaper: 108 SMs, boost 1410 MHz, 40 MB L2, 64 f32 lanes an SM, int4 twice int8",
                _SM_80,
            ),
        ),
        Device(
            name="a10", arch="sm_86", sms=72, clock_hz=1.695e9, l2_bytes=6 * MIB, dram_bytes_per_s=0.600e12,
            shared_per_sm=100 * KIB, shared_per_block=99 * KIB, shared_reserved_per_block=KIB,
            max_threads_per_sm=1536, max_blocks_per_sm=16,
            tensor_flops_per_sm_per_clock=_AMPERE_GA102, mma_flops_per_sm_per_clock=_AMPERE_GA102,
            sources=(
                "A10 data sheet: 125 TFLOP/s f16, 250 TOP/s s8, 500 TOP/s s4, 31.2 TFLOP/s f32, 600 GB/s",
                "GA102 architecture whitepaper: rates per SM; the board: 72 SMs, boost 1695 MHz, 6 MB L2",
                _SM_86,
            ),
        ),
        Device(
            name="l4", arch="sm_89", sms=58, clock_hz=2.040e9, l2_bytes=48 * MIB, dram_bytes_per_s=0.300e12,
            shared_per_sm=100 * KIB, shared_per_block=99 * KIB, shared_reserved_per_block=KIB,
            max_threads_per_sm=1536, max_blocks_per_sm=24,
            tensor_flops_per_sm_per_clock=_ADA_LOVELACE, mma_flops_per_sm_per_clock=_ADA_LOVELACE,
            sources=(
                "L4 data sheet: 121 TFLOP/s f16 and 242 TFLOP/s fp8 dense (half of the sparse figures), 300 GB/s",
                "Ada architecture whitepaper: 58 SMs, boost 2040 MHz, 48 MB L2, int4 twice int8",
                _SM_89,
            ),
        ),
        Device(
            name="rtx4090", arch="sm_89", sms=128, clock_hz=3.105e9, l2_bytes=72 * MIB, dram_bytes_per_s=1.008e12,
            shared_per_sm=100 * KIB, shared_per_block=99 * KIB, shared_reserved_per_block=KIB,
            max_threads_per_sm=1536, max_blocks_per_sm=24,
            tensor_flops_per_sm_per_clock=_GEFORCE_ADA, mma_flops_per_sm_per_clock=_GEFORCE_ADA,
            sources=(
                "Ada architecture whitepaper, at boost 2520 MHz: 165 TFLOP/s f16 with f32 accumulation, 330 with f16, "
                "330 and 661 TFLOP/s fp8, 661 TOP/s int8, 1321 TOP/s int4, 82.6 TFLOP/s f32, 1,008 GB/s, 72 MB L2",
                "highest graphics clock 3105 MHz as the driver reports it for a stock card; cards run above the boost "
                "of the whitepaper (2655 to 2820 MHz in public logs), which would break a lower bound",
                _SM_89,
            ),
        ),
        Device(
            name="h100", arch="sm_90a", sms=132, clock_hz=1.980e9, l2_bytes=50 * MIB, dram_bytes_per_s=3.35e12,
            shared_per_sm=228 * KIB, shared_per_block=227 * KIB, shared_reserved_per_block=KIB,
            tensor_flops_per_sm_per_clock=_HOPPER, mma_flops_per_sm_per_clock=_HOPPER_MMA,
            sources=(
                "H100 SXM data sheet: 989 TFLOP/s f16, 1979 TFLOP/s fp8 (dense, 1830 MHz), 67 TFLOP/s f32, 3.35 TB/s",
                "H100 architecture whitepaper: 132 SMs, 50 MB L2; highest SM clock 1980 MHz as the driver reports it",
                "mma.sync rates: taken from the H200, which has the same SM",
                _SM_90,
            ),
        ),
        Device(
            name="h200", arch="sm_90a", sms=132, clock_hz=1.980e9, l2_bytes=60 * MIB, dram_bytes_per_s=4.8e12,
            shared_per_sm=228 * KIB, shared_per_block=227 * KIB, shared_reserved_per_block=KIB,
            tensor_flops_per_sm_per_clock=_HOPPER, mma_flops_per_sm_per_clock=_HOPPER_MMA,
            measured={
                "dram_copy": 4.25e12, "dram_read": 4.52e12, "mma_f16": 640e12, "mma_s8": 1275e12, "mma_tf32": 320e12,
            },
            sources=(
                "H200 SXM data sheet: 989 TFLOP/s f16, 1979 TFLOP/s fp8 (dense, 1830 MHz), 67 TFLOP/s f32, 4.8 TB/s",
                "measured on an H200: 132 SMs, 60 MB L2, boost 1980 MHz, 700 W cap",
                "measured: device-to-device copy 4.15 to 4.25 TB/s read and written, 16-byte loads alone 4.52 TB/s",
                "measured: mma.sync from registers 640 TFLOP/s f16, 1275 TOP/s s8, 320 TFLOP/s tf32; its rates per SM "
                "and clock here are these over 132 SMs at 1980 MHz",
                _SM_90,
            ),
        ),
        Device(
            name="b200", arch="sm_100a", sms=148, clock_hz=1.965e9, l2_bytes=126 * MIB, dram_bytes_per_s=8.0e12,
            shared_per_sm=228 * KIB, shared_per_block=227 * KIB, shared_reserved_per_block=KIB,
            tensor_flops_per_sm_per_clock=_BLACKWELL,
            sources=(
                "HGX B200 data sheet, one GPU: 2.25 PFLOP/s f16, 4.5 PFLOP/s fp8, 4.5 POP/s int8 dense, 8 TB/s",
                "148 SMs, 126 MB L2, highest SM clock 1965 MHz as the driver reports them; Blackwell tuning guide",
                "rates per SM and clock: the powers of two that give the data sheet's figures at 1.85 GHz; the rate of "
                "mma.sync is not known and left out",
                _SM_100,
            ),
        ),
    )
}  # fmt: skip

_FOR_ARCHITECTURE = {80: "a100", 86: "a10", 89: "l4", 90: "h200", 100: "b200"}
_OTHER_BOARDS = re.compile(r"\b(nvl|pcie|mig|laptop|ti|super)\b|\d+g\.\d+gb")


def device(name: str) -> Device:
    """The device called `name`, in any case; UsageError with the nearest names."""
    found = DEVICES.get(name.strip().lower())
    if found is None:
        near = difflib.get_close_matches(name.lower(), DEVICES, n=3, cutoff=0.4)
        guess = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UsageError(f"no device {name!r} in the table{guess}", hint=f"--device {near[0] if near else 'h200'}")
    return found


def device_for_arch(arch: str) -> Device:
    """The device that stands for `arch` (sm_90 and sm_90a: h200) when none is named; UsageError for another one."""
    digits = "".join(ch for ch in arch if ch.isdigit())
    name = _FOR_ARCHITECTURE.get(sm(arch)) if digits else None
    if name is None:
        known = ", ".join(dict.fromkeys(DEVICES[known].arch for known in _FOR_ARCHITECTURE.values()))
        raise UsageError(f"no device of architecture {arch!r} in the table", hint=f"--arch one of {known}")
    return DEVICES[name]


def identify(cuda_name: str, sms: int) -> Device | None:
    """The entry for a GPU that calls itself `cuda_name` (such as "NVIDIA H200") and has `sms` SMs; None: not in it.

    Boards of the same name with other clocks or memory (PCIe, NVL, laptops) and MIG slices are not taken for it.
    """
    words = cuda_name.lower().replace("-", " ")
    compact = re.sub(r"\b(rtx) (\d+)", r"\1\2", words)
    if _OTHER_BOARDS.search(compact):
        return None
    return next((d for d in DEVICES.values() if re.search(rf"\b{d.name}\b", compact) and d.sms == sms), None)
