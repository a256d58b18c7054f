"""Every driver call that dgw makes exists in the installed cuda.bindings, takes these arguments, knows these enums."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import cuda.bindings.driver as api
import pytest

import dgw.workbench.device as package
from dgw.workbench import environment
from dgw.workbench.device import driver
from dgw.workbench.device.context import Parameters
from dgw.workbench.device.driver import CudaError, Driver

SOURCES = sorted(Path(package.__file__).parent.glob("*.py"))


def calls() -> list[tuple[str, str, int]]:
    """(file, function, number of arguments) of every call through Driver.call or the module itself."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", "") == "CudaError":
                continue
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and str(first.value).startswith("cu") and "CUDA" not in str(first.value):
                if not any(isinstance(argument, ast.Starred) for argument in node.args):
                    found.append((path.name, str(first.value), len(node.args) - 1))
            elif (
                isinstance(node.func, ast.Attribute) and node.func.attr.startswith("cu") and node.func.attr[2].isupper()
            ):
                found.append((path.name, node.func.attr, len(node.args)))
    return found


@pytest.mark.parametrize(("file", "name", "count"), sorted(set(calls())))
def test_a_driver_call_fits_the_installed_signature(file: str, name: str, count: int) -> None:
    inspect.signature(getattr(api, name)).bind(*range(count))


def test_enough_calls_are_seen_for_this_test_to_mean_something() -> None:
    seen = {name for _, name, _ in calls()}
    assert {"cuLaunchKernelEx", "cuStreamBeginCapture", "cuTensorMapEncodeTiled", "cuMemAlloc"} <= seen


def test_every_error_name_that_is_sorted_into_outcomes_exists() -> None:
    known = {code.name for code in api.CUresult}
    assert known >= driver._LAUNCH_FAILED | driver._OUT_OF_MEMORY | driver._UNAVAILABLE


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("CUDA_ERROR_OUT_OF_MEMORY", "out-of-memory"), ("CUDA_ERROR_INVALID_VALUE", "launch-failed"),
     ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "launch-failed"), ("CUDA_ERROR_ILLEGAL_ADDRESS", "crashed"),
     ("CUDA_ERROR_MISALIGNED_ADDRESS", "crashed"), ("CUDA_ERROR_LAUNCH_FAILED", "crashed"),
     ("CUDA_ERROR_UNKNOWN", "crashed")],
)  # fmt: skip
def test_an_error_becomes_an_outcome(name: str, outcome: str) -> None:
    assert CudaError("call", name).outcome == outcome


def test_enums_and_structures_have_the_members_that_are_used() -> None:
    config, attribute = api.CUlaunchConfig(), api.CUlaunchAttribute()
    config.gridDimX, config.gridDimY, config.gridDimZ = 1, 2, 3
    attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    cluster = attribute.value.clusterDim
    cluster.x, cluster.y, cluster.z = 2, 1, 1
    early = api.CUlaunchAttribute()
    early.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    early.value.programmaticStreamSerializationAllowed = 1
    config.attrs, config.numAttrs = [attribute, early], 2
    assert config.attrs[0].value.clusterDim.x == 2
    assert config.attrs[1].value.programmaticStreamSerializationAllowed == 1
    assert len(api.CUtensorMap().opaque) == 16
    for name in re.findall(r'attribute\("(\w+)"\)', Path(environment.__file__).read_text(encoding="utf-8")):
        assert hasattr(api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")


def test_results_come_back_bare_single_or_as_a_tuple_and_errors_are_raised() -> None:
    good = api.CUresult.CUDA_SUCCESS
    functions = {
        "cuNothing": lambda: (good,),
        "cuOne": lambda x: (good, x),
        "cuTwo": lambda: (good, 1, 2),
        "cuBad": lambda: (api.CUresult.CUDA_ERROR_INVALID_VALUE, None),
        "cuGetErrorString": lambda code: (good, b"invalid argument"),
    }
    made = Driver(SimpleNamespace(**functions))
    assert made.call("cuNothing") is None
    assert made.call("cuOne", 7) == 7
    assert made.call("cuTwo") == (1, 2)
    with pytest.raises(CudaError, match=r"cuBad: CUDA_ERROR_INVALID_VALUE \(invalid argument\)"):
        made.call("cuBad")


def test_parameters_are_an_array_of_pointers_to_the_values() -> None:
    import ctypes

    made = Parameters([b"\x01\x00\x00\x00", b"12345678"])
    pointers = (ctypes.c_void_p * 2).from_address(made.address)
    assert ctypes.string_at(pointers[0], 4) == b"\x01\x00\x00\x00"
    assert ctypes.string_at(pointers[1], 8) == b"12345678"
