// Boxes of columns: their figures, and what is said of the place under the mouse.
(() => {
  const { release, element } = page;
  const rowsText = (rows) => rows.toLocaleString("en-US", { maximumFractionDigits: 1 }) + " rows";
  const shareText = (rows, total) => (100 * rows / total).toFixed(2) + " % of all";

  // What a figure says of a point, a bar, a part or a rectangle.
  const lines = {
    curve: (data, info) => [data.texts[info.index], rowsText(data.rows[info.index]),
      shareText(data.rows[info.index], data.rows[data.rows.length - 1])],
    histogram: (data, info) => [data.texts[info.index], rowsText(data.rows[info.index])],
    map: (data, info) => [
      ...data.sides.map((side) => side.name + " " + side.texts[side.which[info.index]]),
      rowsText(data.rows[info.index]),
    ],
    grid: (data, info, source) => {
      const [across, up] = data.sides, place = info.image_index.flat_index;
      const column = place % across.texts.length, row = Math.floor(place / across.texts.length);
      const rows = source.data.image[0][place];
      return [across.name + " " + across.texts[column], up.name + " " + up.texts[row],
        rowsText(rows > 0 ? rows : 0)];
    },
  };

  function tellOf(figure, data) {
    for (const tool of figure.toolbar.tools) {
      if (tool.type !== "HoverTool") continue;
      tool.tooltips = (source, info) => {
        const box = element("div");
        for (const line of lines[data.draws](data, info, source)) box.append(element("div", "", line));
        return box;
      };
    }
  }

  // The figures of other trees are left to their own scripts, which draw all that is left.
  const own = {}, places = {};
  for (const [id, target] of Object.entries(release.targets)) {
    const [, tree, figure] = target.split("-").map(Number);
    if (release.trees[tree].kind !== "hypercube") continue;
    own[id] = target;
    places[id] = release.trees[tree].figures[figure || 0];
    delete release.targets[id];
  }
  const roots = release.document.roots;
  const drawn = { ...release.document, roots: roots.filter((root) => root.id in own) };
  release.document.roots = roots.filter((root) => !(root.id in own));

  Bokeh.set_log_level("warn");
  const item = { docid: "boxes", roots: own, root_ids: Object.keys(own) };
  Bokeh.embed.embed_items({ boxes: drawn }, [item]).then(() => {
    for (const root of [...Bokeh.documents].flatMap((made) => made.roots())) {
      if (root.id in places) tellOf(root, places[root.id]);
    }
  });
})();
