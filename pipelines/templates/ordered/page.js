// Trees over ordered domains: counts per level.
(() => {
  const { release, element, whole, intervalText, nodeRow, sources } = page;

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
    const { ended } = key.levels[level];
    // Inside a node that was not split there is nothing to see.
    if (level + 1 >= key.levels.length || (ended && ended[place])) {
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

  // All nodes on the page, for CSV.
  function rowsOf(tree) {
    const rows = tree.keys.flatMap((key) => key.levels.flatMap((columns, level) =>
      columns.count.map((count, place) => [...(key.name === null ? [] : [key.name]), level,
        (columns.labels || tree.labels[level])[place], count, columns.estimate[place],
        columns.low[place], columns.high[place],
        ...(columns.ended ? [["yes", "no", "inside"][columns.ended[place]]] : [])])));
    const keyed = tree.keys[0].name === null ? [] : ["key"];
    const split = tree.keys[0].levels[0].ended ? ["split"] : [];
    return [[...keyed, "level", "label", "count", "estimate", "ci_low", "ci_high", ...split], ...rows];
  }

  release.trees.forEach((tree, index) => {
    if (tree.kind !== "ordered") return;
    const box = document.getElementById("nodes-" + index);
    const most = tree.keys.reduce((top, key) => Math.max(top, key.levels[0].count[0]), 0);
    for (const key of tree.keys) box.append(nodeOf(tree, key, 0, 0, most));
    sources.set(box.id, () => rowsOf(tree));
    if (tree.keys.length === 1 && box.firstChild.tagName === "DETAILS") box.firstChild.open = true;
  });
})();
