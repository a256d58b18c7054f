"""A sweep on the GPUs of a dask cluster: `--engine dask://host:8786`.

Workers start the same children as a sweep on one machine does, and hold no CUDA context themselves. Each finished case
is told to this process at once, as an event, so that it is durable here before its portion ends.
"""

from __future__ import annotations

import functools
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dgw.commands.console import note
from dgw.commands.options import Ask
from dgw.commands.session import Machine, Session, cache_folder, child_argv
from dgw.errors import DgwError, Missing
from dgw.model import Device, Environment, Noun, Record

if TYPE_CHECKING:
    from dgw.workbench.sweep.engine import Workforce

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
        from distributed import Client
    except ImportError as error:
        raise Missing("dask is not installed", "pip install 'deepgemm-workbench[dask]'") from error
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
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return int(sum(worker.get("resources", {}).get(RESOURCE, 0) for worker in workers))


def executor_of(client: Any) -> Any:
    """The executor that gives each lot a GPU, and never repeats one by itself."""
    return client.get_executor(resources={RESOURCE: 1}, retries=0, pure=False)


def cluster_machine(ask: Ask) -> Machine:
    """The GPU that the workers have, as one of them sees it. Raises Missing."""
    from dgw.commands.request import extra_paths

    extra = tuple(map(str, extra_paths(ask.kernels, ask.kernel)))
    client = connect(str(ask.engine))
    try:
        seen = msgspec.json.decode(executor_of(client).submit(look, extra).result(), type=Seen)
    finally:
        client.close()
    if seen.device is None:
        raise Missing(f"a worker has no GPU: {seen.problem}", "dgw doctor, on the host of the worker")
    return Machine("gpu", seen.device, environment=seen.environment)


def look(extra: tuple[str, ...]) -> bytes:
    """On a worker: what GPU there is, as JSON of Seen."""
    from dgw.workbench import slots
    from dgw.workbench.probing import probe

    first = (slots.visible() or [slots.Slot()])[0]
    try:
        environment, device = probe(child_argv(_ask(extra)), environment=first.environment)
    except DgwError as error:
        return msgspec.json.encode(Seen(problem=error.message))
    return msgspec.json.encode(Seen(device=device, environment=environment))


def cluster_force(
    address: str, session: Session, keep: Callable[[Record], None], doing: Callable[[str], None]
) -> Workforce:
    """The workers of a cluster, as many lots at once as they have GPUs."""
    from dgw.commands.request import extra_paths
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

    return Workforce(executor, functools.partial(do_lot, msgspec.json.encode(setup)), width, packed=True, finish=finish)


def do_lot(setup: bytes, lot: bytes) -> bytes:
    """On a worker: do a lot on a GPU of its own; the records as JSON."""
    from dgw.kernels.loader import load
    from dgw.workbench import runner, slots
    from dgw.workbench.sweep import lots

    told = msgspec.json.decode(setup, type=Setup)
    session = runner.Session(
        variants=load(tuple(map(Path, told.extra))),  # anew: a worker outlives changes of the user's files
        device=told.device,
        environment=told.environment,
        child_argv=child_argv(_ask(told.extra)),
        cache_dir=cache_folder(),
        deadline_s=told.deadline_s,
        gpu=lambda: slots.hold(slots.visible()),
    )
    found = lots.work(msgspec.json.decode(lot, type=lots.Lot), session, _teller(told.topic))
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
