"use strict";
// What the trees of every kind share: the release, and the row of a node.
const page = (() => {
  const release = JSON.parse(document.getElementById("release-data").textContent);

  function element(tag, className, text) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const whole = new Intl.NumberFormat("en-US");
  const decimal = (value, digits) => value.toLocaleString("en-US",
    { minimumFractionDigits: digits, maximumFractionDigits: digits });

  // An interval without an upper end has none in the data.
  function intervalText(columns, place, digits) {
    const low = decimal(columns.low[place], digits), high = columns.high[place];
    return "estimate " + decimal(columns.estimate[place], digits) + ", " +
      (high === null ? "at least " + low : low + " to " + decimal(high, digits));
  }

  // A node: its label, a bar against the largest sibling, its count and what else is said of it.
  function nodeRow(label, count, largest, text) {
    const row = element("span", "node"), bar = element("span", "bar"), filled = element("span");
    label.classList.add("label");
    bar.setAttribute("aria-hidden", "true");
    filled.style.width = (largest > 0 && count > 0 ? 100 * count / largest : 0) + "%";
    bar.append(filled);
    row.append(label, bar, element("span", "count", whole.format(count)),
      element("span", "interval", text));
    return row;
  }

  return { release, element, whole, intervalText, nodeRow };
})();
