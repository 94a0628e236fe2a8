"""Scripts of releases that are signed, edited and repaired, and of releases in earlier formats."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.golden.script import blocks, play, script
from tests.golden.shell import Shell


@script("proofs")
def proofs(run: Shell) -> None:
    """Signatures, replays, repairs and releases that were edited."""
    play(run, blocks("edits")["signed"])
    folder = "out/signed"
    edits: dict[str, Callable[[Path], object]] = {
        "missing": lambda at: next(at.rglob("n-0*.parquet")).unlink(),
        "damaged": lambda at: next(at.rglob("places-*.parquet")).write_bytes(b"PAR1"),
        "extra": lambda at: (at / "nodes" / "more.parquet").write_bytes(b""),
        "page": lambda at: (at / "report.html").write_text("<p>"),
        "record": lambda at: (at / "record.json").write_text("{}"),
        "nonce": lambda at: (at / "nonce.json").unlink(),
        "broken": lambda at: (at / "manifest.json").write_text("{"),
        "budget": lambda at: edited(at, lambda m: m["spec"].update(budget="2")),
        "epsilon": lambda at: edited(at, lambda m: m["guarantee"].update(epsilon="3")),
        "words": lambda at: edited(at, lambda m: m["guarantee"].update(words="none")),
        "tree": lambda at: edited(at, lambda m: m["trees"][0].update(mechanism="other")),
        "width": lambda at: edited(at, lambda m: m["spec"]["trees"][0].update(confidence=0.9)),
        "law": lambda at: edited(at, lambda m: m["spec"]["trees"][1].update(weight="2")),
    }
    for name, edit in edits.items():
        at = Path("out", name)
        shutil.copytree(folder, at)
        edit(at)
        run(f"verify {at}")
        if name in ("missing", "broken", "budget"):
            run(f"query {at} cdf 50 --tree n --key red")
    play(run, blocks("edits")["repaired"])


def edited(at: Path, change: Callable[[dict[str, object]], object]) -> None:
    """Change a manifest and leave its checksum."""
    manifest = json.loads((at / "manifest.json").read_text())
    change(manifest)
    (at / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


@script("old")
def earlier_formats(run: Shell) -> None:
    """Queries and pages of the releases that earlier versions made."""
    collection = Path(__file__).parents[1] / "releases" / "made"
    for each in sorted(collection.iterdir()):
        shutil.copytree(each / "release", each.name)
        for asked in json.loads((each / "answers.json").read_text()):
            run(f"query {each.name} {asked['asked']}")
        period = Path(each.name, "period-0001")
        at = period if period.exists() else Path(each.name)
        run(f"verify {at}")
        run(f"report {at}")
        if (at / "report.html").exists():
            run.page(f"{at}/report.html")
