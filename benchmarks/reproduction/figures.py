"""Figures of the papers, drawn by the charts of the report as SVG files that need no page.

Colors and strokes are the same as in the charts of the report; both themes are in a file. Figures
with the same measurements have the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from html import escape

import numpy as np
import numpy.typing as npt

from benchmarks.reproduction import honaker, rameshwar
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.uniform.plan import Estimator
from dptrees.pipelines.show.charts import (
    Axis,
    Chart,
    ChartShape,
    Layer,
    Tick,
    lifted,
    line,
    number_axis,
    scaled,
)

STYLE = """\
  :root { --page: #ffffff; --edge: #d0d7de; --ink: #1b1f24; --soft: #57606a; --grid: #e7ebef;
    --s0: #0a66a8; --s1: #c04a00; --s2: #00775a; --s3: #a8487f; --s4: #8f6500; --s6: #1b1f24; }
  @media (prefers-color-scheme: dark) { :root { --page: #0f141a; --edge: #3b434d; --ink: #e6edf3;
    --soft: #a3adb8; --grid: #262d36; --s0: #6cb6ff; --s1: #ff8f4a; --s2: #3fcf9f; --s3: #f09ac8;
    --s4: #f0c04a; --s6: #e6edf3; } }
  .page { fill: var(--page); stroke: var(--edge); }
  text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--soft); }
  .strong { font-size: 15px; font-weight: 600; fill: var(--ink); }
  .grid { stroke: var(--grid); }
  path { fill: none; stroke: currentColor; vector-effect: non-scaling-stroke; }
  .line { stroke-width: 2; stroke-linejoin: round; }
  .dots { stroke-width: 6; stroke-linecap: round; }
  .rule { stroke-width: 1.5; }
  .d1 { stroke-dasharray: 7 4; } .d2 { stroke-dasharray: 2 3; } .d3 { stroke-dasharray: 9 3 2 3; }
  .s0 { color: var(--s0); } .s1 { color: var(--s1); } .s2 { color: var(--s2); }
  .s3 { color: var(--s3); } .s4 { color: var(--s4); } .s6 { color: var(--s6); }
"""
LEFT, TOP, GAP, HEIGHT, ENTRY = 62, 72, 76, 300, 22
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def log_axis(low: float, high: float, label: str, places: Sequence[float] = ()) -> Axis:
    """An axis of powers of ten, whose values are logarithms.

    Args:
        low, high: the values at its ends, above 0.
        label: what it shows.
        places: the values of its ticks; none: all powers of ten.

    >>> [tick.text for tick in log_axis(10, 1000, "rows").ticks]
    ['10¹', '10²', '10³']
    """
    start, stop = math.log10(low), math.log10(high)
    texts = {math.log10(each): f"{each:g}" for each in places} or {
        float(power): "10" + str(power).translate(SUPERSCRIPTS)
        for power in range(math.ceil(start - 1e-9), math.floor(stop + 1e-9) + 1)
    }
    ticks = (
        Tick(at=round(100 * (at - start) / (stop - start), 3), text=text)
        for at, text in texts.items()
    )
    return Axis(low=start, high=stop, label=label, ticks=tuple(ticks))


def drawn_line(
    look: str, x: npt.ArrayLike, y: npt.ArrayLike, axes: tuple[Axis, Axis]
) -> ChartShape:
    """A line through values."""
    return ChartShape(look=f"line {look}", path=line(*_places(x, y, axes)))


def dots(look: str, x: npt.ArrayLike, y: npt.ArrayLike, axes: tuple[Axis, Axis]) -> ChartShape:
    """A dot at each value."""
    places = zip(*(each.tolist() for each in _places(x, y, axes)), strict=True)
    return ChartShape(look=f"dots {look}", path="".join(f"M{left} {top}h0" for left, top in places))


def _places(
    x: npt.ArrayLike, y: npt.ArrayLike, axes: tuple[Axis, Axis]
) -> tuple[Integers, Integers]:
    across, up = axes
    return (
        scaled(np.asarray(x, np.float64), across.low, across.high),
        lifted(np.asarray(y, np.float64), up.low, up.high),
    )


def picture(
    title: str, charts: Sequence[Chart], widths: Sequence[int], legend: Sequence[tuple[str, str]]
) -> str:
    """Return the SVG of charts side by side, with one legend below them.

    Args:
        title: of the picture.
        charts: from left to right.
        widths: of their drawings, in pixels.
        legend: classes of a line or of dots, and what they represent; three columns.
    """
    width = LEFT + sum(widths) + GAP * (len(charts) - 1) + 24
    rows = -(-len(legend) // 3)
    height = TOP + HEIGHT + 58 + ENTRY * rows
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(' '.join(chart.text for chart in charts))}</desc>",
        f"<style>\n{STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" class="page"/>',
        _label(16, 28, title, "start", "strong"),
    ]
    left = LEFT
    for chart, size in zip(charts, widths, strict=True):
        parts += _panel(chart, left, size)
        left += size + GAP
    for place, (look, text) in enumerate(legend):
        x = 20 + place % 3 * (width - 24) // 3
        y = TOP + HEIGHT + 64 + place // 3 * ENTRY
        mark = f"M{x + 14} {y}h0" if "dots" in look else f"M{x} {y}h28"
        parts += [f'<path class="{look}" d="{mark}"/>', _label(x + 36, y + 4, text, "start")]
    return "\n".join([*parts, "</svg>", ""])


def _panel(chart: Chart, left: int, width: int) -> list[str]:
    """A chart's labels, grid and shapes."""
    parts = [_label(left - LEFT + 16, TOP - 20, chart.y.label, "start")]
    for tick in chart.y.ticks:
        y = round(TOP + HEIGHT * (1 - tick.at / 100), 2)
        parts.append(f'<path class="grid" d="M{left} {y}h{width}"/>')
        parts.append(_label(left - 6, y + 4, tick.text, "end"))
    for tick in chart.x.ticks:
        x = round(left + width * tick.at / 100, 2)
        parts.append(f'<path class="grid" d="M{x} {TOP}v{HEIGHT}"/>')
        parts.append(_label(x, TOP + HEIGHT + 18, tick.text, "middle"))
    parts.append(_label(left + width / 2, TOP + HEIGHT + 38, chart.x.label, "middle"))
    shapes = [shape for layer in chart.layers for shape in layer.shapes]
    return [
        *parts,
        f'<svg x="{left}" y="{TOP}" width="{width}" height="{HEIGHT}" viewBox="0 0 1000 1000" '
        'preserveAspectRatio="none" overflow="visible">',
        *(f'<path class="{shape.look}" d="{shape.path}"/>' for shape in shapes),
        "</svg>",
    ]


def _label(x: float, y: float, text: str, anchor: str, look: str = "") -> str:
    style = f' class="{look}"' if look else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(text)}</text>'


# --- Rameshwar, Tandon, Sharma, Figure 1 ---

FIGURE_1 = "rameshwar-figure-1.svg"
LOOKS = ("s6 d2", "s1 d1", "s4 d3", "s0", "s3", "s2")
EPSILONS = tuple(Fraction(round(100 * 10 ** (step / 10)), 1000) for step in range(17))


def figure_1(points: Sequence[rameshwar.Point]) -> str:
    """The closed forms of the paper as lines, the planned tree's exact error, and measured dots."""
    axes = (
        log_axis(0.09, 4.4, "epsilon", (0.1, 0.2, 0.5, 1, 2, 4)),
        log_axis(1e3, 1e10, "N² E₂, rows² summed over the 256 points of the CDF"),
    )
    epsilons = [*EPSILONS, Fraction(4)]
    columns = zip(*(rameshwar.curves(each) for each in epsilons), strict=True)
    shapes, legend = [], []
    for look, curves in zip(LOOKS, columns, strict=True):
        label = curves[0].label
        heights = [curve.exact if curve.paper is None else curve.paper for curve in curves]
        shapes.append(drawn_line(look, np.log10(np.float64(epsilons)), np.log10(heights), axes))
        found = [(each.epsilon, each.mean.value) for each in points if each.curve.label == label]
        across, up = np.log10(np.asarray(found, np.float64)).T
        shapes.append(dots(look.split()[0], across, up, axes))
        is_ours = curves[0].paper is None
        legend.append((f"line {look}", "planned tree (ours, exact)" if is_ours else label))
    legend.append(("dots s6", f"measured, mean of {points[0].runs:,} runs"))
    title = "Errors of mechanisms for K = 256 by the closed forms of Rameshwar et al. (Figure 1)"
    text = "The squared error of six mechanisms falls with the square of epsilon. From above: "
    text += ", ".join(curve.label for curve in rameshwar.by_error(Fraction(1))) + "."
    layers = (Layer(shapes=tuple(shapes)),)
    chart = Chart(title=title, x=axes[0], y=axes[1], layers=layers, text=text)
    return picture(title, [chart], [720], legend)


# --- Honaker, Figure 4 ---

FIGURE_4 = "honaker-figure-4.svg"
# The estimators as the paper colors them: red, yellow, orange, blue.
ESTIMATOR_LOOKS = {
    Estimator.NONE: ("s1", "simple"),
    Estimator.BELOW: ("s4", "from below"),
    Estimator.ABOVE: ("s3", "from above"),
    Estimator.FULL: ("s0", "fully efficient"),
}


def figure_4(errors: honaker.NodeErrors) -> str:
    """Mean squared errors of the nodes: efficient by simple, their ratios, and all estimators."""
    nodes = np.arange(2, 2 * honaker.LEAVES)
    simple, full = (errors.by_node(each) for each in (Estimator.NONE, Estimator.FULL))
    levels = np.floor(np.log2(nodes)).astype(np.int64)
    exact = np.array([errors.exact(Estimator.FULL, int(level)) for level in levels])
    across = number_axis(8.5, 9.5, "simple count: squared error, rows²", 5)
    up = number_axis(0, 10, "efficient estimate: squared error, rows²", 5)
    left = [
        *(
            drawn_line("s2", (8.5, 9.5), (honaker.SIGMA_SQUARED * value,) * 2, (across, up))
            for value in sorted(set(exact.tolist()))
        ),
        dots("s0", simple, full, (across, up)),
    ]
    by_node = number_axis(0, 32, "node i of the tree", 8)
    ratio = number_axis(0, 1, "efficient over simple", 5)
    middle = [
        drawn_line("s6 d1", (0, 32), (1 / 4,) * 2, (by_node, ratio)),
        drawn_line("s6 d2", (0, 32), (2 / 3,) * 2, (by_node, ratio)),
        *(
            drawn_line("s2", (2**level, 2 ** (level + 1) - 1), (value,) * 2, (by_node, ratio))
            for level, value in zip(range(1, 5), exact[nodes & (nodes - 1) == 0], strict=True)
        ),
        dots("s0", nodes, full / simple, (by_node, ratio)),
    ]
    squares = number_axis(0, 10, "mean squared error, rows²", 5)
    right = [
        dots(look, nodes + shift, errors.by_node(estimator), (by_node, squares))
        # Apart by a part of a node: two and two tie at the leaves.
        for shift, (estimator, (look, _)) in zip(
            (-0.3, 0.3, -0.3, 0.3), ESTIMATOR_LOOKS.items(), strict=True
        )
    ]
    charts = [
        Chart(title=label, x=x, y=y, layers=(Layer(shapes=tuple(shapes)),), text=f"{label}.")
        for label, x, y, shapes in (
            ("Efficient estimates against simple counts", across, up, left),
            ("Their ratio at each node", by_node, ratio, middle),
            ("All estimators at each node", by_node, squares, right),
        )
    ]
    legend = [
        *((f"dots {look}", f"{name}, measured") for look, name in ESTIMATOR_LOOKS.values()),
        ("line s2", "fully efficient, exact"),
        ("line s6 d1", "printed: about one quarter"),
        ("line s6 d2", "printed: about a one-third reduction"),
    ]
    title = f"Errors of the nodes of {errors.trees:,} binary trees (Honaker, Figure 4)"
    return picture(title, charts, [240, 270, 330], legend)
