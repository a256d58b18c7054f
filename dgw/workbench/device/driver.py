"""The CUDA driver API through cuda.bindings: one way to call it, one exception, one table of what an error means."""

from __future__ import annotations

from typing import Any

from dgw.errors import DgwError, Exit
from dgw.model import Outcome

# The context survives these: only this launch, load or allocation failed.
_LAUNCH_FAILED = frozenset({
    "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_INVALID_PTX",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "CUDA_ERROR_NOT_FOUND", "CUDA_ERROR_INVALID_HANDLE", "CUDA_ERROR_NOT_SUPPORTED",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "CUDA_ERROR_INVALID_CLUSTER_SIZE",
    "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "CUDA_ERROR_INVALID_SOURCE",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
    "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
    "CUDA_ERROR_NOT_PERMITTED",
})  # fmt: skip
_OUT_OF_MEMORY = frozenset({"CUDA_ERROR_OUT_OF_MEMORY"})
_UNAVAILABLE = frozenset({
    "CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_INVALID_DEVICE", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "CUDA_ERROR_NOT_INITIALIZED",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA_ERROR_STUB_LIBRARY",
    "CUDA_ERROR_SYSTEM_NOT_READY", "CUDA_ERROR_DEVICE_NOT_LICENSED",
})  # fmt: skip


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
