"""How far ahead of the products a kernel asks for the tiles that it keeps in shared memory.

The clock is what a warp has multiplied so far: the order of its basic blocks and of the instructions in them is enough.
A copy is asked for by cp.async and needed at the wait for its group; a load into registers that a store puts into
shared memory is needed by the first instruction that takes more of it than another name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from dgw.workbench.emulator.observer import InstructionInfo

TENSOR, SIMT = ("mma", "wgmma"), ("fma", "dp4a", "dp2a")
_REGISTER = re.compile(r"%[A-Za-z_]\w*")
_GUARD = re.compile(r"^@!?%\w+\s+")
_NO_RESULT = ("st", "bra", "bar", "barrier", "ret", "exit", "red", "cp", "membar", "fence", "call")


@dataclass(frozen=True)
class Lead:
    """What a warp multiplies between two waits, and ahead of them.

    `tiles`: how often data was needed at another time; `ahead`: tiles of products between asking for data and needing
    it, the median over what was asked for after the first product, None where all was asked for before.
    """

    tiles: int
    ahead: float | None


class Step(NamedTuple):
    """One basic block that `warps` warps executed: instructions `first` <= index < `last`."""

    first: int
    last: int
    warps: int


@dataclass
class _State:
    """Of one walk: products of a warp so far, groups that are under way, registers on their way to shared memory."""

    clock: float = 0.0
    open: float | None = None  # when the copies since the last commit were asked for
    groups: list[float | None] = field(default_factory=list)
    loaded: dict[str, tuple[float, float | None]] = field(default_factory=dict)  # asked for, and first needed
    pairs: Counter[tuple[float, float]] = field(default_factory=Counter)

    def take(self, left: int) -> None:
        """A wait: all groups but the last `left` are needed now."""
        due = max(0, len(self.groups) - left)
        self.pairs.update((asked, self.clock) for asked in self.groups[:due] if asked is not None)
        self.groups = self.groups[due:]


def lead(instructions: Sequence[InstructionInfo], steps: Sequence[Step], warps: int) -> Lead | None:
    """What the blocks of one batch of CTAs, in the order of their execution, say; None where they do not.

    `warps` is how many warps the batch has. Nothing is said where a part of them commits or waits alone.
    """
    used = TENSOR if any(info.opcode in TENSOR for info in instructions) else SIMT
    events: dict[tuple[int, int], list[_Event]] = {}
    state = _State()
    for first, last, count in steps:
        found = events.get((first, last))
        if found is None:
            found = events[first, last] = [
                event for info in instructions[first:last] if (event := _event(info, used)) is not None
            ]
        if count != warps and any(event.kind in ("commit", "wait") for event in found):
            return None
        for event in found:
            _happen(state, event, count / warps)
    if not state.pairs or not state.clock:
        return None
    # what is needed after the last product is part of no k loop
    needed = sorted({when for _, when in state.pairs if when < state.clock})
    if not needed:
        return None
    a_tile = state.clock / len(needed)
    later = [(when - asked) / a_tile for asked, when in state.pairs.elements() if asked > 0]
    return Lead(tiles=len(needed), ahead=median(later) if later else None)


class _Event(NamedTuple):
    kind: str  # product, copy, commit, wait, load, name, use, store
    left: int = 0  # groups that a wait leaves under way
    results: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def _event(info: InstructionInfo, used: tuple[str, ...]) -> _Event | None:
    words = info.modifiers
    if info.opcode in used and not {"commit_group", "wait_group", "fence"} & set(words):
        return _Event("product")
    if info.kind == "cp.async":
        return _Event("copy")
    if info.opcode == "cp" and words[:1] == ("async",):
        if words[1:] == ("commit_group",):
            return _Event("commit")
        number = re.search(r"(\d+)\s*;?\s*$", info.text)
        return _Event("wait", int(number[1]) if words[1:] == ("wait_group",) and number else 0)
    names = _REGISTER.findall(_GUARD.sub("", info.text))
    if info.kind == "ld":
        address = _GUARD.sub("", info.text).partition("[")[0]
        return _Event("load", results=tuple(_REGISTER.findall(address))) if info.space == "global" else None
    if info.kind == "st":
        value = info.text.rpartition("]")[2]
        return _Event("store", sources=tuple(_REGISTER.findall(value))) if info.space == "shared" else None
    if info.opcode in _NO_RESULT or not names:
        return None
    return _Event("name" if info.opcode == "mov" else "use", results=tuple(names[:1]), sources=tuple(names[1:]))


def _happen(state: _State, event: _Event, share: float) -> None:
    if event.kind == "product":
        state.clock += share
    elif event.kind == "copy":
        state.open = state.clock if state.open is None else state.open
    elif event.kind == "commit":
        state.groups.append(state.open)
        state.open = None
    elif event.kind == "wait":
        state.take(event.left)
    elif event.kind == "load":
        state.loaded.update(dict.fromkeys(event.results, (state.clock, None)))
    elif event.kind == "store":
        for name in event.sources:
            if name in state.loaded:
                asked, needed = state.loaded.pop(name)
                state.pairs[asked, state.clock if needed is None else needed] += 1
    else:
        _pass_on(state, event)


def _pass_on(state: _State, event: _Event) -> None:
    """Registers of loads by another name, or something that was made of them."""
    found = [state.loaded[name] for name in event.sources if name in state.loaded]
    for name in event.results:
        state.loaded.pop(name, None)
    if not found:
        return
    asked, needed = max(found, key=lambda one: one[0])
    if event.kind == "use" and needed is None:
        needed = state.clock
    state.loaded.update(dict.fromkeys(event.results, (asked, needed)))
