"""The page of a release runs its own script and no other; a real browser shows that it does."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest

from dptrees.pipelines.report.report import content_security_policy
from tests.chromium import Chromium
from tests.pipelines.page.conftest import CLOSING
from tests.pipelines.report_page import parse_elements


def directives(page: str) -> dict[str, list[str]]:
    (content,) = [tag["content"] for _, tag in parse_elements(page).tags if tag.get("http-equiv")]
    assert content is not None
    parts = [directive.split(" ") for directive in content.split("; ")]
    return {name: values for name, *values in parts}


def hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_hashes_are_those_of_the_script_and_the_style_that_stand_in_the_page(
    page: Path,
) -> None:
    text = page.read_bytes().decode()
    assert "\r" not in text and "\0" not in text
    policy = directives(text)
    (script,) = re.findall("^<script>(.*?)</script>", text, re.DOTALL | re.MULTILINE)
    (style,) = re.findall("<style>(.*?)</style>", text, re.DOTALL)
    assert policy["script-src"] == [hashed(script)]
    assert policy["style-src"] == [hashed(style)]
    for name in ("default-src", "base-uri", "form-action", "trusted-types"):
        assert policy[name] == ["'none'"]
    assert "unsafe" not in str(policy)


def test_the_policy_comes_before_all_that_it_rules(page: Path) -> None:
    tags = [tag for tag, _ in parse_elements(page.read_text()).tags]
    assert tags[:4] == ["html", "head", "meta", "meta"]
    assert dict(parse_elements(page.read_text()).tags[2][1]) == {"charset": "utf-8"}


def test_labels_are_text(page: Path) -> None:
    elements = parse_elements(page.read_text())
    assert "img" not in {tag for tag, _ in elements.tags}
    assert not [name for _, tag in elements.tags for name in tag if name.startswith("on")]


def test_a_carriage_return_is_refused() -> None:
    for script, style in (("a\r\nb", ""), ("", "a\rb")):
        with pytest.raises(ValueError, match="carriage return"):
            content_security_policy(script, style)


# ---------------------------------------------------------------------------- in a browser


def test_nothing_is_refused(opened: Chromium) -> None:
    assert opened.complaints() == []


PLANTED = """
(() => {
  const script = document.createElement("script");
  try { script.textContent = "alert(3)"; document.body.append(script); } catch {}
  try {
    document.body.insertAdjacentHTML("beforeend", '<p id="planted" style="color: red"' +
      ' onclick="alert(4)"><img src="data:," onerror="alert(5)"></p>');
  } catch {}
  document.getElementById("planted")?.click();
})()
"""


def test_what_a_label_might_bring_does_not_run(opened: Chromium) -> None:
    """Planted: a script, a handler and a style attribute in the page; each is refused."""
    opened.value(PLANTED)
    opened.wait("refused.length >= 2")
    opened.wait("new Promise((done) => setTimeout(() => done(true), 300))")
    assert opened.value("alerts.length") == 0
    planted = "document.getElementById('planted')"
    assert opened.value(f"!{planted} || getComputedStyle({planted}).color !== 'rgb(255, 0, 0)'")


def test_choosers_of_nodes_work(opened: Chromium) -> None:
    """A path is found, siblings change their order, a node opens."""
    place = opened.value("page.release.trees.findIndex((tree) => tree.name === 'routes')")
    opened.value(
        f"(() => {{ const form = document.getElementById('controls-{place}');"
        "form.elements.path.value = 'north/north'; form.requestSubmit();"
        "form.elements.order.value = 'given';"
        "form.dispatchEvent(new Event('change', { bubbles: true })); })()"
    )
    opened.wait(f"document.getElementById('found-{place}').textContent.startsWith('north/north: ')")
    shown = f"[...document.querySelectorAll('#nodes-{place} .label')].map((each) => each.innerText)"
    assert CLOSING in "".join(opened.value(shown))
    bars = f"document.querySelectorAll('#nodes-{place} .bar > span')"
    assert opened.value(f"[...{bars}].some((each) => each.getBoundingClientRect().width > 20)")
    assert opened.complaints() == []
