"""Where everything of a picture stands. To the left of the loop is what comes back to it, to the right what ends a run.

    people, host  ‹labels›  idle, calling, tools  ‹labels›  final call and ends  ‹labels›  finalized

The columns are given by what the boxes are, so this needs no general layout of graphs: only the order of the ends is
searched for (few crossings), and heights are settled so that arrows are short. Labels are laid out like boxes: an
arrow goes through its label. Knows boxes and arrows, nothing of policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise, permutations
from typing import Final

from policy_lang.graph.blocks import Block, Card, block, card
from policy_lang.graph.picture import Arrow, Picture

GAP: Final = 26.0
"""Between two labels, or two boxes, of one column."""

AISLE: Final = 54.0
"""Between two columns: room for arrows to bend."""

MARGIN: Final = 24.0
RETURN: Final = 20.0
"""How far to the left of the loop the way back from the tools runs."""

SPINE: Final = ("idle", "calling", "tools")
_LEFT: Final = ("suspended", "host")
_ENDS: Final = ("final", "completed", "incomplete", "failed")

Point = tuple[float, float]


@dataclass(slots=True)
class Spot:
    """A box or a label, by its centre."""

    width: float
    height: float
    x: float = 0.0
    y: float = 0.0

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width / 2

    @property
    def top(self) -> float:
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height / 2


@dataclass(slots=True)
class Label:
    """What an arrow says, and where."""

    arrow: Arrow
    block: Block
    spot: Spot

    @classmethod
    def of(cls, arrow: Arrow, main: str) -> Label:
        made = block(arrow.items, main)
        return cls(arrow, made, Spot(made.width, made.height))


@dataclass(slots=True)
class Layout:
    """``boxes`` by id, their places in ``spots``; ``labels`` in the order of the arrows."""

    boxes: dict[str, Card]
    spots: dict[str, Spot]
    labels: list[Label]
    width: float = 0.0
    height: float = 0.0
    back: float = 0.0
    """Where the way back from the tools runs."""

    edges: dict[str, float] = field(default_factory=dict)
    """Where the columns of labels end, seen from the loop: ``left``, ``right`` and ``far``."""

    order: list[str] = field(default_factory=list)

    def label(self, source: str, target: str) -> Label | None:
        ends = (source, target)
        return next((x for x in self.labels if (x.arrow.source, x.arrow.target) == ends), None)


def laid_out(picture: Picture, main: str) -> Layout:
    """Give everything its place. ``main`` is the file whose lines are told without its name."""
    cards = {box.id: card(box, main) for box in picture.boxes if box.id != "agents"}
    cards |= {box.id: card(box, main) for box in picture.tree}
    labels = [Label.of(arrow, main) for arrow in picture.arrows if arrow.source != "start"]
    made = Layout(cards, {name: Spot(c.width, c.height) for name, c in cards.items()}, labels)
    for names in (_LEFT, _ENDS):
        _as_wide(made, names)
    _rows(made)
    _columns(made)
    _tree(made, [box.id for box in picture.tree])
    _fit(made)
    return made


def _as_wide(made: Layout, names: Sequence[str]) -> None:
    """Boxes of one column are as wide as the widest of them."""
    spots = [made.spots[name] for name in names if name in made.spots]
    for spot in spots:
        spot.width = max(other.width for other in spots)


# ---- heights


def side(label: Label) -> str:
    """Where the label of an arrow goes: ``down`` between two boxes of the loop, or into a column."""
    source, target = label.arrow.source, label.arrow.target
    if (source, target) == ("tools", "idle"):
        return "back"
    if (source in SPINE and target in SPINE and target != source and target != "idle") or target == "agents":
        return "down"
    if source in SPINE:
        return "right" if target in _ENDS else "left"
    return "far"


def _rows(made: Layout) -> None:
    """The loop from top to bottom, and beside each box of it the labels of its arrows."""
    made.order = _order_of_ends(made)
    present = [name for name in SPINE if name in made.spots]
    columns = {name: {way: _stack(made, name, way) for way in ("left", "right")} for name in present}
    y = 0.0
    for place, name in enumerate(present):
        spot = made.spots[name]
        if place:
            before = present[place - 1]
            down = made.label(before, name)
            room = (made.spots[before].height + spot.height) / 2 + (down.spot.height if down else 0) + 44
            for way in ("left", "right"):
                above, here = columns[before][way], columns[name][way]
                if above and here:
                    room = max(room, (_tall(above) + _tall(here)) / 2 + GAP)
            y += room
        spot.y = y
        for way in ("left", "right"):
            _pile(columns[name][way], y)
    _between(made, present)
    wanted = {
        name: _middle([x.spot.y for x in made.labels if name in _ends(x) and side(x) != "far"])
        for name in (*_LEFT, *made.order)
    }
    for names in (sorted((n for n in _LEFT if n in made.spots), key=lambda name: wanted[name]), made.order):
        _settle([made.spots[name] for name in names], [wanted[name] for name in names], GAP)
    _far(made)


def _between(made: Layout, present: Sequence[str]) -> None:
    for above, below in pairwise(present):
        if down := made.label(above, below):
            down.spot.y = (made.spots[above].bottom + made.spots[below].top) / 2 - 3


def _far(made: Layout) -> None:
    """What follows the final call."""
    final = made.spots.get("final")
    if final is None:
        return
    labels = [x for x in made.labels if side(x) == "far"]
    if (finalized := made.spots.get("finalized")) is not None:
        finalized.y = final.y
    wanted = {id(x): (final.y + made.spots[x.arrow.target].y) / 2 for x in labels}
    labels.sort(key=lambda x: (wanted[id(x)], x.arrow.target))
    _settle([x.spot for x in labels], [wanted[id(x)] for x in labels], GAP)


def _stack(made: Layout, source: str, way: str) -> list[Label]:
    order = ["idle", *_LEFT, "calling", "tools"] if way == "left" else made.order
    found = [x for x in made.labels if x.arrow.source == source and side(x) == way]
    return sorted(found, key=lambda x: order.index(x.arrow.target))


def _tall(labels: Sequence[Label]) -> float:
    return sum(x.spot.height for x in labels) + GAP * (len(labels) - 1)


def _pile(labels: Sequence[Label], y: float) -> None:
    at = y - _tall(labels) / 2
    for label in labels:
        label.spot.y = at + label.spot.height / 2
        at += label.spot.height + GAP


def _settle(spots: Sequence[Spot], wanted: Sequence[float], gap: float) -> None:
    """Each as near as possible to where it is wanted, in this order and without touching (least squares)."""
    offsets, at = [], 0.0
    for place, spot in enumerate(spots):
        at += (spots[place - 1].height + spot.height) / 2 + gap if place else 0.0
        offsets.append(at)
    groups: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        mean, size = want - offset, 1
        while groups and groups[-1][0] > mean:
            other, many = groups.pop()
            mean, size = (mean * size + other * many) / (size + many), size + many
        groups.append((mean, size))
    settled = [mean for mean, size in groups for _ in range(size)]
    for spot, offset, mean in zip(spots, offsets, settled, strict=True):
        spot.y = mean + offset


def _middle(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def _ends(label: Label) -> tuple[str, str]:
    return label.arrow.source, label.arrow.target


def _order_of_ends(made: Layout) -> list[str]:
    """The order of the ends in which the fewest arrows cross; of equally good ones the first."""
    present = [name for name in _ENDS if name in made.spots]
    leads = [(SPINE.index(x.arrow.source), x.arrow.target) for x in made.labels if side(x) == "right"]
    falls = [x.arrow.target for x in made.labels if side(x) == "far" and x.arrow.target in present]

    def cost(given: Iterable[str]) -> tuple[int, int]:
        order = list(given)
        crossed = sum((a[0] - b[0]) * (order.index(a[1]) - order.index(b[1])) < 0 for a, b in combinations(leads, 2))
        return crossed, sum(abs(order.index("final") - order.index(name)) for name in falls)

    return list(min(permutations(present), key=cost))


# ---- columns


def _columns(made: Layout) -> None:
    """From left to right, each column as wide as its widest part."""
    spine = [made.spots[name] for name in SPINE if name in made.spots]
    down = [x.spot for x in made.labels if side(x) == "down"]
    ways = {way: [x.spot for x in made.labels if side(x) == way] for way in ("left", "right", "far")}
    half = max((spot.width / 2 for spot in (*spine, *down)), default=0.0)
    for spot in (*spine, *down):
        spot.x = 0.0
    made.back = -half - RETURN
    at = made.edges["left"] = _column(ways["left"], made.back - AISLE, -1)
    _column([made.spots[name] for name in _LEFT if name in made.spots], at - AISLE, -1)
    at = half
    ends = [made.spots[name] for name in made.order]
    last = [made.spots["finalized"]] if "finalized" in made.spots else []
    for name, column in (("right", ways["right"]), ("", ends), ("far", ways["far"]), ("", last)):
        at = made.edges[name] = _column(column, at + AISLE, 1)


def _column(spots: Sequence[Spot], edge: float, way: int) -> float:
    """Place a column beyond an edge, aligned to it; gives its other edge, or leaves out the aisle of an empty one."""
    if not spots:
        return edge - way * AISLE
    wide = max(spot.width for spot in spots)
    for spot in spots:
        spot.x = edge + way * spot.width / 2
    return edge + way * wide


# ---- agents


def _tree(made: Layout, names: Sequence[str]) -> None:
    """Below everything: what agents share under the tools, and to the right of it one agent below the other."""
    if not names:
        return
    shared, agents = made.spots[names[0]], [made.spots[name] for name in names[1:]]
    placed = [spot for name, spot in made.spots.items() if name not in names]
    lowest = max(spot.bottom for spot in (*placed, *(x.spot for x in made.labels if side(x) != "down")))
    label = next((x for x in made.labels if x.arrow.target == "agents"), None)
    tall = sum(spot.height for spot in agents) + GAP / 2 * (len(agents) - 1)
    top = lowest + GAP * 1.5
    if label:
        above = made.spots[label.arrow.source].bottom
        top = max(top, above + label.spot.height + 44 - max(0.0, (tall - shared.height) / 2))
    y = top + max(tall, shared.height) / 2
    shared.y, shared.x = y, 0.0
    at, edge = y - tall / 2, shared.right + AISLE
    for spot in agents:
        spot.y, spot.x = at + spot.height / 2, edge + spot.width / 2
        at += spot.height + GAP / 2
    if label:
        label.spot.y = (made.spots[label.arrow.source].bottom + shared.top) / 2 - 3


# ---- the whole


def _fit(made: Layout) -> None:
    """Move everything so that it begins at the margin."""
    spots = [*made.spots.values(), *(x.spot for x in made.labels if side(x) != "back")]
    if (start := made.spots.get("start")) is not None:
        start.x, start.y = 0.0, made.spots["idle"].top - 34
    left, top = min(s.left for s in spots), min(s.top for s in spots)
    if ("tools", "idle") in map(_ends, made.labels):
        left = min(left, made.back - 50)
    moved = [*made.spots.values(), *(x.spot for x in made.labels)]
    for spot in moved:
        spot.x += MARGIN - left
        spot.y += MARGIN - top
    made.back += MARGIN - left
    made.edges = {name: x + MARGIN - left for name, x in made.edges.items()}
    made.width = max(s.right for s in spots) + MARGIN
    made.height = max(s.bottom for s in spots) + MARGIN
