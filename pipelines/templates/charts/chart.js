// Charts: the label of the point under the mouse or the finger, or that arrow keys lead to; the
// selected keys; and the points as CSV.
(() => {
  const { release, element, whole, decimal, save } = page;
  const number = (value) => Number.isInteger(value) ? whole.format(value) : decimal(value, 1);
  const interval = (low, high) => low === null ? "" : (high === null ? ", " : ", interval ") +
    page.interval(low, high, Number.isInteger(low) && Number.isInteger(high) ? 0 : 1);

  // The place of a sorted list that is nearest to a value.
  function nearest(at, value) {
    let low = 0, high = at.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (at[middle] <= value) low = middle; else high = middle;
    }
    return value - at[low] <= at[high] - value ? low : high;
  }

  function sentence(data, series, place) {
    const share = series.total ? ", " + (100 * series.count[place] / series.total).toFixed(1) + " % of all" : "";
    return (series.name === undefined ? "" : series.name + ", ") +
      (data.lead ? data.lead + " " : "") + series.texts[place] + ": " +
      number(series.count[place]) + " " + (data.unit || "rows") +
      (series.low ? interval(series.low[place], series.high[place]) : "") + share;
  }

  // The height of a point, as a fraction of the chart.
  function height(data, series, place) {
    return series.count[place] / (data.shares ? series.total || 1 : data.top);
  }

  class Chart {
    constructor(drawn) {
      this.drawn = drawn;
      const tree = drawn.closest("[data-tree]").dataset.tree;
      this.data = release.trees[tree].figures[drawn.dataset.figure];
      this.read = document.getElementById(drawn.id + "-read");
      this.cursor = drawn.querySelector(".cursor");
      this.layers = [...drawn.querySelectorAll("g")];
      this.own = drawn.dataset.series === undefined ? null : Number(drawn.dataset.series);
      this.series = this.place = 0;
      drawn.addEventListener("pointermove", (event) => this.point(event));
      drawn.addEventListener("pointerdown", (event) => this.point(event));
      drawn.addEventListener("pointerleave", () => this.clear());
      drawn.addEventListener("keydown", (event) => this.step(event));
      drawn.addEventListener("blur", () => this.clear());
    }

    clear() {
      this.cursor.classList.remove("on");
      this.read.textContent = "";
    }

    // The visible series.
    get seen() {
      if (this.own !== null) return [this.own];
      const all = this.data.series.map((_, place) => place);
      return all.length === 1 ? all : all.filter((place) => !this.layers[place].classList.contains("off"));
    }

    point(event) {
      const box = this.drawn.getBoundingClientRect();
      this.say((event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height);
    }

    // The point of the nearest line below or above the place that is pointed at.
    say(across, up) {
      const { data } = this;
      if (data.cells) return this.tell(this.cellText(across, up), across, up);
      let best = null;
      for (const series of this.seen) {
        const own = data.series[series], place = nearest(own.at, 1000 * across);
        const distance = Math.abs(height(data, own, place) - up);
        if (best === null || distance < best.distance) best = { series, place, distance };
      }
      if (best) this.show(best.series, best.place);
    }

    show(series, place) {
      Object.assign(this, { series, place });
      const own = this.data.series[series];
      this.tell(sentence(this.data, own, place), own.at[place] / 1000, height(this.data, own, place));
    }

    tell(text, across, up) {
      this.read.textContent = text;
      // On the side where it hides the least of the chart.
      this.read.classList.toggle("aside", across > .5);
      this.read.classList.toggle("below", up > .5);
      this.cursor.classList.add("on");
      this.cursor.setAttribute("x1", 100 * across + "%");
      this.cursor.setAttribute("x2", 100 * across + "%");
    }

    // Left and right lead along a line, up and down to the next one.
    step(event) {
      const across = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const along = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      const { seen, data } = this;
      if (data.cells || !seen.length || (!across && !along)) return;
      event.preventDefault();
      const now = Math.max(0, seen.indexOf(this.series));
      const series = seen[(now + (along || 0) + seen.length) % seen.length];
      const own = data.series[series], last = own.at.length - 1;
      const from = along ? nearest(own.at, data.series[this.series].at[this.place]) : this.place;
      this.show(series, Math.min(last, Math.max(0, from + (across || 0))));
    }

    // Cells of two columns: the one that holds a place. Each side lists its runs with their ends;
    // cells have one of each, or are all of them, column by column.
    cellText(across, up) {
      const { cells } = this.data, [first, second] = cells.sides;
      const inside = (ends, value) => ends[0] <= value && value < ends[1];
      const [x, y] = [1000 * across, 1000 * up];
      for (let place = 0; place < cells.rows.length; place++) {
        const [one, other] = this.runs(place);
        if (!cells.rows[place] || !inside(first.ends[one], x) || !inside(second.ends[other], y)) continue;
        return first.name + " " + first.texts[one] + ", " + second.name + " " + second.texts[other] +
          ": " + number(cells.rows[place]) + " rows";
      }
      return "no rows";
    }

    runs(place) {
      const { sides } = this.data.cells, size = sides[1].texts.length;
      return sides[0].which ? sides.map((side) => side.which[place])
        : [Math.floor(place / size), place % size];
    }

    rows() {
      const { data } = this, names = ["count", "estimate", "low", "high"];
      if (data.cells) {
        const { sides, rows } = data.cells;
        return [[...sides.map((each) => each.name), "rows"], ...rows.map((count, place) =>
          [...this.runs(place).map((run, side) => sides[side].texts[run]), count])];
      }
      const held = names.filter((name) => data.series[0][name]), keyed = data.series[0].name !== undefined;
      const titles = held.map((name) => ({ low: "ci_low", high: "ci_high" })[name] || name);
      const rows = data.series.flatMap((each) => each.texts.map((text, place) =>
        [...(keyed ? [each.name] : []), text, ...held.map((name) => each[name][place])]));
      return [[...(keyed ? ["key"] : []), data.lead || "of", ...titles], ...rows];
    }
  }

  for (const drawn of document.querySelectorAll("[data-figure]")) {
    const chart = new Chart(drawn);
    if (chart.own !== null) continue;
    const title = drawn.querySelector("title").textContent;
    const button = element("button", "csv", "CSV");
    button.type = "button";
    button.setAttribute("aria-label", "Download as CSV: " + title);
    button.addEventListener("click", () => save(title, chart.rows()));
    drawn.closest("figure").append(button);
  }

  // The selected keys.
  for (const form of document.querySelectorAll("form.controls")) {
    const boxes = [...form.querySelectorAll(".keys [type=checkbox]")];
    if (!boxes.length) continue;
    const drawn = form.closest("[data-tree]").querySelector("[data-figure=shares]");
    const layers = drawn.querySelectorAll("g");
    form.reset();
    form.addEventListener("change", () => boxes.forEach((box, place) =>
      layers[place].classList.toggle("off", !box.checked)));
  }
})();
