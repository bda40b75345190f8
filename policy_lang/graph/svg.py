"""A picture as SVG: no script, no font and no file but itself, in light and in dark, told to those who do not see it.

Where things stand is ``layout``'s; here are lines, colours and words. Every item carries its place (``data-at``), so
that a page around it can show the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape
from typing import Final

from engine.core.policy import Origin
from policy_lang.graph.blocks import LEADING, NUMBER, PAD, SMALL, TEXT, TITLE, Block, Card
from policy_lang.graph.layout import Label, Layout, Point, Spot, laid_out, side
from policy_lang.graph.metrics import width
from policy_lang.graph.picture import Item, Picture

FONT: Final = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'Noto Sans', sans-serif"

_LIGHT: Final = {
    ".paper": "fill:#ffffff",
    ".ink": "fill:#1d2330",
    ".soft": "fill:#626d7f",
    ".card": "fill:#f5f7fa;stroke:#c6ceda",
    ".line": "stroke:#8592a6",
    ".tip": "fill:#8592a6",
    ".final": "stroke:#6a55c9",
    ".final-tip": "fill:#6a55c9",
    ".good": "stroke:#1d7d4c",
    ".good-tip": "fill:#1d7d4c",
    ".limit": "stroke:#ab6600",
    ".limit-tip": "fill:#ab6600",
    ".bad": "stroke:#bf323b",
    ".bad-tip": "fill:#bf323b",
    ".wait": "stroke:#2a6cb3",
    ".wait-tip": "fill:#2a6cb3",
}
_DARK: Final = {
    ".paper": "fill:#14171c",
    ".ink": "fill:#e7eaef",
    ".soft": "fill:#98a3b3",
    ".card": "fill:#1e232b;stroke:#414b59",
    ".line": "stroke:#76849a",
    ".tip": "fill:#76849a",
    ".final": "stroke:#a898f2",
    ".final-tip": "fill:#a898f2",
    ".good": "stroke:#5cc38c",
    ".good-tip": "fill:#5cc38c",
    ".limit": "stroke:#e0a247",
    ".limit-tip": "fill:#e0a247",
    ".bad": "stroke:#f0777d",
    ".bad-tip": "fill:#f0777d",
    ".wait": "stroke:#6fb0ef",
    ".wait-tip": "fill:#6fb0ef",
}
_STROKED: Final = ("final", "good", "limit", "bad", "wait")

_FORBIDDEN: Final = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Place = Callable[[Origin], str]
"""What stands in ``data-at`` of an item, and as ``#…`` in its link; "" for none."""


def svg(picture: Picture, main: str, *, place: Place | None = None) -> str:
    """The picture as one SVG document. ``main`` is the policy's file; with ``place``, items are links to lines."""
    return _Drawing(picture, main, place).text()


def style(scope: str = "") -> str:
    """The rules that colour a picture."""

    def rules(colours: dict[str, str]) -> str:
        return "".join(f"{scope}{name}{{{what}}}" for name, what in colours.items())

    fixed = f"text{{font-family:{FONT}}}.arrow{{fill:none;stroke-width:1.4}}.card{{stroke-width:1.2}}"
    fixed += ".unsure{stroke-dasharray:5 4}.near{fill:none;stroke:transparent;stroke-width:14}.area{fill:transparent}"
    return f"{fixed}{rules(_LIGHT)}@media (prefers-color-scheme:dark){{{rules(_DARK)}}}"


class _Drawing:
    def __init__(self, picture: Picture, main: str, place: Place | None) -> None:
        self.picture, self.main, self.place = picture, main, place
        self.made: Layout = laid_out(picture, main)
        self.kinds = {box.id: box.kind for box in (*picture.boxes, *picture.tree)}

    def text(self) -> str:
        made, notes = self.made, self._notes()
        tall = made.height + (len(notes) * LEADING + 6 if notes else 0)
        wide = max([made.width, *(width(note, SMALL) + 48 for note in notes)])
        # A page may make it smaller, as far as it can be read.
        narrow = f' style="min-width:{wide * 0.7:.0f}px"' if self.place else ""
        role = "group" if self.place else "img"
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {tall:.0f}" width="{wide:.0f}" '
            f'height="{tall:.0f}"{narrow} role="{role}" aria-labelledby="graph-title graph-desc">'
        )
        parts = [
            head,
            f'<title id="graph-title">{_safe(f"The policy {self.picture.name}")}</title>',
            f'<desc id="graph-desc">{_safe(" ".join(described(self.picture)))}</desc>',
            f"<style>{style()}</style>",
            f'<rect class="paper" width="{wide:.0f}" height="{tall:.0f}"/>',
            *self._arrows(),
            *(self._card(card, made.spots[name]) for name, card in made.boxes.items()),
            *(
                f'<text class="soft" x="24" y="{made.height + place * LEADING + 2:.1f}" font-size="{SMALL}">'
                f"{_safe(note)}</text>"
                for place, note in enumerate(notes)
            ),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _notes(self) -> list[str]:
        notes = []
        if any(item.origin for item in self.picture.items()):
            notes.append(f"Small numbers are lines of {self.main}. What has none is a default.")
        if self.picture.unsure:
            notes.append(f"(?) Perhaps no run comes to this: not every state was searched ({self.picture.cut}).")
        return notes

    # ---- arrows

    def _arrows(self) -> Iterator[str]:
        if (start := self.made.spots.get("start")) is not None:
            idle = self.made.spots["idle"]
            yield self._line([(start.x, start.bottom), (start.x, idle.top)], "", sure=True)
        for label in self.made.labels:
            yield f'<g class="flow"{self._at(label)}>{"".join(self._arrow(label))}</g>'
        yield from self._branches()

    def _at(self, label: Label) -> str:
        """The places of all its items: who points at the arrow itself means them all."""
        places = [self.place(item.origin) for item in label.arrow.items if item.origin] if self.place else []
        known = " ".join(place for place in dict.fromkeys(places) if place)
        return f' data-at="{known}"' if known else ""

    def _arrow(self, label: Label) -> Iterator[str]:
        source, target = label.arrow.source, label.arrow.target
        kind = self.kinds.get(target, "") if self.kinds.get(target) in _STROKED else ""
        a, b, sure = self.made.spots[source], self.made.spots[target], label.arrow.sure
        match side(label):
            case "down":
                yield self._line([(0 + a.x, a.bottom), (b.x, label.spot.top - 2)], kind, sure=sure, tip=False)
                yield self._line([(b.x, label.spot.bottom + 2), (b.x, b.top)], kind, sure=sure)
                yield self._label(label)
            case "back":
                yield from self._way_back(label, a, b)
            case "right":
                yield from self._through(label, a.right, _port(a, label), b.left, _port(b, label), kind)
            case "far" if target == "finalized":
                yield from self._through(label, a.right, _port(a, label), b.left, _port(b, label), kind)
            case "far":
                yield from self._hairpin(label, (a.right, _port(a, label, 9)), (b.right, b.y), kind, 1)
            case _:
                yield from self._leftwards(label, a, b, kind)

    def _leftwards(self, label: Label, a: Spot, b: Spot, kind: str) -> Iterator[str]:
        if label.arrow.target in ("idle", "calling", "tools"):
            leave = (a.left, _port(a, label) + (5 if a is b else 0))
            enter = (b.left, _port(b, label) - 5 if a is b else b.y + b.height / 5)
            yield from self._hairpin(label, leave, enter, kind, -1)
            return
        yield self._curve((a.left, _port(a, label)), (label.spot.right + 6, label.spot.y), kind, label, tip=False)
        yield self._onward(label, label.spot.left - 6, self.made.edges["left"] - 6, (b.right, _port(b, label)), kind)
        yield _tip((a.left, _port(a, label)), 1, kind)
        yield self._label(label)

    def _through(self, label: Label, x: float, y: float, to_x: float, to_y: float, kind: str) -> Iterator[str]:
        spot = label.spot
        yield self._curve((x, y), (spot.left - 6, spot.y), kind, label, tip=False)
        yield self._onward(label, spot.right + 6, self.made.edges[side(label)] + 6, (to_x, to_y), kind)
        yield self._label(label)

    def _onward(self, label: Label, x: float, edge: float, to: Point, kind: str) -> str:
        """From a label on: straight to the edge of its column, so that no other label is crossed, then bent."""
        straight = self._path(f"M{x:.1f} {label.spot.y:.1f}H{edge:.1f}", kind, sure=label.arrow.sure)
        return straight + self._curve((edge, label.spot.y), to, kind, label)

    def _hairpin(self, label: Label, leave: Point, enter: Point, kind: str, way: int) -> Iterator[str]:
        """Out to the label, and back from there."""
        spot, near = label.spot, 4.0
        edge = (spot.left if way > 0 else spot.right) - way * 6
        up = -1 if enter[1] < leave[1] else 1
        yield self._curve(leave, (edge, spot.y - up * near), kind, label, tip=False)
        yield self._curve((edge, spot.y + up * near), enter, kind, label)
        yield self._label(label)

    def _way_back(self, label: Label, a: Spot, b: Spot) -> Iterator[str]:
        x, r = self.made.back, 10.0
        y, to = a.top + min(16.0, a.height / 3), b.bottom - min(14.0, b.height / 3)
        path = (
            f"M{a.left:.1f} {y:.1f}H{x + r:.1f}Q{x:.1f} {y:.1f} {x:.1f} {y - r:.1f}"
            f"V{to + r:.1f}Q{x:.1f} {to:.1f} {x + r:.1f} {to:.1f}H{b.left - 6:.1f}"
        )
        yield f'<path class="arrow line" d="{path}"/>{_tip((b.left, to), 1, "")}'
        words = label.arrow.items[0].text
        end = 'text-anchor="end"'
        yield f'<text class="soft" x="{x - 6:.1f}" y="{y - 6:.1f}" font-size="{TEXT}" {end}>{_safe(words)}</text>'

    def _branches(self) -> Iterator[str]:
        """From what agents share to each of them."""
        if not self.picture.tree:
            return
        shared = self.made.spots[self.picture.tree[0].id]
        for box in self.picture.tree[1:]:
            spot = self.made.spots[box.id]
            yield self._curve_between((shared.right, shared.y), (spot.left, spot.y))

    def _curve_between(self, a: Point, b: Point) -> str:
        middle = (a[0] + b[0]) / 2
        d = f"M{a[0]:.1f} {a[1]:.1f}C{middle:.1f} {a[1]:.1f} {middle:.1f} {b[1]:.1f} {b[0]:.1f} {b[1]:.1f}"
        return f'<path class="arrow line" d="{d}"/>'

    def _curve(self, a: Point, b: Point, kind: str, label: Label, *, tip: bool = True) -> str:
        way = 1 if b[0] >= a[0] else -1
        end = (b[0] - 6 * way, b[1]) if tip else b
        reach = max(18.0, abs(end[0] - a[0]) / 2)
        d = (
            f"M{a[0]:.1f} {a[1]:.1f}C{a[0] + way * reach:.1f} {a[1]:.1f} "
            f"{end[0] - way * reach:.1f} {end[1]:.1f} {end[0]:.1f} {end[1]:.1f}"
        )
        return self._path(d, kind, sure=label.arrow.sure) + (_tip(b, way, kind) if tip else "")

    def _path(self, d: str, kind: str, *, sure: bool) -> str:
        """A line, and on a page a broad one that nobody sees, to point at."""
        near = f'<path class="near" d="{d}"/>' if self.place else ""
        return f'{near}<path class="arrow {kind or "line"}{"" if sure else " unsure"}" d="{d}"/>'

    def _line(self, points: list[Point], kind: str, *, sure: bool, tip: bool = True) -> str:
        (x, y), (to_x, to_y) = points
        end = to_y - 6 if tip else to_y
        drawn = self._path(f"M{x:.1f} {y:.1f}V{end:.1f}", kind, sure=sure)
        if not tip:
            return drawn
        return f'{drawn}<path class="{_filled(kind)}" d="M{to_x:.1f} {to_y:.1f}l-4.5 -8h9z"/>'

    # ---- words

    def _label(self, label: Label) -> str:
        spot = label.spot
        return self._block(label.block, spot.left, spot.top)

    def _block(self, block: Block, x: float, y: float) -> str:
        """Lines of items; those of one item belong together."""
        groups: list[tuple[Item, list[str]]] = []
        wide = f'x="{x:.1f}" width="{block.width:.1f}" height="{LEADING}"'
        for place, line in enumerate(block.lines):
            base = y + place * LEADING + 12
            if not groups or groups[-1][0] is not line.item:
                groups.append((line.item, []))
            end = f'text-anchor="end" font-size="{NUMBER}"'
            number = f'<tspan class="soft" x="{x + block.gutter - 7:.1f}" {end}>{_safe(line.number)}</tspan>'
            tone = "ink" if line.item.origin else "soft"
            words = f'<tspan class="{tone}" x="{x + block.gutter:.1f}">{_safe(line.text)}</tspan>'
            if self.place:
                groups[-1][1].append(f'<rect class="area" y="{base - 12:.1f}" {wide}/>')
            groups[-1][1].append(
                f'<text y="{base:.1f}" font-size="{TEXT}">{number if line.number else ""}{words}</text>'
            )
        return "".join(self._item(item, lines) for item, lines in groups)

    def _item(self, item: Item, lines: list[str]) -> str:
        inner = "".join(lines)
        told = f"<title>{_safe(item.text)} ({_safe(str(item.origin))})</title>" if item.origin else ""
        at = self.place(item.origin) if self.place and item.origin else ""
        if at:
            return f'<a href="#{at}" data-at="{at}" class="item">{told}{inner}</a>'
        return f'<g class="item">{told}{inner}</g>'

    def _card(self, card: Card, spot: Spot) -> str:
        kind = card.box.kind
        if kind == "start":
            return f'<circle class="tip" cx="{spot.x:.1f}" cy="{spot.y:.1f}" r="6"/>'
        round_ = 17 if kind in ("good", "limit", "bad") else 8
        colour = kind if kind in _STROKED else ""
        shape = (
            f'<rect class="card {colour}" x="{spot.left:.1f}" y="{spot.top:.1f}" width="{spot.width:.1f}" '
            f'height="{spot.height:.1f}" rx="{round_}"/>'
        )
        y = spot.top + PAD + TITLE - 4
        title = (
            f'<text class="ink" x="{spot.x:.1f}" y="{y:.1f}" font-size="{TITLE}" font-weight="600" '
            f'text-anchor="middle">{_safe(card.title)}</text>'
        )
        whole = f"<title>{_safe(card.box.title)}</title>" if card.title != card.box.title else ""
        note = ""
        if card.note:
            y += LEADING
            note = (
                f'<text class="soft" x="{spot.x:.1f}" y="{y:.1f}" font-size="{SMALL}" '
                f'text-anchor="middle">{_safe(card.note)}</text>'
            )
        body = self._block(card.body, spot.x - card.body.width / 2, y + 10) if card.body.lines else ""
        return f"<g>{whole}{shape}{title}{note}{body}</g>"


def described(picture: Picture) -> Iterator[str]:
    """The picture in sentences, for those who do not see it."""
    titles = {box.id: box.title for box in (*picture.boxes, *picture.tree)}
    for arrow in picture.arrows:
        if arrow.source == "start":
            continue
        way = "to and back from" if arrow.both else "to"
        why = "; ".join(item.text for item in arrow.items)
        yield f"From {titles[arrow.source]} {way} {titles[arrow.target]}: {why}."
    for box in (*picture.boxes, *picture.tree):
        if box.items:
            yield f"{box.title}: {'; '.join(item.text for item in box.items)}."


def _port(spot: Spot, label: Label, shift: float = 0.0) -> float:
    """Where an arrow touches a box: towards its label, but not in the corner."""
    reach = spot.height / 2 - min(12.0, spot.height / 3)
    away = label.spot.y - spot.y
    return spot.y + max(-reach, min(reach, away / 6)) + shift


def _filled(kind: str) -> str:
    return f"{kind}-tip" if kind else "tip"


def _tip(at: Point, way: int, kind: str) -> str:
    return f'<path class="{_filled(kind)}" d="M{at[0]:.1f} {at[1]:.1f}l{-8 * way} -4.5v9z"/>'


def _safe(text: str) -> str:
    """Text for XML: escaped, without the characters that it may not contain."""
    return escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text))
