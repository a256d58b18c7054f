"""The metric catalogue of NVIDIA PerfWorks, read from libnvperf_host.so: no GPU and no driver needed.

The library comes with the package nvidia-cuda-cupti. Every call takes one structure that begins with its own size.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

CHIPS = {"sm_80": "GA100", "sm_86": "GA102", "sm_89": "AD102", "sm_90": "GH100", "sm_100": "GB100", "sm_120": "GB202"}
SIZE, POINTER, TEXT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
KERNEL_ACTIVITY = 1
MOST_PASSES = 2**32 - 1


class _Request(ctypes.Structure):
    _fields_ = [("index", SIZE), ("type", ctypes.c_uint8), ("rollup", ctypes.c_uint8), ("submetric", ctypes.c_uint16)]


class _RawRequest(ctypes.Structure):
    _fields_ = [
        ("size", SIZE),
        ("private", POINTER),
        ("name", TEXT),
        ("isolated", ctypes.c_uint8),
        ("keep_instances", ctypes.c_uint8),
    ]


_REQUEST_SIZE = _Request.submetric.offset + _Request.submetric.size


def _library() -> ctypes.CDLL:
    import nvidia

    found = [file for folder in nvidia.__path__ for file in Path(folder).rglob("libnvperf_host.so")]
    return ctypes.CDLL(str(found[0]))


class Catalogue:
    """The counters of one chip."""

    def __init__(self, arch: str) -> None:
        self.library = _library()
        self.chip = CHIPS[arch].encode()
        self._call("NVPW_InitializeHost", [])
        fields = [("chip", TEXT), ("availability", POINTER), ("bytes", SIZE)]
        scratch = self._call("NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize", fields, chip=self.chip).bytes
        self.scratch = (ctypes.c_uint8 * scratch)()
        self.evaluator = self._call(
            "NVPW_CUDA_MetricsEvaluator_Initialize",
            [
                ("scratch", POINTER),
                ("bytes", SIZE),
                ("chip", TEXT),
                ("availability", POINTER),
                ("image", POINTER),
                ("image_bytes", SIZE),
                ("evaluator", POINTER),
            ],
            scratch=ctypes.cast(self.scratch, POINTER),
            bytes=scratch,
            chip=self.chip,
        ).evaluator

    def _call(self, function: str, fields: list[tuple[str, Any]], **values: Any) -> Any:
        layout = [("size", SIZE), ("private", POINTER), *fields]
        structure = type("Parameters", (ctypes.Structure,), {"_fields_": layout})
        last = getattr(structure, layout[-1][0])
        parameters = structure(size=last.offset + last.size, **values)
        status = getattr(self.library, function)(ctypes.byref(parameters))
        if status:
            raise LookupError(f"{function}: {status}")
        return parameters

    def _request(self, name: str) -> _Request:
        request = _Request()
        self._call(
            "NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest",
            [("evaluator", POINTER), ("name", TEXT), ("request", POINTER), ("bytes", SIZE)],
            evaluator=self.evaluator,
            name=name.encode(),
            request=ctypes.cast(ctypes.pointer(request), POINTER),
            bytes=_REQUEST_SIZE,
        )
        return request

    def has(self, name: str) -> bool:
        """Whether the chip has the metric `name`, suffix included."""
        try:
            self._request(name)
        except LookupError:
            return False
        return True

    def _raw(self, name: str) -> list[bytes]:
        request = self._request(name)
        fields = [("evaluator", POINTER), ("requests", POINTER), ("count", SIZE), ("bytes", SIZE), ("stride", SIZE)]
        fields += [("raw", POINTER), ("raw_count", SIZE), ("optional", POINTER), ("optional_count", SIZE)]
        known = {
            "evaluator": self.evaluator,
            "requests": ctypes.cast(ctypes.pointer(request), POINTER),
            "count": 1,
            "bytes": _REQUEST_SIZE,
            "stride": ctypes.sizeof(_Request),
        }
        function = "NVPW_MetricsEvaluator_GetMetricRawDependencies"
        count = self._call(function, fields, **known).raw_count
        names = (TEXT * count)()
        self._call(function, fields, **known, raw=ctypes.cast(names, POINTER), raw_count=count)
        return list(names)

    def passes(self, names: list[str]) -> int:
        """How often a kernel must run to collect `names` together."""
        config = self._call(
            "NVPW_CUDA_RawMetricsConfig_Create_V2",
            [("activity", ctypes.c_uint32), ("chip", TEXT), ("availability", POINTER), ("config", POINTER)],
            activity=KERNEL_ACTIVITY,
            chip=self.chip,
        ).config
        head = [("config", POINTER)]
        self._call(
            "NVPW_RawMetricsConfig_BeginPassGroup",
            [*head, ("most", SIZE)],
            config=config,
            most=ctypes.c_uint32(-1).value,
        )
        for raw in dict.fromkeys(raw for name in names for raw in self._raw(name)):
            request = _RawRequest(name=raw, isolated=1, keep_instances=1)
            request.size = _RawRequest.keep_instances.offset + 1
            self._call(
                "NVPW_RawMetricsConfig_AddMetrics",
                [*head, ("requests", POINTER), ("count", SIZE)],
                config=config,
                requests=ctypes.cast(ctypes.pointer(request), POINTER),
                count=1,
            )
        self._call("NVPW_RawMetricsConfig_EndPassGroup", head, config=config)
        merge = [*head, ("merge", ctypes.c_uint8)]
        self._call("NVPW_RawMetricsConfig_GenerateConfigImage", merge, config=config, merge=1)
        return int(self._call("NVPW_RawMetricsConfig_GetNumPasses_V2", [*head, ("passes", SIZE)], config=config).passes)
