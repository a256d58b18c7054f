from __future__ import annotations

import pytest

from dgw.kernels.loader import load
from dgw.kernels.triton import defects
from dgw.kernels.triton.defects import Use, number, present, refuses, warnings
from dgw.model import Epilogue, gemm
from dgw.toolchain.devices import device

A100, H200 = device("a100"), device("h200")
STAGES = [variant for variant in load().values() if variant.family == "triton"]
TRANSPOSED = Use(transposed_sums=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3.6.0", (3, 6, 0)), ("3.6.0+git1a2b", (3, 6, 0)), ("3.10.1rc2", (3, 10, 1)), ("3.7", (3, 7))],
)
def test_versions_are_compared_as_numbers(text: str, expected: tuple[int, ...]) -> None:
    assert number(text) == expected


@pytest.mark.parametrize(
    ("version", "affected"), [("3.4.0", True), ("3.6.0", True), ("3.7.0", True), ("3.7.1", False), ("3.9.0", False)]
)
def test_transposed_sums_are_refused_on_hopper_by_the_versions_that_get_them_wrong(
    version: str, affected: bool
) -> None:
    reason = refuses(TRANSPOSED, H200, version)
    assert (reason is not None) is affected
    assert refuses(TRANSPOSED, A100, version) is None
    if reason:
        assert reason.startswith(f"Triton {version} multiplies transposed sums of another tl.dot wrongly on sm_90a")
        assert "#640" in reason


def test_other_uses_of_an_affected_version_warn_and_are_not_refused() -> None:
    assert refuses(Use(), H200, "3.6.0") is None
    assert any("#640" in text and "is checked" in text for text in warnings(Use(), H200, "3.6.0"))
    assert not any("#640" in text for text in warnings(Use(), H200, "3.9.0"))
    assert not any("#640" in text for text in warnings(TRANSPOSED, H200, "3.6.0"))
    assert warnings(Use(), A100, "3.6.0") == ()


@pytest.mark.parametrize(
    ("use", "report"),
    [
        (Use(warp_specialize=True, descriptors=True, pointer_loads=True, flatten=True), "#8311"),
        (Use(warp_specialize=True, descriptors=True, pointer_loads=False, flatten=False), "tritonbench#1094"),
        (
            Use(warp_specialize=True, descriptors=True, pointer_loads=False, flatten=True, host_descriptors=True),
            "#11587",
        ),
        (Use(warp_specialize=True, descriptors=True, pointer_loads=False, flatten=True), "#9728"),
    ],
)
def test_warp_specialisation_is_refused_with_the_report_that_fits_best(use: Use, report: str) -> None:
    assert report in str(refuses(use, H200, "3.9.0"))


def test_a_version_that_is_too_old_is_refused_and_a_missing_one_is_left_to_needs() -> None:
    assert "older than 3.4" in str(refuses(Use(), H200, "3.2.0"))
    assert refuses(Use(), H200, "") is None
    assert warnings(Use(), H200, "") == ()


def test_every_defect_names_where_it_is_reported() -> None:
    for defect in defects.DEFECTS:
        assert "#" in defect.report
        assert not defect.fixed or defect.since < defect.fixed
    assert present("3.6.0", H200)


@pytest.mark.parametrize("version", ["3.6.0", "3.9.0"])
@pytest.mark.parametrize("variant", STAGES, ids=lambda v: v.name)
def test_no_stage_is_refused_by_default_and_all_pass_warnings_on(
    variant: object, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defects, "version", lambda: version)
    problem, config = gemm(4096, 4096, 4096), variant.defaults()  # type: ignore[attr-defined]
    assert variant.refuses(problem, config, H200) is None  # type: ignore[attr-defined]
    assert len(variant.warns(problem, config, H200)) == (2 if version == "3.6.0" else 1)  # type: ignore[attr-defined]


def test_asking_for_warp_specialisation_is_refused_with_the_reason() -> None:
    persistent = next(variant for variant in STAGES if variant.name == "persistent")
    config = persistent.defaults() | {"WARP_SPECIALIZE": 1}
    assert "warp_specialize" in str(persistent.refuses(gemm(4096, 4096, 4096), config, H200))


@pytest.mark.parametrize("variant", STAGES, ids=lambda v: v.name)
def test_a_stage_says_in_one_sentence_why_it_refuses(variant: object) -> None:
    defaults = variant.defaults()  # type: ignore[attr-defined]
    for problem, config in [
        (gemm(64, 64, 64, "s8"), {}),
        (gemm(64, 64, 64, batch=2), {}),
        (gemm(64, 64, 64, out="s8"), {}),
        (gemm(64, 64, 64, epilogue=Epilogue(activation="gelu", quantise="row")), {}),
        (gemm(64, 64, 64), {"BM": 48}),
        (gemm(64, 64, 64), {"BM": 256, "BN": 256, "WARPS": 2}),
    ]:
        reason = variant.refuses(problem, defaults | config, A100)  # type: ignore[attr-defined]
        assert reason
        assert "\n" not in reason
