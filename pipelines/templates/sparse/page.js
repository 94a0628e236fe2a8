// Sparse trees: only nodes that passed a threshold are released.
(() => {
  const { element, whole, interval, intervalText } = page;
  const { command, isWhole, sentence } = paths;

  function text(nodes, level, place) {
    const { estimate, low, high } = nodes.columns(level);
    return estimate[place] === null
      ? "estimate \u2013, " + interval(low[place], high[place], 0) + ", known only from nodes below"
      : intervalText(nodes.columns(level), place, 0);
  }

  // A prefix of a code: its number of bits and, as a text, these bits.
  function prefixOf(tree, path) {
    const [code, length] = path.split("/"), bits = tree.bits.at(-1), digits = Math.ceil(bits / 4);
    const parts = tree.notation === "ipv4" ? code.split(".").map(Number) : [...code].map((digit) => parseInt(digit, 16));
    const [width, size] = tree.notation === "ipv4" ? [8, 4] : [4, digits];
    const isCode = tree.notation === "ipv4" ? /^\d{1,3}(\.\d{1,3}){3}$/.test(code) && parts.every((part) => part < 256)
      : /^[0-9a-f]+$/.test(code) && code.length === size;
    if (!isCode || !/^\d+$/.test(length)) return null;
    const text = parts.map((part) => part.toString(2).padStart(width, "0")).join("");
    const [spare, own] = [text.slice(0, size * width - bits), text.slice(size * width - bits)];
    if (spare.includes("1")) return null;
    return { bits: Number(length), text: own.slice(0, Number(length)), rest: own.slice(Number(length)) };
  }

  // The level of a path; -1 where the tree can have no such node.
  function levelOf(tree, path) {
    if (path === "") return 0;
    if (tree.bits) {
      const prefix = prefixOf(tree, path);
      return prefix && !prefix.rest.includes("1") ? tree.bits.indexOf(prefix.bits) : -1;
    }
    const plain = tree.escaped ? path.replace(/\\./gs, "") : path;
    const level = plain.split(tree.separator).length;
    return level < tree.levels.length ? level : -1;
  }

  // A whole code may be typed without its length; the root may be written out.
  function read(tree, typed) {
    const path = tree.bits && typed !== "" && !typed.includes("/") ? typed + "/" + tree.bits.at(-1) : typed;
    return path === tree.root ? "" : path;
  }

  function isAbove(view, wanted) {
    const { tree } = view.nodes;
    if (!tree.bits) return wanted.startsWith(view.path + tree.separator);
    const above = prefixOf(tree, view.path), prefix = prefixOf(tree, wanted);
    return prefix !== null && above.bits < prefix.bits && prefix.text.startsWith(above.text);
  }

  // The path of a child, as the commands read it.
  function path(nodes, above, level, place) {
    const { tree } = nodes, label = nodes.columns(level).labels[place];
    const own = tree.escaped ? label.replace(/[\\/]/g, "\\$&") : label;
    return level === 1 || tree.bits ? own : above + tree.separator + own;
  }

  function missing(number, shown) {
    return whole.format(number) + (shown ? " more" : "") + " that " + (number === 1 ? "was" : "were") +
      " published " + (number === 1 ? "is" : "are") + " not on this page.";
  }

  // The rows of a node that are in none of its published children.
  function remarks(nodes, level, place) {
    const rest = nodes.columns(level).rest[place];
    return rest > 0 ? [element("p", "note", "By the counts, " + whole.format(rest) +
      (rest === 1 ? " row is" : " rows are") + " in no published node right below.")] : [];
  }

  function absent(view, wanted) {
    const { nodes } = view, { tree } = nodes, level = levelOf(tree, wanted);
    if (level < 0) return sentence("The tree can have no node " + wanted + ": its levels are " +
      tree.levels.slice(1).join(", ") + (tree.bits ? ", and a path is written as " + tree.example : "") + ".");
    const above = view.level === 0 ? "the root" : view.path;
    const most = whole.format(tree.most[level]) + " rows, perhaps none";
    if (isWhole(view)) return sentence(wanted + " was not published: it has at most " + most +
      ". Shown is " + above + ".");
    return sentence(wanted + " is not on this page; shown is " + above + ". If it was published, ",
      command(nodes, wanted, "node"), " shows it, and ", command(nodes, wanted, "report"),
      " puts it into this page. If it was not, it has at most " + most + ".");
  }

  paths.addTrees("sparse", { read, isAbove, text, path, missing, remarks, absent });
})();
