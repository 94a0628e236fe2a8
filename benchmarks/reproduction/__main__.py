"""Writes the figures of four papers beside this project's figures, in Markdown.

python -m benchmarks.reproduction [--quick] [--write docs/reproduction.md]

The page's introduction, above its first mark, is written by hand. Its pictures are drawn into the
folder `pictures` next to it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from benchmarks.harness import show_page
from benchmarks.reproduction import figures, ghazi, holland, honaker, rameshwar

QUICK = "**A quick run: few repetitions, large standard errors.**\n"

ERRATA = """\
## Errata of the papers that these figures show

- Rameshwar et al., Lemma IV.3: `beta*` is 16.80, printed "roughly 16.79" (section 3).
- Rameshwar et al., Section VI-3: one level is the best only among factorisations of the prime
  K = 997; Definition IV.1 allows a padded tree, which is far better (section 2).
- Honaker, equation 13: the limit is 0.559 sigma and the variance falls by 3.2; printed are 0.202
  sigma, "sigma^2 49/2" and a factor of 25 (section 4).
- Honaker, equation 8: the index `2^{j+i+k}` of t must be `2^j i + k`.
- Ghazi et al., Theorem A.1 and Algorithm 4: the budgets of the rounds must fall with 1/r; the sum
  of the printed ones is infinite (section 6).
- Ghazi et al., Corollary 4.7: with the budgets that hold, tau_min grows by r^2 (section 6).
- Holland et al., Lemma 6: collisions of siblings do not cancel. With it Lemmas 9 and 10, Theorems 1
  and 3 and Corollary 1 need k n / w in place of n / w (section 7).
- Holland et al., Theorem 2: noise is as printed for a row added or removed; for a row replaced, as
  the paper defines neighbors, it must double.
- Holland et al., Lemma 11: below the first pruned level the fraction is at most 1 - B (section 7).
- Holland et al., Lemma 12: no constant holds for all d and n (section 7).
"""


def document(*, quick: bool) -> tuple[str, dict[str, str]]:
    """All sections, and the pictures of docs/pictures by their names."""
    part = 25 if quick else 1
    points = rameshwar.figure_1_points(10_000 // part)
    errors = honaker.NodeErrors.measure(honaker.TREES // part)
    text = "\n".join(
        (
            *((QUICK,) if quick else ()),
            rameshwar.figure_1_section(points, f"pictures/{figures.FIGURE_1}"),
            rameshwar.consistency_section(5_000 // part),
            rameshwar.shapes_section(10_000 // part),
            honaker.section(errors, f"pictures/{figures.FIGURE_4}"),
            rameshwar.planned_section(10_000 // part),
            ghazi.section(1_000 // part),
            holland.section(200 // part, 10_000 if quick else 100_000),
            ERRATA,
        )
    )
    drawn = {
        figures.FIGURE_1: figures.figure_1(points),
        figures.FIGURE_4: figures.figure_4(errors),
    }
    return text, drawn


def main(arguments: list[str] | None = None) -> int:
    """Print the sections, or write them between the marks of a page and draw its pictures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduction", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="few runs, for a first look")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the page to write")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    text, drawn = document(quick=options.quick)
    show_page(text, options.write)
    if options.write:
        folder = options.write.parent / "pictures"
        folder.mkdir(exist_ok=True)
        for name, picture in drawn.items():
            (folder / name).write_text(picture, encoding="utf-8")
    print(f"{time.perf_counter() - start:.0f} seconds", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
