"""The CUDA driver API through cuda.bindings: one way to call it, one exception, one table of what an error means."""

from __future__ import annotations

from typing import Any

from dgw.errors import DgwError, Exit
from dgw.model import Outcome

# The context survives these: only this launch, load or allocation failed.
_LAUNCH_FAILED = frozenset(
    f"CUDA_ERROR_{name}"
    for name in [
        "INVALID_VALUE",
        "INVALID_IMAGE",
        "NO_BINARY_FOR_GPU",
        "INVALID_PTX",
        "UNSUPPORTED_PTX_VERSION",
        "INVALID_SOURCE",
        "NOT_FOUND",
        "INVALID_HANDLE",
        "NOT_SUPPORTED",
        "NOT_PERMITTED",
        "LAUNCH_OUT_OF_RESOURCES",
        "COOPERATIVE_LAUNCH_TOO_LARGE",
        "INVALID_CLUSTER_SIZE",
        "SHARED_OBJECT_INIT_FAILED",
        "SHARED_OBJECT_SYMBOL_NOT_FOUND",
        "STREAM_CAPTURE_UNSUPPORTED",
        "STREAM_CAPTURE_INVALIDATED",
        "STREAM_CAPTURE_MERGE",
        "STREAM_CAPTURE_UNMATCHED",
        "STREAM_CAPTURE_UNJOINED",
        "STREAM_CAPTURE_ISOLATION",
        "STREAM_CAPTURE_IMPLICIT",
        "STREAM_CAPTURE_WRONG_THREAD",
    ]
)
_OUT_OF_MEMORY = frozenset({"CUDA_ERROR_OUT_OF_MEMORY"})
_UNAVAILABLE = frozenset(
    f"CUDA_ERROR_{name}"
    for name in [
        "NO_DEVICE",
        "INVALID_DEVICE",
        "SYSTEM_DRIVER_MISMATCH",
        "NOT_INITIALIZED",
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "DEVICE_UNAVAILABLE",
        "STUB_LIBRARY",
        "SYSTEM_NOT_READY",
        "DEVICE_NOT_LICENSED",
    ]
)


class CudaError(DgwError):
    """A driver call failed. `name` is the CUresult's name, `call` the function; `outcome` what it means for a case."""

    exit_code = Exit.FAULT

    def __init__(self, call: str, name: str, text: str = "") -> None:
        super().__init__(f"{call}: {name}" + (f" ({text})" if text else ""), "dgw doctor")
        self.call = call
        self.name = name

    @property
    def outcome(self) -> Outcome:
        """launch-failed and out-of-memory leave the context usable; crashed means that it is dead."""
        if self.name in _OUT_OF_MEMORY:
            return "out-of-memory"
        return "launch-failed" if self.name in _LAUNCH_FAILED else "crashed"

    @property
    def unavailable(self) -> bool:
        """Whether the error says that there is no GPU or driver to work with."""
        return self.name in _UNAVAILABLE


class Driver:
    """cuda.bindings.driver with errors raised instead of returned.

    `api` is the module (or a stand-in with the same functions and enums). Every call goes through :meth:`call`.
    """

    def __init__(self, api: Any = None) -> None:
        if api is None:
            from cuda.bindings import driver

            api = driver
        self.api = api

    def call(self, name: str, *arguments: Any) -> Any:
        """Call `name`; returns nothing, its one result, or the tuple of its results. Raises CudaError."""
        answer = getattr(self.api, name)(*arguments)
        code, *values = answer if isinstance(answer, tuple) else (answer,)
        if int(code) != 0:
            raise CudaError(name, self.name_of(code), self._text_of(code))
        if not values:
            return None
        return values[0] if len(values) == 1 else tuple(values)

    def name_of(self, code: Any) -> str:
        """The name of a CUresult."""
        return str(getattr(code, "name", None) or f"CUresult {int(code)}")

    def _text_of(self, code: Any) -> str:
        try:
            failed, text = self.api.cuGetErrorString(code)
        except Exception:
            return ""
        return text.decode() if int(failed) == 0 and text else ""
