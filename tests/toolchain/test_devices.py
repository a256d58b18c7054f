from __future__ import annotations

import msgspec
import pytest

from dgw.errors import UsageError
from dgw.model import Device, Operand, Problem, gemm
from dgw.toolchain.devices import DEVICES, device, device_for_arch, identify
from dgw.toolchain.limits import lower_bound, peak_rate
from dgw.toolchain.nvrtc import ARCHITECTURES


@pytest.mark.parametrize("entry", DEVICES.values(), ids=DEVICES.keys())
def test_every_device_names_its_sources_and_survives_json(entry: Device) -> None:
    assert len(entry.sources) >= 3
    assert any("data sheet" in source or "whitepaper" in source for source in entry.sources)
    assert entry.arch in ARCHITECTURES
    assert entry.shared_per_block + entry.shared_reserved_per_block == entry.shared_per_sm
    assert msgspec.json.decode(msgspec.json.encode(entry), type=Device) == entry


def test_the_table_has_the_promised_devices() -> None:
    assert {"a100", "h100", "h200", "l4", "rtx4090", "b200"} <= set(DEVICES)


@pytest.mark.parametrize(
    ("name", "dtype", "teraflops", "boost"),
    [
        ("a100", "f16", 312, 1.41e9), ("a100", "s8", 624, 1.41e9), ("a100", "tf32", 156, 1.41e9),
        ("a100", "f32", 19.5, 1.41e9), ("h100", "f16", 989.4, 1.83e9), ("h200", "e4m3", 1978.9, 1.83e9),
        ("h200", "f32", 66.9, 1.98e9), ("l4", "f16", 121, 2.04e9), ("l4", "e4m3", 242.5, 2.04e9),
        ("l4", "f32", 30.3, 2.04e9), ("rtx4090", "f16", 165.2, 2.52e9), ("rtx4090", "e4m3", 330.3, 2.52e9),
        ("rtx4090", "s8", 660.6, 2.52e9), ("rtx4090", "f32", 82.6, 2.52e9), ("a10", "f16", 125, 1.695e9),
        ("b200", "f16", 2250, 1.85e9), ("b200", "e4m3", 4500, 1.85e9),
    ],
)  # fmt: skip
def test_rates_per_clock_give_the_figures_of_the_data_sheet(
    name: str, dtype: str, teraflops: float, boost: float
) -> None:
    entry = DEVICES[name]
    _, rate = peak_rate(gemm(1, 1, 1, dtype=dtype), entry)
    assert rate / entry.clock_hz * boost == pytest.approx(teraflops * 1e12, rel=0.01)
    assert entry.clock_hz >= boost


def test_a_measured_ceiling_is_never_above_the_peak_that_bounds_it() -> None:
    h200 = DEVICES["h200"]
    assert h200.measured["dram_copy"] < h200.measured["dram_read"] < h200.dram_bytes_per_s
    for dtype in ("f16", "s8", "tf32"):
        assert h200.measured[f"mma_{dtype}"] < peak_rate(gemm(1, 1, 1, dtype=dtype), h200)[1]
        mma = h200.mma_flops_per_sm_per_clock[dtype] * h200.sms * h200.clock_hz
        assert mma == pytest.approx(h200.measured[f"mma_{dtype}"], rel=1e-3)


def test_names_are_found_in_any_case_and_a_wrong_one_offers_the_nearest() -> None:
    assert device(" H200 ").name == "h200"
    with pytest.raises(UsageError, match=r"did you mean .*h200") as caught:
        device("h20")
    assert caught.value.hint.startswith("--device ")


@pytest.mark.parametrize("arch", [*ARCHITECTURES, "sm_90", "sm_100"])
def test_every_architecture_has_a_device(arch: str) -> None:
    assert device_for_arch(arch).arch.rstrip("a") == arch.rstrip("a")


@pytest.mark.parametrize("arch", ["sm_70", "turing", ""])
def test_an_architecture_without_device_is_a_usage_error(arch: str) -> None:
    with pytest.raises(UsageError, match="no device of architecture"):
        device_for_arch(arch)


@pytest.mark.parametrize(
    ("name", "sms", "expected"),
    [
        ("NVIDIA H200", 132, "h200"), ("NVIDIA H100 80GB HBM3", 132, "h100"), ("NVIDIA A100-SXM4-80GB", 108, "a100"),
        ("NVIDIA GeForce RTX 4090", 128, "rtx4090"), ("NVIDIA L4", 58, "l4"), ("NVIDIA B200", 148, "b200"),
        ("NVIDIA A10", 72, "a10"), ("NVIDIA L40S", 142, None), ("NVIDIA H100 PCIe", 114, None),
        ("NVIDIA H100 NVL", 132, None), ("NVIDIA GeForce RTX 4090 Laptop GPU", 76, None), ("NVIDIA A10G", 80, None),
        ("NVIDIA H200 MIG 1g.18gb", 16, None), ("NVIDIA GeForce RTX 4090 D", 114, None),
    ],
)  # fmt: skip
def test_a_gpu_is_recognised_by_name_and_number_of_sms(name: str, sms: int, expected: str | None) -> None:
    found = identify(name, sms)
    assert (found.name if found else None) == expected


def test_a_large_product_is_bound_by_the_tensor_cores() -> None:
    bound = lower_bound(gemm(4096, 4096, 4096), DEVICES["h200"])
    assert bound.binds == "tensor"
    assert bound.seconds == pytest.approx(2 * 4096**3 / (132 * 1.98e9 * 4096))
    assert bound.parts["dram"] == pytest.approx(3 * 2 * 4096**2 / 4.8e12)


def test_a_matrix_vector_product_is_bound_by_dram_unless_the_cache_is_warm() -> None:
    problem = gemm(1, 4096, 4096)
    assert lower_bound(problem, DEVICES["h200"]).binds == "dram"
    assert lower_bound(problem, DEVICES["h200"]).seconds == pytest.approx(33.57e6 / 4.8e12, rel=1e-3)
    warm = lower_bound(problem, DEVICES["h200"], cold=False)
    assert warm.parts["dram"] == 0.0
    assert warm.binds == "tensor"


@pytest.mark.parametrize(
    ("shape", "dtype", "measured"),
    [
        ((4096, 4096, 4096), "f16", 180e-6), ((8192, 8192, 8192), "f16", 1622e-6), ((1, 8192, 28672), "f16", 108.7e-6),
        ((4096, 4096, 4096), "e4m3", 100.2e-6), ((8192, 8192, 8192), "s8", 1221e-6),
        ((4096, 4096, 4096), "tf32", 384e-6),
        ((4096, 4096, 4096), "f32", 2695e-6), ((512, 512, 512), "f16", 3.4e-6),
    ],
)  # fmt: skip
def test_the_bound_is_below_what_cublas_took_on_an_h200(
    shape: tuple[int, int, int], dtype: str, measured: float
) -> None:
    assert lower_bound(gemm(*shape, dtype=dtype), DEVICES["h200"]).seconds < measured


def test_f32_is_bound_by_the_fma_pipe() -> None:
    bound = lower_bound(gemm(4096, 4096, 4096, dtype="f32"), DEVICES["a100"])
    assert bound.binds == "fma"
    assert bound.flops_per_s == pytest.approx(19.5e12, rel=1e-3)


def test_mixed_inputs_go_at_the_rate_of_the_slower_one() -> None:
    problem = Problem(m=8, n=8, k=8, a=Operand(dtype="f16"), b=Operand(dtype="s4"), d=Operand(dtype="f16"))
    assert peak_rate(problem, DEVICES["a100"]) == peak_rate(gemm(8, 8, 8), DEVICES["a100"])


def test_a_dtype_without_tensor_cores_goes_at_the_rate_of_the_next_wider_one() -> None:
    assert peak_rate(gemm(8, 8, 8, dtype="e4m3"), DEVICES["a100"]) == peak_rate(gemm(8, 8, 8), DEVICES["a100"])
    s4, s8 = (peak_rate(gemm(8, 8, 8, dtype=dtype), DEVICES["h200"]) for dtype in ("s4", "s8"))
    assert s4 == s8


def test_half_precision_accumulation_is_faster_only_where_it_is() -> None:
    narrow = gemm(8, 8, 8, accumulator="f16")
    assert peak_rate(narrow, DEVICES["rtx4090"])[1] == 2 * peak_rate(gemm(8, 8, 8), DEVICES["rtx4090"])[1]
    assert peak_rate(narrow, DEVICES["h200"]) == peak_rate(gemm(8, 8, 8), DEVICES["h200"])


def test_a_dtype_that_the_device_cannot_multiply_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no known rate for f64"):
        lower_bound(gemm(8, 8, 8, dtype="f64"), DEVICES["l4"])


def test_a_device_whose_tensor_rates_are_not_known_is_bound_by_dram_alone() -> None:
    unknown = msgspec.structs.replace(DEVICES["h200"], tensor_flops_per_sm_per_clock={})
    bound = lower_bound(gemm(4096, 4096, 4096), unknown)
    assert set(bound.parts) == {"dram"}
    assert bound.flops_per_s is None
    assert lower_bound(gemm(4096, 4096, 4096, dtype="f32"), unknown).binds == "fma"
