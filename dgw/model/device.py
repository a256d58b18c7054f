"""The limits and rates of one GPU model."""

from __future__ import annotations

from dgw.model.noun import Noun


class Device(Noun, frozen=True, kw_only=True):
    """Limits and rates of one GPU model, per device unless said otherwise; `sources` says where each comes from."""

    name: str
    arch: str  # sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_120a
    sms: int
    clock_hz: float
    l2_bytes: int
    dram_bytes_per_s: float
    shared_per_sm: int
    shared_per_block: int  # opt-in maximum
    shared_reserved_per_block: int
    registers_per_sm: int = 65536
    max_threads_per_sm: int = 2048
    max_blocks_per_sm: int = 32
    fma_per_sm_per_clock: int = 128
    tensor_flops_per_sm_per_clock: dict[str, int] = {}  # dense FLOP by input dtype, best instruction family
    mma_flops_per_sm_per_clock: dict[str, int] = {}  # dense FLOP by input dtype, mma.sync family
    measured: dict[str, float] = {}  # ceilings seen: dram_copy, dram_read (B/s), mma_f16, ... (FLOP/s)
    sources: tuple[str, ...] = ()


def sm(arch: str) -> int:
    """The number in an architecture name: 90 for `sm_90a`."""
    return int("".join(ch for ch in arch if ch.isdigit()))
