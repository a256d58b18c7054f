"""Basic blocks and the order in which waiting blocks are run so that diverged lanes meet again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dgw.workbench.emulator.errors import at_line
from dgw.workbench.emulator.ptx.module import Function, Instruction
from dgw.workbench.emulator.ptx.operands import Label

BARRIERS = frozenset({"bar", "barrier"})
MADE_ANEW = frozenset({"acquire", "relaxed", "volatile"})  # loads of what others store meanwhile
ENDS = frozenset({"bra", "brx", "ret", "exit", "trap"})


@dataclass
class Block:
    """Instructions `first` <= index < `last`; `terminator` is the last one when it moves or stops lanes.

    `successors` are block numbers: for a conditional branch (target, next), for a jump table its targets and perhaps
    the next block. `depth` counts the loops around the block.
    """

    number: int
    first: int
    last: int
    terminator: Instruction | None = None
    successors: list[int] = field(default_factory=list)
    depth: int = 0


def is_cta_barrier(instruction: Instruction) -> bool:
    """Whether lanes may wait here for other warps (`bar.warp.sync` does not end a block)."""
    return instruction.opcode in BARRIERS and not {"warp", "arrive", "cluster"} & set(instruction.modifiers)


def is_mbarrier_wait(instruction: Instruction) -> bool:
    """Whether lanes may wait here for a phase of a barrier in shared memory."""
    return instruction.opcode == "mbarrier" and instruction.modifiers[:1] == ("try_wait",)


def is_cluster_wait(instruction: Instruction) -> bool:
    """Whether lanes may wait here for the other CTAs of their cluster."""
    return instruction.opcode == "barrier" and instruction.modifiers[:2] == ("cluster", "wait")


def looks_again(block: Block, instructions: Sequence[Instruction]) -> bool:
    """Whether a block goes back to itself and looks at what other threads may have done meanwhile."""
    return block.number in block.successors and any(map(_looks, instructions[block.first : block.last]))


def _looks(instruction: Instruction) -> bool:
    if instruction.opcode == "mbarrier":
        return instruction.modifiers[:1] == ("test_wait",)
    return instruction.opcode == "ld" and bool(MADE_ANEW & set(instruction.modifiers))


def may_wait(instruction: Instruction) -> bool:
    """Whether lanes may wait here for something that others do."""
    return is_cta_barrier(instruction) or is_mbarrier_wait(instruction) or is_cluster_wait(instruction)


def blocks_of(function: Function) -> list[Block]:
    """Split a function into basic blocks, numbered in program order; falling off the end returns."""
    instructions = function.instructions
    starts = {0, *function.labels.values()}
    for index, instruction in enumerate(instructions):
        if instruction.opcode in ENDS or may_wait(instruction):
            starts.add(index + 1)
    ordered = sorted(index for index in starts if index < len(instructions))
    ends = [*ordered[1:], len(instructions)][: len(ordered)]  # a body without instructions has no block
    number = {first: position for position, first in enumerate(ordered)}
    blocks = [Block(position, first, last) for position, (first, last) in enumerate(zip(ordered, ends, strict=True))]
    for block in blocks:
        last = instructions[block.last - 1] if block.last > block.first else None
        if last is not None and (last.opcode in ENDS or may_wait(last)):
            block.terminator = last
        block.successors = _successors(block, function, number)
    _find_depths(blocks)
    return blocks


def _successors(block: Block, function: Function, number: dict[int, int]) -> list[int]:
    following = [number[block.last]] if block.last in number else []
    end = block.terminator
    if end is None or may_wait(end):
        return following
    if end.opcode == "bra":
        return [_target(end, function, number), *(following if end.guard is not None else [])]
    if end.opcode == "brx":
        table = end.operands[1]
        names = function.branch_targets.get(table.name, ()) if isinstance(table, Label) else ()
        if not names:
            raise at_line(f"`{end.text}` has no table of targets", end.line)
        targets = [_label_block(name, end, function, number) for name in names]
        return targets + (following if end.guard is not None else [])
    return following if end.guard is not None else []


def _target(end: Instruction, function: Function, number: dict[int, int]) -> int:
    if len(end.operands) != 1 or not isinstance(end.operands[0], Label):
        raise at_line(f"`{end.text}` has no label", end.line)
    return _label_block(end.operands[0].name, end, function, number)


def _label_block(name: str, end: Instruction, function: Function, number: dict[int, int]) -> int:
    index = function.labels.get(name)
    if index is None:
        raise at_line(f"label {name} does not exist", end.line)
    return number.get(index, -1)  # -1: a label at the end of the function, which returns


def _components(nodes: list[int], edges: dict[int, list[int]]) -> list[list[int]]:
    """Strongly connected components of a subgraph in topological order (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in nodes:
        if root in index:
            continue
        work: list[tuple[int, int]] = [(root, 0)]
        while work:
            node, position = work.pop()
            if position == 0:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            pushed = False
            for place in range(position, len(edges[node])):
                successor = edges[node][place]
                if successor not in index:
                    work.extend([(node, place + 1), (successor, 0)])
                    pushed = True
                    break
                if successor in on_stack:
                    low[node] = min(low[node], index[successor])
            if pushed:
                continue
            if low[node] == index[node]:
                component: list[int] = []
                while not component or component[-1] != node:
                    component.append(stack.pop())
                    on_stack.discard(component[-1])
                found.append(component)
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[node])
    return found[::-1]


def schedule_order(blocks: list[Block]) -> list[int]:
    """Block numbers in recursive topological order: a loop's blocks are contiguous, its header first.

    Running the waiting block that comes first in this order lets lanes that leave a loop, a branch or a switch wait
    until the others have caught up, so that they reconverge at the common successor.
    """
    order: list[int] = []
    work: list[tuple[list[int], frozenset[tuple[int, int]]]] = [([b.number for b in blocks], frozenset())]
    while work:
        nodes, cut = work.pop()
        inside = set(nodes)
        edges = {n: [s for s in blocks[n].successors if s in inside and (n, s) not in cut] for n in sorted(nodes)}
        components = _components(sorted(nodes), edges)
        if len(components) == 1 and len(components[0]) > 1:
            header = _header(blocks, inside)
            back = {(n, header) for n in nodes}
            work.append((nodes, cut | back))
            continue
        if all(len(c) == 1 for c in components):
            order.extend(c[0] for c in components)
            continue
        work.extend((component, cut) for component in reversed(components))
    return order


def _header(blocks: list[Block], inside: set[int]) -> int:
    entered = {s for b in blocks if b.number not in inside for s in b.successors if s in inside}
    return min(entered or inside)


def _find_depths(blocks: list[Block]) -> None:
    work: list[tuple[list[int], frozenset[tuple[int, int]]]] = [([b.number for b in blocks], frozenset())]
    while work:
        nodes, cut = work.pop()
        inside = set(nodes)
        edges = {n: [s for s in blocks[n].successors if s in inside and (n, s) not in cut] for n in sorted(nodes)}
        for component in _components(sorted(nodes), edges):
            members = set(component)
            if len(component) == 1 and component[0] not in edges[component[0]]:
                continue
            for member in component:
                blocks[member].depth += 1
            header = _header(blocks, members)
            work.append((component, cut | {(n, header) for n in component}))
