"use strict";
// Code shared by trees of every kind: the release, the row of a node, tables as CSV, folded parts.
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

  // Numbers by the one rule of all figures, to so many decimals at most: an estimate at
  // the second digit of its error, its interval outwards.
  function placeOf(low, high, digits) {
    if (high === null || high === low) return -digits;
    const error = Number(((high - low) / 4).toPrecision(2));
    return Math.max(-digits, Number(error.toExponential().split("e")[1]) - 1);
  }
  function figure(value, place, how = Math.round) {
    const scale = 10 ** Math.abs(place);
    return decimal((place > 0 ? how(value / scale) * scale : how(value * scale) / scale) + 0, Math.max(0, -place));
  }
  // An interval without an upper end has none in the data. One without a width is not exact: it
  // ends at 0 on both sides if noise made the count far too small.
  function interval(low, high, digits) {
    const place = placeOf(low, high, digits);
    if (high === low) {
      const end = figure(low, Number.isInteger(low) ? 0 : -Math.min(2, digits));
      return end + " to " + end;
    }
    const from = figure(low, place, (value) => Math.floor(value + 1e-6));
    return high === null ? from + " or more"
      : from + " to " + figure(high, place, (value) => Math.ceil(value - 1e-6));
  }

  function intervalText(columns, place, digits) {
    const low = columns.low[place], high = columns.high[place];
    return "estimate " + figure(columns.estimate[place], placeOf(low, high, digits)) + ", " +
      interval(low, high, digits) +
      ["", ", not split", ", inside a node that was not split"][columns.ended ? columns.ended[place] : 0];
  }

  // A node: its label, a bar relative to the largest sibling, its count and its remarks.
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

  // CSV from tables of lists of cells; null is an empty cell. A string that a spreadsheet would read
  // as a formula begins with an apostrophe.
  function csvText(rows) {
    const cell = (value) => {
      if (value === null || value === undefined) return "";
      if (typeof value === "number") return String(value);
      const text = /^[=+@\t\r]|^-(?![\d.]+$)/.test(value) ? "'" + value : value;
      return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    };
    return rows.map((row) => row.map(cell).join(",") + "\r\n").join("");
  }

  function save(name, rows) {
    const link = element("a");
    link.href = URL.createObjectURL(new Blob([csvText(rows)], { type: "text/csv;charset=utf-8" }));
    link.download = name.replace(/[^\w.-]+/g, "-") + ".csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // The rows of an HTML table; a title may name several columns, and a cell hold their exact values.
  function tableRows(table) {
    const head = [...table.tHead.rows[0].cells].filter((each) => each.tagName === "TH");
    const titles = head.flatMap((each) => each.dataset.columns ? each.dataset.columns.split(" ")
      : [each.textContent]);
    const body = [...table.tBodies[0].rows].map((row) => [...row.cells]
      .filter((each) => !each.classList.contains("drawing"))
      .flatMap((each) => each.dataset.values === undefined ? [each.innerText.trim().replace(/\s+/g, " ")]
        : each.dataset.values.split(" ")));
    return [titles, ...body];
  }

  // Functions that give the rows for a button, by the id of the element that it belongs to.
  const sources = new Map();

  function rowsBeside(button) {
    const box = button.closest(".listed") || button.closest("details");
    const nodes = box.querySelector(".nodes");
    return nodes ? sources.get(nodes.id)() : tableRows(box.querySelector("table"));
  }

  for (const button of document.querySelectorAll("button.csv")) {
    button.hidden = false;
    button.setAttribute("aria-label", "Download as CSV: " + button.dataset.csv);
    button.addEventListener("click", () => save(button.dataset.csv, rowsBeside(button)));
  }

  // Bars are sorted by size or in their own order, as the reader selects.
  for (const orders of document.querySelectorAll(".orders")) {
    orders.addEventListener("change", (event) => {
      const body = orders.closest(".listed").querySelector("tbody");
      const name = event.target.value === "largest" ? "count" : "place";
      const sign = name === "count" ? -1 : 1;
      const number = (row) => sign * Number(row.dataset[name]);
      body.append(...[...body.rows].sort((one, other) => number(one) - number(other)));
    });
  }

  // Open the target of a link, and everything before printing.
  function openTarget() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") {
      target.open = true;
      target.scrollIntoView();
    }
  }
  let opened = [];
  addEventListener("hashchange", openTarget);
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("main details:not([open])")].filter((each) => !each.closest(".nodes"));
    for (const each of opened) each.open = true;
  });
  addEventListener("afterprint", () => { for (const each of opened) each.open = false; });
  openTarget();

  return { release, element, whole, decimal, interval, intervalText, nodeRow, save, csvText, sources };
})();
