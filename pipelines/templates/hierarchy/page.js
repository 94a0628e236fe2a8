// Hierarchies: their leaves are public, and every node is released.
(() => {
  const { whole, intervalText } = page;
  const { command, isWhole, sentence } = paths;

  function text(nodes, level, place) {
    const { key, tree } = nodes;
    if (!nodes.exact) nodes.exact = key.levels.map((each) => new Set(each.exact));
    return nodes.exact[level].has(place) ? "exact"
      : intervalText(key.levels[level], place, tree.digits[level]);
  }

  // The path of a child, as the commands read it.
  function path(nodes, above, level, place) {
    const { tree } = nodes, label = nodes.columns(level).labels[place];
    const own = tree.escaped ? label.replace(/[\\/]/g, "\\$&") : label;
    return level === 1 ? own : above + tree.separators[level - 1] + own;
  }

  function missing(number, shown) {
    return whole.format(number) + (shown ? " more" : number === 1 ? " child" : " children") +
      (number === 1 ? " is" : " are") + " not on this page.";
  }

  function absent(view, wanted) {
    const above = view.level === 0 ? "the root" : view.path;
    if (isWhole(view)) return sentence("There is no " + wanted + ": " + above +
      (view.inside ? " has no such child." : " has no children."));
    return sentence((wanted || "The root") + " is not on this page; shown is " + above +
      ". If there is such a node, ", command(view.nodes, wanted, "node"), " shows it, and ",
      command(view.nodes, wanted, "report"), " puts it into this page.");
  }

  paths.addTrees("hierarchy", {
    read: (tree, typed) => typed,
    isAbove: (view, wanted) => wanted.startsWith(view.path + view.nodes.tree.separators[view.level]),
    text, path, missing, absent,
    remarks: () => [],
  });
})();
