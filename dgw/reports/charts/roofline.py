"""The roofline: how much each case computes a second, over how much it computes for each byte it moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dgw.errors import UsageError
from dgw.model import Device, Record
from dgw.reports.charts.drawing import CHARACTER, WIDTH, Chart, Drawing, Line, Mark, Point, Shape, Symbol, Text, legend
from dgw.reports.charts.palette import series
from dgw.reports.charts.roofs import MMA, WGMMA, Roof, roofs
from dgw.reports.charts.scales import Scale, logarithmic, tick_text
from dgw.reports.tables import Block
from dgw.reports.units import show, significant

HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 400.0, 74.0, 14.0, 12.0, 48.0
LABELLED = 12
"""With more points than this, names are left to the table and to pointers."""
FAMILIES = 6
SYMBOLS: tuple[Symbol, ...] = ("circle", "square", "diamond", "triangle", "cross", "circle")
SECTOR = 32
BASELINES = "baselines"


@dataclass(frozen=True)
class Spot:
    """One case: FLOP a second, FLOP for each byte of DRAM traffic (counted, or the compulsory bytes), and of L2's."""

    title: str
    family: str
    rate: float
    intensity: float
    counted: bool
    l2: float | None


def spots(blocks: Sequence[Block]) -> list[Spot]:
    """Every case that has a rate."""
    found = []
    for block in blocks:
        many = len(blocks) > 1
        for column in block.columns:
            record = column.record
            rate = record.number("tflops")
            if rate and record.outcome == "ok" and block.problem.known:
                title = f"{column.title} {block.problem.shape}" if many else column.title
                found.append(_spot(title, record, rate))
    return found


def _spot(title: str, record: Record, rate: float) -> Spot:
    flops = record.case.problem.flops
    moved, sectors = record.number("dram_bytes"), record.number("l2_sectors")
    traffic = moved or record.case.problem.compulsory_bytes
    l2 = flops / (sectors * SECTOR) if sectors else None
    return Spot(title, record.case.variant.partition("/")[0], rate, flops / traffic, bool(moved), l2)


def device_of(blocks: Sequence[Block]) -> Device | None:
    """The one device of all timed cases, as the table knows it; None when there are several or it is unknown."""
    from dgw.toolchain.devices import device

    names = {c.record.environment.device for b in blocks for c in b.columns if c.record.number("tflops")}
    try:
        return device(names.pop()) if len(names) == 1 else None
    except UsageError:
        return None


def build(blocks: Sequence[Block]) -> Chart | None:
    """Every timed case as a point below the roofs of its device; None where no case was timed."""
    points = spots(blocks)
    if not points:
        return None
    device = device_of(blocks)
    ceilings = roofs([c.record for b in blocks for c in b.columns], device) if device is not None else []
    families = sorted(dict.fromkeys(point.family for point in points), key=lambda family: family == BASELINES)
    hollow = any(not point.counted for point in points)
    with_l2 = any(point.l2 for point in points) and len(points) <= LABELLED
    entries = [(series(i), family, SYMBOLS[min(i, FAMILIES - 1)]) for i, family in enumerate(families)]
    key, top = legend(entries, LEFT, TOP + 4, WIDTH - RIGHT) if len(families) > 1 else ([], TOP)
    x, y = _scales(points, ceilings, top)
    taken = _marks(points, x, y, with_l2)
    shapes = [*key, *_axes(x, y), *_roofs(ceilings, x, y)]
    slopes = [roof for roof in ceilings if roof.slope]
    shapes += _flat_names([roof for roof in ceilings if not roof.slope], slopes, x, y, taken)
    shapes += _points(points, families, x, y, with_l2)
    shapes += _names(points, x, y, taken) if len(points) <= LABELLED else []
    caption = _caption(ceilings, device, hollow, with_l2)
    table = [(p.title, show(p.rate, "rate"), f"{significant(p.intensity)}{'' if p.counted else ' (compulsory)'}",
              significant(p.l2) if p.l2 else "-") for p in points]  # fmt: skip
    table += [(roof.text, "", "", roof.source) for roof in ceilings]
    head = ("case or roof", "rate", "FLOP a byte of DRAM", "FLOP a byte of L2, or source")
    return Chart("roofline", "Roofline", caption, Drawing(WIDTH, HEIGHT, tuple(shapes)), head, tuple(table))


def _scales(points: Sequence[Spot], ceilings: Sequence[Roof], top: float) -> tuple[Scale, Scale]:
    flat = [roof.value for roof in ceilings if not roof.slope]
    slopes = [roof.value for roof in ceilings if roof.slope]
    ridge = [max(flat) / min(slopes)] if flat and slopes else []
    intensities = [*(p.intensity for p in points), *(p.l2 for p in points if p.l2), *ridge]
    x = logarithmic(intensities, LEFT, WIDTH - RIGHT, room=2.5)
    rates = [*(p.rate for p in points), *flat]
    return x, logarithmic(rates, HEIGHT - BOTTOM, top, room=1.8)


def _axes(x: Scale, y: Scale) -> list[Shape]:
    across = [(x.at(tick), tick_text(significant, tick)) for tick in x.ticks(8)]
    up = [(y.at(tick), tick_text(lambda value: show(value, "rate"), tick).removesuffix("LOP/s")) for tick in y.ticks(8)]
    shapes: list[Shape] = [Line(((at, y.start), (at, y.end)), "grid") for at, _ in across]
    shapes += [Line(((x.start, at), (x.end, at)), "grid") for at, _ in up]
    shapes += [Text(at, y.start + 16, text, "muted", "middle") for at, text in across]
    shapes += [Text(x.start - 6, at + 4, text, "muted", "end") for at, text in up]
    shapes.append(Text((x.start + x.end) / 2, y.start + 36, "FLOP a byte", "muted", "middle"))
    shapes.append(Text(16, (y.start + y.end) / 2, "FLOP a second", "muted", "middle", angle=90))
    return shapes


def _roofs(ceilings: Sequence[Roof], x: Scale, y: Scale) -> list[Shape]:
    """Slopes end where they meet the highest flat roof; flat ones begin where they meet the steepest slope."""
    flat = [roof.value for roof in ceilings if not roof.slope]
    slopes = [roof.value for roof in ceilings if roof.slope]
    shapes: list[Shape] = []
    for roof in ceilings:
        if roof.slope:
            left = max(x.low, y.low / roof.value)
            right = min(x.high, max(flat, default=y.high) / roof.value)
            ends = ((x.at(left), y.at(left * roof.value)), (x.at(right), y.at(right * roof.value)))
        else:
            left = max(x.low, roof.value / max(slopes, default=roof.value / x.low))
            ends = ((x.at(left), y.at(roof.value)), (x.end, y.at(roof.value)))
        if ends[0][0] < ends[1][0]:
            shapes.append(Line(ends, "muted", 1.6, not roof.firm, f"{roof.text} ({roof.source})"))
            shapes += [_along(ends, roof.text)] if roof.slope and roof.firm else []
    return shapes


def _along(ends: tuple[Point, Point], text: str) -> Text:
    """A name that follows a slope, above its lower end."""
    (x0, y0), (x1, y1) = ends
    angle = math.atan2(y0 - y1, x1 - x0)
    along, away = 14.0, 5.0
    at = x0 + along * math.cos(angle) - away * math.sin(angle), y0 - along * math.sin(angle) - away * math.cos(angle)
    return Text(*at, text, "muted", angle=math.degrees(angle))


@dataclass(frozen=True)
class _Box:
    """Room that text or a mark takes."""

    left: float
    right: float
    top: float
    bottom: float

    def meets(self, others: Sequence[_Box]) -> bool:
        """Whether it lies on any of the others."""
        return any(
            self.left < o.right and o.left < self.right and self.top < o.bottom and o.top < self.bottom for o in others
        )


def _slopes(slopes: Sequence[Roof], x: Scale, y: Scale) -> list[_Box]:
    """The room that the slopes take, in small steps."""
    spots = [(x.start + step, roof) for roof in slopes for step in range(0, int(x.end - x.start), 8)]
    found = [(at, y.at(roof.value * x.value(at))) for at, roof in spots]
    return [_Box(at - 4, at + 4, up - 6, up + 6) for at, up in found if y.end <= up <= y.start]


def _flat_names(flat: Sequence[Roof], slopes: Sequence[Roof], x: Scale, y: Scale, taken: list[_Box]) -> list[Shape]:
    """Names on their lines: at the right end above or below, else further left, where nothing else is."""
    shapes: list[Shape] = []
    taken += _slopes(slopes, x, y)
    steepest = max((roof.value for roof in slopes), default=0.0)
    for roof in flat:
        name = roof.text.removesuffix("LOP/s")  # as on the axis
        width, at = len(name) * CHARACTER, y.at(roof.value)
        left = x.at(max(x.low, roof.value / steepest)) if steepest else x.start  # where its line begins
        places = [
            (x.end - 2 - shift, at + down)
            for shift in range(0, 320, 20)
            for down in (-5, 14, -18, 27)
            if x.end - 2 - shift - width >= left
        ] or [(x.end - 2, at - 5)]
        boxes = [_Box(right - width, right, base - 11, base + 3) for right, base in places]
        place = next((i for i, box in enumerate(boxes) if not box.meets(taken)), 0)
        taken.append(boxes[place])
        shapes.append(Text(*places[place], name, "muted", "end"))
    return shapes


def _points(points: Sequence[Spot], families: Sequence[str], x: Scale, y: Scale, with_l2: bool) -> list[Shape]:
    shapes: list[Shape] = []
    size = 5.5 if len(points) <= 60 else 3.5
    for point in points:
        place = families.index(point.family)
        role, symbol = series(place), SYMBOLS[min(place, FAMILIES - 1)]
        px, py = x.at(point.intensity), y.at(point.rate)
        title = f"{point.title}: {show(point.rate, 'rate')}, {significant(point.intensity)} FLOP a byte"
        if with_l2 and point.l2:
            lx = x.at(point.l2)
            shapes.append(Line(((lx, py), (px, py)), role, 1))
            told = f"{point.title}: {significant(point.l2)} FLOP a byte of L2"
            shapes.append(Mark(lx, py, symbol, role, 3.5, True, told))
        shapes.append(Mark(px, py, symbol, role, size, not point.counted, title))
    return shapes


def _marks(points: Sequence[Spot], x: Scale, y: Scale, with_l2: bool) -> list[_Box]:
    """The room that the points take, with the line to their L2 mark."""
    boxes = []
    for point in points:
        px, py = x.at(point.intensity), y.at(point.rate)
        boxes.append(_Box(x.at(point.l2) if with_l2 and point.l2 else px - 6, px + 6, py - 6, py + 6))
    return boxes


def _names(points: Sequence[Spot], x: Scale, y: Scale, taken: list[_Box]) -> list[Shape]:
    """Names right or left of the points, moved down and aside where one would lie on something else."""
    shapes: list[Shape] = []
    for point in sorted(points, key=lambda p: y.at(p.rate)):
        width = len(point.title) * CHARACTER
        px, py = x.at(point.intensity), y.at(point.rate) + 4
        right = px + 10 + width < x.end
        places = [
            (left, py + down)
            for aside in (0, 40, 80, 120)
            for down in (0, -13, 13, 26, 39, 52, 65, 78)
            if x.start < (left := px + 10 + aside if right else px - 10 - width - aside) < x.end - width
        ] or [(px - 10 - width, py)]
        boxes = [_Box(left, left + width, base - 10, base + 3) for left, base in places]
        box = next((box for box in boxes if not box.meets(taken)), boxes[0])
        taken.append(box)
        shapes.append(
            Text(box.left if right else box.right, box.bottom - 3, point.title, "ink", "start" if right else "end")
        )
    return shapes


def _caption(ceilings: Sequence[Roof], device: Device | None, hollow: bool, with_l2: bool) -> str:
    text = "Each case: cold rate over the bytes that it moved to and from DRAM"
    text += "; hollow: over compulsory bytes, because the traffic was not counted." if hollow else "."
    if with_l2:
        text += " The small hollow mark on the same height counts the bytes of L2."
    if device is None:
        return text + " No roofs: the cases come from several devices, or from one that is not in the device table."
    sources = "; ".join(f"{roof.name}: {roof.source}" for roof in ceilings)
    text += f" Roofs of {device.name}: {sources}. Dashed: reached in a measurement, not a limit."
    if {WGMMA, MMA} <= {roof.name.partition(" ")[0] for roof in ceilings}:
        text += f" Kernels that multiply by {MMA} end at its roof, and only those that multiply by {WGMMA} go above it."
    return text
