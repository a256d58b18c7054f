"""The GPUs of this machine as slots: pinned by UUID, and each held by one dgw process at a time through a file lock.

The lock is a file in a folder that all processes of the machine share. It is released by the kernel when its last
holder ends, so nothing is left to clean up after kill -9; children inherit it, so that one that outlives its parent
still keeps others away.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgw.errors import Missing, UsageError
from dgw.workbench.gpu_state import text_of

POLL_S = 0.1
_UNSEEN = ("", "-1", "NoDevFiles")


@dataclass(frozen=True)
class Slot:
    """One GPU; an empty `uuid` is whatever a child finds first. `driver` is empty where it is not known."""

    uuid: str = ""
    name: str = ""
    driver: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """What a child's environment has to say so that it sees this GPU only."""
        return {"CUDA_VISIBLE_DEVICES": self.uuid} if self.uuid else {}


@dataclass(frozen=True)
class Held:
    """A GPU that is ours for now: variables for children, and the descriptors that they shall inherit."""

    slot: Slot = Slot()
    environment: Mapping[str, str] = field(default_factory=dict)
    keep_open: tuple[int, ...] = ()


@contextlib.contextmanager
def nobody() -> Iterator[Held]:
    """No particular GPU, and no lock."""
    yield Held()


def visible(api: Any = None, environment: Mapping[str, str] | None = None) -> list[Slot]:
    """The GPUs that CUDA would show, in its order; nothing is opened. Empty where nothing tells which there are.

    `api` is pynvml, or a stand-in. CUDA_VISIBLE_DEVICES counts, with numbers, UUIDs and beginnings of UUIDs; a part of
    a GPU (MIG) is taken by its UUID as it stands.
    """
    known = _from_nvml(api) or ([] if api is not None else _from_smi())
    wanted = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return known
    found: list[Slot] = []
    for part in (part.strip() for part in wanted.split(",")):
        if part in _UNSEEN:
            break  # CUDA sees nothing from the first entry that names no device
        if part.startswith("MIG-"):
            found.append(Slot(part, "MIG"))
            continue
        match = [slot for number, slot in enumerate(known) if part in (str(number), slot.uuid)]
        match = match or [slot for slot in known if part.startswith("GPU-") and slot.uuid.startswith(part)]
        if len(match) != 1:
            break
        found.append(match[0])
    return list(dict.fromkeys(found))


def _from_nvml(api: Any) -> list[Slot]:
    try:
        if api is None:
            import pynvml

            api = pynvml
        api.nvmlInit()
        handles = [api.nvmlDeviceGetHandleByIndex(number) for number in range(int(api.nvmlDeviceGetCount()))]
        driver = text_of(api.nvmlSystemGetDriverVersion())
        return [Slot(text_of(api.nvmlDeviceGetUUID(h)), text_of(api.nvmlDeviceGetName(h)), driver) for h in handles]
    except Exception:  # no module, no driver, no right to ask
        return []


def _from_smi() -> list[Slot]:
    command = ["nvidia-smi", "--query-gpu=uuid,name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.partition(",") for line in done.stdout.splitlines() if line.startswith("GPU-")]
    return [Slot(uuid.strip(), name.strip()) for uuid, _, name in rows] if done.returncode == 0 else []


def alike(found: Sequence[Slot]) -> list[Slot]:
    """The slots with the name of the first: figures of different GPUs are not compared."""
    return [slot for slot in found if slot.name == found[0].name]


def chosen(slots: Sequence[Slot], names: Sequence[str]) -> list[Slot]:
    """The slots with these numbers or beginnings of UUIDs; all where none is named. Raises UsageError."""
    if not names:
        return list(slots)
    found = []
    for name in names:
        match = [slot for number, slot in enumerate(slots) if name == str(number) or slot.uuid.startswith(name)]
        if len(match) != 1 or not name:
            known = ", ".join(f"{number} ({slot.uuid})" for number, slot in enumerate(slots)) or "none"
            raise UsageError(f"no GPU is named {name!r}; there are: {known}", "leave --gpus out to use all of them")
        found += match
    return list(dict.fromkeys(found))


def lock_path(slot: Slot) -> Path:
    """The lock file of a GPU: the same for every process of this machine, whoever runs it."""
    folder = Path(os.environ.get("DGW_LOCKS") or tempfile.gettempdir())
    return folder / f"dgw-gpu-{hashlib.sha256(slot.uuid.encode()).hexdigest()[:16]}.lock"


@contextlib.contextmanager
def hold(
    slots: Sequence[Slot],
    waiting: Callable[[str], None] = lambda text: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Held]:
    """The first of `slots` that no other process holds; waits for one, and says once through `waiting` that it does.

    Raises KeyboardInterrupt when `stopped` says so, before it waits or meanwhile, Missing when the lock cannot be made.
    """
    said = False
    while True:
        for slot in slots or (Slot(),):
            descriptor = _try(slot)
            if descriptor is not None:
                try:
                    yield Held(slot, slot.environment, (descriptor,))
                finally:
                    os.close(descriptor)
                return
        if stopped():
            raise KeyboardInterrupt
        if not said:
            said = True
            many = f"{len(slots)} GPUs are" if len(slots) > 1 else "the GPU is"
            waiting(f"waiting: {many} being measured on by another dgw process")
        time.sleep(POLL_S)


def _try(slot: Slot) -> int | None:
    """The descriptor of the slot's lock, or None while another process has it."""
    path = lock_path(slot)
    try:
        descriptor = _opened(path)
    except OSError as error:
        raise Missing(f"cannot open the lock of a GPU, {path}: {error.strerror}", "DGW_LOCKS=FOLDER") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _opened(path: Path) -> int:
    """Another user's file is opened for reading, which a lock needs no more than; only a new one is created."""
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, os.O_RDONLY)
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, 0o666)
        return descriptor
    return os.open(path, os.O_RDONLY)
