// Trees over ordered domains: counts per level, and the figure of the CDF.
(() => {
  const { release, element, whole, intervalText, nodeRow } = page;

  // Counts per level: the children of a node are made when it is first opened.
  function rowOf(tree, key, level, place, largest) {
    const columns = key.levels[level];
    const name = (columns.labels || tree.labels[level])[place];
    const label = element("span", "",
      level === 0 && key.name !== null ? key.name + " \u00b7 " + name : name);
    return nodeRow(label, columns.count[place], largest,
      intervalText(columns, place, tree.digits[level]));
  }

  function childrenOf(tree, key, level, node) {
    const below = key.levels[level + 1];
    const first = node * tree.fanouts[level];
    const end = Math.min(first + tree.fanouts[level], tree.sizes[level + 1]);
    const places = [];
    if (!below.node) {
      for (let child = first; child < end; child++) places.push(child);
    } else {
      below.node.forEach((child, place) => { if (child >= first && child < end) places.push(place); });
    }
    return { places, missing: end - first - places.length };
  }

  function nodeOf(tree, key, level, place, largest) {
    const row = rowOf(tree, key, level, place, largest);
    if (level + 1 >= key.levels.length) {
      row.classList.add("leaf");
      return row;
    }
    const details = element("details"), summary = element("summary"), inside = element("div");
    summary.append(row);
    details.append(summary, inside);
    const node = key.levels[level].node ? key.levels[level].node[place] : place;
    details.addEventListener("toggle", () => {
      if (!details.open || inside.firstChild) return;
      const { places, missing } = childrenOf(tree, key, level, node);
      const counts = key.levels[level + 1].count;
      const most = places.reduce((top, child) => Math.max(top, counts[child]), 0);
      for (const child of places) inside.append(nodeOf(tree, key, level + 1, child, most));
      if (missing > 0) inside.append(element("p", "note", whole.format(missing) + " more are not on this page."));
    });
    return details;
  }

  release.trees.forEach((tree, index) => {
    if (tree.kind !== "ordered") return;
    const box = document.getElementById("nodes-" + index);
    const most = tree.keys.reduce((top, key) => Math.max(top, key.levels[0].count[0]), 0);
    for (const key of tree.keys) box.append(nodeOf(tree, key, 0, 0, most));
    if (tree.keys.length === 1 && box.firstChild.tagName === "DETAILS") box.firstChild.open = true;
  });

  // Figures: each key has its renderers side by side (band, line and, for categories, points).
  function addShares(source) {
    const { count, low, high } = source.data;
    const total = count[count.length - 1];
    const share = (column) => Float64Array.from(column, (value) => total > 0 ? value / total : NaN);
    source.data = { ...source.data, share: share(count), share_low: share(low), share_high: share(high) };
  }

  function setScale(renderer, shares) {
    const glyph = renderer.glyph;
    if (glyph.type === "VArea") {
      glyph.y1 = { field: shares ? "share_low" : "low" };
      glyph.y2 = { field: shares ? "share_high" : "high" };
    } else {
      glyph.y = { field: shares ? "share" : "count" };
    }
  }

  function keyChoice(tree, renderersOf, shown) {
    const box = element("fieldset", "keys"), list = element("div");
    box.append(element("legend", "", "Keys"), list);
    tree.keys.forEach((key, index) => {
      const label = element("label"), input = element("input"), swatch = element("span", "swatch");
      input.type = "checkbox";
      input.checked = index < shown;
      swatch.style.borderTopColor = tree.colors[index];
      swatch.style.borderTopStyle = tree.dashes[index];
      input.addEventListener("change", () => {
        for (const renderer of renderersOf(index)) renderer.visible = input.checked;
      });
      label.append(input, swatch, element("span", "", key.name));
      list.append(label);
    });
    return box;
  }

  function addControls(tree, index, figure) {
    const form = document.getElementById("controls-" + index);
    const stride = figure.renderers.length / tree.keys.length;
    const renderersOf = (key) => figure.renderers.slice(key * stride, (key + 1) * stride);
    tree.keys.forEach((_, key) => addShares(renderersOf(key)[0].data_source));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", (event) => {
      if (event.target.name !== "scale") return;
      const shares = event.target.value === "share";
      document.getElementById("share-note-" + index).hidden = !shares;
      for (const renderer of figure.renderers) setScale(renderer, shares);
      figure.y_range.change.emit();
    });
    form.reset();
    if (tree.keys[0].name !== null) form.append(keyChoice(tree, renderersOf, tree.shown));
  }

  Bokeh.set_log_level("warn");
  const item = { docid: "release", roots: release.targets, root_ids: Object.keys(release.targets) };
  Bokeh.embed.embed_items({ release: release.document }, [item]).then((views) => {
    const byTarget = (id) => [...Bokeh.documents].flatMap((made) => made.roots()).find((root) => root.id === id);
    for (const [id, target] of Object.entries(release.targets)) {
      const index = Number(target.split("-")[1]);
      addControls(release.trees[index], index, byTarget(id));
    }
  });
})();
