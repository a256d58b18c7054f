"""A lot as it travels to another host: with the plans and machine code of its cases and of what they are compared with,
so that none is compiled there.

What is not in the parcel (foreign code beside the cases, dgw's own plumbing) is prepared where the lot is done.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec

from dgw.model import Noun, Record, Source, Variant
from dgw.toolchain.build import Build
from dgw.workbench.prepare import Prepared
from dgw.workbench.sweep.lots import Lot

FAST = 1  # of zlib: the first lot is waited for


class Program(Noun, frozen=True, kw_only=True):
    """What of a Build is executed."""

    source: Source
    arch: str
    cubin: bytes


class Ready(Noun, frozen=True, kw_only=True):
    """A prepared case; `programs` are places among those of the parcel, in the order of its sources."""

    record: Record
    programs: tuple[int, ...] = ()


class Parcel(Noun, frozen=True, kw_only=True):
    """A lot and what is prepared of it; every program once."""

    lot: Lot
    ready: tuple[Ready, ...] = ()
    programs: tuple[Program, ...] = ()


def pack(lot: Lot, prepared: Mapping[str, Prepared]) -> bytes:
    """The lot with what is `prepared` (by key) of its cases and of what they are compared with."""
    places: dict[tuple[Source, str], int] = {}
    programs: list[Program] = []
    ready: list[Ready] = []
    keys = dict.fromkeys(case.key for case in (*lot.cases, *lot.against))
    for one in [prepared[key] for key in keys if key in prepared]:
        own = []
        for source, built in one.builds.items():
            place = places.setdefault((source, built.sha256), len(programs))
            if place == len(programs):
                programs.append(Program(source=source, arch=built.arch, cubin=built.cubin))
            own.append(place)
        ready.append(Ready(record=one.record, programs=tuple(own)))
    parcel = Parcel(lot=lot, ready=tuple(ready), programs=tuple(programs))
    return zlib.compress(msgspec.msgpack.encode(parcel), FAST)


def unpack(data: bytes, variants: Mapping[str, Variant]) -> tuple[Lot, dict[str, Prepared]]:
    """What was packed. Cases of a variant that is not known here are left to whoever prepares them."""
    parcel = msgspec.msgpack.decode(zlib.decompress(data), type=Parcel)
    builds = [
        Build(one.source, one.arch, ptx="", cubin=one.cubin, log="", seconds=0.0, cached=True)
        for one in parcel.programs
    ]
    prepared = {
        one.record.case.key: Prepared(
            one.record, variants[one.record.case.variant], one.record.plan,
            {builds[place].source: builds[place] for place in one.programs},
        )
        for one in parcel.ready
        if one.record.case.variant in variants
    }  # fmt: skip
    return parcel.lot, prepared
