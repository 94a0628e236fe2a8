// Code shared by hierarchies and sparse trees: their nodes by labels, expanded on demand and found
// by their paths. A kind of tree defines how its paths are written and how its nodes are described:
// see hierarchy/page.js.
const paths = (() => {
  const { release, element, whole, nodeRow, sources } = page;
  // 2 before 10.
  const natural = new Intl.Collator("en", { numeric: true });

  // The tree of one key. A level that is there whole has its labels once for all keys.
  class Nodes {
    constructor(tree, key, kind) {
      this.kind = kind;
      this.tree = tree;
      this.key = key;
      this.index = [];
    }

    columns(level) {
      return this.tree.whole[level] || this.key.levels[level];
    }

    // The places, on the level below, of the children that the page holds.
    children(level, place) {
      if (level + 1 >= this.key.levels.length) return [];
      if (!this.index[level]) {
        this.index[level] = new Map();
        this.columns(level + 1).parent.forEach((parent, child) => {
          const siblings = this.index[level].get(parent);
          if (siblings) siblings.push(child);
          else this.index[level].set(parent, [child]);
        });
      }
      return this.index[level].get(place) || [];
    }
  }

  const quoted = (text) => /^[\w.\/:][\w.\/:-]*$/.test(text) ? text
    : "'" + text.replaceAll("'", "'\\''") + "'";

  function command(nodes, path, kind) {
    const { tree, key } = nodes;
    const place = " --tree " + quoted(tree.name) + (path.startsWith("-") ? " --path=" : " --path ") + quoted(path);
    if (kind === "report") return element("code", "", "dptrees report RELEASE" + place);
    const which = key.name === null ? "" : " --key " + quoted(key.name);
    const below = kind === "children" ? " --children" : "";
    return element("code", "", "dptrees query RELEASE node" + place + which + below);
  }

  function sentence(...parts) {
    const made = element("p", "note");
    for (const part of parts) made.append(part);
    if (made.querySelector("code")) made.append(" RELEASE is the folder of this release.");
    return made;
  }

  // A node on the page: its row, and its children when it is first opened.
  class View {
    constructor(nodes, level, place, path, largest, order) {
      Object.assign(this, { nodes, level, place, path, order, below: null });
      const row = this.row(largest);
      const count = nodes.columns(level).children[place];
      if (count === 0) {
        row.classList.add("leaf");
        this.element = this.line = row;
        return;
      }
      this.count = count;
      this.element = element("details");
      this.line = element("summary");
      this.inside = element("div");
      this.line.append(row);
      this.element.append(this.line, this.inside);
      this.element.addEventListener("toggle", () => { if (this.element.open) this.unfold(); });
    }

    row(largest) {
      const { nodes, level, place, path } = this, { tree, key } = nodes;
      const label = element("span");
      const name = nodes.columns(level).labels[place];
      if (level === 0) label.append(key.name === null ? "all" : key.name);
      else {
        if (tree.codes) label.append(element("span", "soft", path.slice(0, path.length - name.length)));
        label.append(name || "(empty)");
        if (!tree.selfNamed) label.append(" ", element("small", "soft", tree.levels[level]));
      }
      const text = nodes.kind.text(nodes, level, place);
      return nodeRow(label, key.levels[level].count[place], largest, text);
    }

    unfold() {
      if (this.below) return this.below;
      const { nodes, level, place, path, order } = this;
      const places = nodes.children(level, place);
      const counts = places.length ? nodes.key.levels[level + 1].count : [];
      const largest = places.reduce((most, child) => Math.max(most, counts[child]), 0);
      this.below = places.map((child) =>
        new View(nodes, level + 1, child, nodes.kind.path(nodes, path, level + 1, child), largest, order));
      this.arrange();
      order.views.push(this);
      const missing = this.count - places.length;
      if (missing > 0) this.inside.append(sentence(
        nodes.kind.missing(missing, places.length), " ",
        command(nodes, path, "children"), " lists them; ",
        command(nodes, path, "report"), " puts them into this page, the largest first."));
      this.inside.append(...nodes.kind.remarks(nodes, level, place));
      return this.below;
    }

    // The children in the selected order, before the sentence on the missing ones.
    arrange() {
      const sorted = [...this.below];
      if (this.order.largest) {
        const counts = (view) => view.nodes.key.levels[view.level].count[view.place];
        sorted.sort((one, other) => counts(other) - counts(one));
      } else if (!this.nodes.tree.codes && !this.nodes.tree.bits) {
        const name = (view) => view.nodes.columns(view.level).labels[view.place];
        sorted.sort((one, other) => natural.compare(name(one), name(other)));
      }
      this.inside.prepend(...sorted.map((view) => view.element));
    }

    open() {
      if (!this.inside) return;
      this.unfold();
      this.element.open = true;
    }
  }

  // The nearest node on the way to a path that the page holds; the nodes above it are opened.
  function nearest(root, path) {
    let view = root;
    while (view.path !== path && view.inside) {
      const next = view.unfold().find((child) =>
        child.path === path || child.nodes.kind.isAbove(child, path));
      if (!next) break;
      view.open();
      view = next;
    }
    return view;
  }

  // Whether a node's children are all here, with their whole labels.
  function isWhole(view) {
    return !view.inside || (view.below.length === view.count && view.below.every((child) =>
      !/\u2026$|\ufffd/.test(view.nodes.columns(child.level).labels[child.place])));
  }

  function show(box, view) {
    box.querySelectorAll(".found").forEach((each) => each.classList.remove("found"));
    view.line.classList.add("found");
    const [outer, inner] = [box.getBoundingClientRect(), view.line.getBoundingClientRect()];
    box.scrollTop += inner.top - outer.top - box.clientHeight / 3;
  }

  // The answer to a search for a path; `view` is the nearest node.
  function answer(view, path) {
    const { nodes, level, place } = view;
    if (view.path !== path) return nodes.kind.absent(view, path);
    const count = whole.format(nodes.key.levels[level].count[place]);
    return sentence((path === "" ? "The root" : path) + ": " + count + "; " +
      nodes.kind.text(nodes, level, place) + ".");
  }

  function addControls(tree, index, roots, order) {
    const form = document.getElementById("controls-" + index);
    const said = document.getElementById("found-" + index);
    const box = document.getElementById("nodes-" + index);
    const choice = form.elements.namedItem("key");
    if (choice) tree.keys.forEach((key, place) => choice.append(new Option(key.name, place)));
    form.reset();
    form.addEventListener("change", (event) => {
      if (event.target.name !== "order") return;
      order.largest = event.target.value === "largest";
      for (const view of order.views) view.arrange();
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const path = form.elements.namedItem("path").value, root = roots[choice ? choice.value : 0];
      const { kind } = root.nodes, read = (text) => kind.read(tree, text);
      const exact = nearest(root, read(path));
      const view = exact.path === read(path) ? exact : nearest(root, read(path.trim()));
      show(box, view);
      said.replaceChildren(answer(view, view.path === read(path) ? view.path : read(path.trim())));
    });
  }

  // All nodes on the page, for CSV.
  function rowsOf(tree, kind) {
    const rows = tree.keys.flatMap((key) => {
      const nodes = new Nodes(tree, key, kind), paths = [[""]];
      return key.levels.flatMap((columns, level) => columns.count.map((count, place) => {
        if (level) {
          const above = paths[level - 1][nodes.columns(level).parent[place]];
          (paths[level] ||= [])[place] = kind.path(nodes, above, level, place);
        }
        return [...(key.name === null ? [] : [key.name]), tree.levels[level], paths[level][place], count,
          (columns.estimate || [])[place], (columns.low || [])[place], (columns.high || [])[place]];
      }));
    });
    const keyed = tree.keys[0].name === null ? [] : ["key"];
    return [[...keyed, "level", "path", "count", "estimate", "ci_low", "ci_high"], ...rows];
  }

  // Puts a tree onto the page.
  function addTree(tree, index, kind) {
    const box = document.getElementById("nodes-" + index);
    const order = { largest: !tree.inOrder, views: [] };
    const most = tree.keys.reduce((top, key) => Math.max(top, key.levels[0].count[0]), 0);
    const roots = tree.keys.map((key) => new View(new Nodes(tree, key, kind), 0, 0, "", most, order));
    sources.set(box.id, () => rowsOf(tree, kind));
    box.append(...roots.map((root) => root.element));
    // A single root is open, and what is only one below it.
    for (let view = roots.length === 1 ? roots[0] : null; view; view = view.below && view.below.length === 1 ? view.below[0] : null) view.open();
    addControls(tree, index, roots, order);
    const asked = tree.asked.map((path) => nearest(roots[0], kind.read(tree, path)));
    for (const view of asked) view.open();
    if (asked.length) show(box, asked[0]);
    for (const view of asked) view.line.classList.add("found");
  }

  function addTrees(name, kind) {
    release.trees.forEach((tree, index) => { if (tree.kind === name) addTree(tree, index, kind); });
  }

  return { addTrees, command, isWhole, sentence };
})();
