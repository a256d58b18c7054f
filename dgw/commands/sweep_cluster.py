"""A sweep on the GPUs of a dask cluster: `--engine dask://host:8786`.

Workers start the same children as a sweep on one machine does, and hold no CUDA context themselves. Each finished case
is told to this process at once, as an event, so that it is durable here before its portion ends.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import secrets
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dgw.commands.console import note
from dgw.commands.options import Ask
from dgw.commands.session import Machine, Session, cache_folder, child_argv
from dgw.errors import DgwError, Missing
from dgw.model import Device, Environment, Noun, Record

if TYPE_CHECKING:
    from dgw.workbench.prepare import Prepared
    from dgw.workbench.sweep.engine import Workforce
    from dgw.workbench.sweep.lots import Lot

RESOURCE = "GPU"
PATIENCE_S = 20.0
START = "dask worker SCHEDULER --nthreads 1 --resources GPU=1"


class Setup(Noun, frozen=True, kw_only=True):
    """What a worker has to know beside its lot. `topic` is where it tells of finished cases."""

    device: Device
    environment: Environment | None = None
    extra: tuple[str, ...] = ()
    deadline_s: float = 30.0
    topic: str = ""


class Seen(Noun, frozen=True, kw_only=True):
    """What GPU a worker has, or why none."""

    device: Device | None = None
    environment: Environment | None = None
    problem: str = ""


def connect(address: str) -> Any:
    """A dask client. Raises Missing where there is no dask, no scheduler, or no worker with a GPU."""
    try:
        import dask
        from distributed import Client
    except ImportError as error:
        raise Missing("dask is not installed", "pip install 'deepgemm-workbench[dask]'") from error
    dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"})  # machine code goes with the lots
    where = address.replace("dask://", "tcp://", 1)
    try:
        client = Client(where, timeout=PATIENCE_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        text = " ".join(str(error).split())[:200]
        hint = "dask scheduler, on the host of that address"
        raise Missing(f"no dask scheduler answers at {address}: {text}", hint) from error
    if not gpus_of(client):
        client.close()
        raise Missing(f"no worker of {address} has the resource {RESOURCE}", START)
    return client


def gpus_of(client: Any) -> int:
    """GPUs of all workers together, as they say themselves."""
    return int(sum(_workers(client).values()))


def _workers(client: Any) -> dict[str, float]:
    """How many GPUs each worker has that has one, by its address."""
    workers = client.scheduler_info(n_workers=-1)["workers"].items()
    found = {address: worker.get("resources", {}).get(RESOURCE, 0) for address, worker in workers}
    return {address: count for address, count in found.items() if count}


def executor_of(client: Any) -> Any:
    """The executor that gives each lot a GPU, and never repeats one by itself."""
    return client.get_executor(resources={RESOURCE: 1}, retries=0, pure=False)


def cluster_machine(ask: Ask) -> Machine:
    """The GPU that the workers have, as the first of them that answers sees it. Raises Missing."""
    from dgw.commands.request import extra_paths

    extra = tuple(map(str, extra_paths(ask.kernels, ask.kernel)))
    client = connect(str(ask.engine))
    try:
        seen = _looked(client, str(ask.engine), extra)
    finally:
        client.close()
    assert seen.device is not None
    return Machine("gpu", seen.device, environment=seen.environment)


def _looked(client: Any, address: str, extra: tuple[str, ...]) -> Seen:
    """The first that has a GPU. All workers are asked, so that each has imported already what its first lot needs."""
    from distributed import as_completed

    asked = [
        client.submit(
            look, extra, workers=[worker], allow_other_workers=True, resources={RESOURCE: 1}, retries=0, pure=False
        )
        for worker in _workers(client)
    ]  # fmt: skip
    problem = "its workers are gone"
    for future in as_completed(asked, loop=client.loop):
        try:
            seen = msgspec.json.decode(future.result(), type=Seen)
        except Exception as error:  # whatever a worker raises that has no dgw, or died
            problem = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            continue
        if seen.device is not None:
            return seen
        problem = seen.problem
    hint = "the same dgw on every host, and there: dgw doctor"
    raise Missing(f"no worker of {address} can say what GPU it has: {problem}", hint)


def look(extra: tuple[str, ...]) -> bytes:
    """On a worker: what GPU there is, as JSON of Seen; a GPU is asked once, as on one machine."""
    from dgw.workbench import slots
    from dgw.workbench.probing import known

    first = (slots.visible() or [slots.Slot()])[0]
    try:
        environment, device = known(child_argv(_ask(extra)), first, cache_folder())
    except DgwError as error:
        return msgspec.json.encode(Seen(problem=error.message))
    finally:
        threading.Thread(target=_make_ready, name="dgw-imports", daemon=True).start()
    return msgspec.json.encode(Seen(device=device, environment=environment))


def _make_ready() -> None:
    """On a worker: import what a lot needs, while whoever sends it still prepares it."""
    from dgw.kernels.loader import load

    importlib.import_module("dgw.workbench.sweep.parcel")
    with contextlib.suppress(DgwError):
        load()


def cluster_force(
    address: str,
    session: Session,
    prepared: Mapping[str, Prepared],
    keep: Callable[[Record], None],
    doing: Callable[[str], None],
) -> Workforce:
    """The workers of a cluster, as many lots at once as they have GPUs."""
    from dgw.commands.request import extra_paths
    from dgw.workbench.sweep import parcel
    from dgw.workbench.sweep.engine import Workforce

    client = connect(address)
    width = gpus_of(client)
    topic, lock = f"dgw-{session.id}-{secrets.token_hex(4)}", threading.Lock()

    def hear(event: tuple[float, Any]) -> None:
        with lock:
            keep(msgspec.json.decode(event[1], type=Record))

    client.subscribe_topic(topic, hear)
    setup = Setup(
        device=session.machine.device,
        environment=session.machine.environment,
        extra=tuple(map(str, extra_paths(session.ask.kernels, session.ask.kernel))),
        deadline_s=session.ask.deadline,
        topic=topic,
    )
    note(f"{width} GPUs of {address}")
    doing("measuring")
    executor = executor_of(client)

    def finish(interrupted: bool) -> None:
        executor.shutdown(wait=not interrupted)  # not waited for, portions are cancelled
        client.unsubscribe_topic(topic)
        client.close()

    def pack(lot: Lot) -> bytes:
        return parcel.pack(lot, prepared)

    return Workforce(executor, functools.partial(do_lot, msgspec.json.encode(setup)), width, pack, finish)


def do_lot(setup: bytes, data: bytes) -> bytes:
    """On a worker: do a lot (sweep/parcel.py) on a GPU of its own; the records as JSON."""
    from dgw.kernels.loader import load
    from dgw.workbench import runner, slots
    from dgw.workbench.sweep import lots, parcel

    told = msgspec.json.decode(setup, type=Setup)
    variants = load(tuple(map(Path, told.extra)))  # anew: a worker outlives changes of the user's files
    lot, prepared = parcel.unpack(data, variants)
    session = runner.Session(
        variants=variants,
        device=told.device,
        environment=told.environment,
        child_argv=child_argv(_ask(told.extra)),
        cache_dir=cache_folder(),
        deadline_s=told.deadline_s,
        gpu=lambda: slots.hold(slots.visible()),
        prepared=prepared,
    )
    found = lots.work(lot, session, _teller(told.topic))
    return msgspec.json.encode(found)


def _teller(topic: str) -> Callable[[Record], None]:
    """Tells of finished cases as events of the worker; silent where this is no dask worker."""
    try:
        from distributed import get_worker

        worker = get_worker()
    except (ImportError, ValueError):
        return lambda record: None
    return lambda record: worker.log_event(topic, msgspec.json.encode(record).decode())


def _ask(extra: tuple[str, ...]) -> Ask:
    """Folders and files of the user's own kernels, as a child is told them."""
    paths = [Path(path) for path in extra]
    folders, files = [p for p in paths if p.is_dir()], [p for p in paths if not p.is_dir()]
    return Ask(kernels=folders[0] if folders else None, kernel=files[0] if files else None)
