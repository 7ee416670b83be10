"use strict";
// What goes wrong is told in the page itself, where a test sees it.
addEventListener("error", event => { document.documentElement.dataset.error = event.message; });
addEventListener("securitypolicyviolation", event => { document.documentElement.dataset.violation = event.blockedURI; });

(() => {
  const root = document.documentElement;
  const find = id => document.getElementById(id);
  const graph = JSON.parse(find("graph").textContent);

  const byElement = new Map();
  const byLink = new Map();
  const made = (side, letter) => (data, index) => {
    const element = find(letter + index);
    const link = graph.links[side][index];
    const mark = element.querySelector(".mark")?.textContent ?? "";
    const node = {
      ...data, side, element, link, edges: [], y: Number(element.dataset.y), section: element.closest("section"),
      text: `${data.kind} ${data.namespace}/${data.name} ${mark}`.toLowerCase(),
    };
    byElement.set(element, node);
    byLink.set(decoded(link), node);
    return node;
  };
  const decoded = link => {
    // A fragment that somebody typed may be no encoded text at all.
    try { return link.split("/").map(decodeURIComponent).join("\n"); } catch { return link; }
  };
  const objects = graph.objects.map(made(0, "o"));
  const workloads = graph.workloads.map(made(1, "w"));
  const nodes = [...objects, ...workloads];
  const edges = graph.edges.map((data, index) => {
    const edge = { ...data, object: objects[data.object], workload: workloads[data.workload], parts: [find("e" + index), find("k" + index)].filter(Boolean) };
    edge.object.edges.push(edge);
    edge.workload.edges.push(edge);
    return edge;
  });
  const other = (node, edge) => node.side === 0 ? edge.workload : edge.object;
  const height = graph.spacing.node;

  // --- Words

  const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const effect = node => {
    const restarted = node.edges.map(edge => edge.workload);
    const known = restarted.filter(workload => workload.pods !== null);
    const pods = known.reduce((sum, workload) => sum + workload.pods, 0);
    let words = counted(restarted.length, "workload");
    if (known.length > 0) words += `, ${known.length < restarted.length ? "at least " : ""}${counted(pods, "pod")}`;
    return { pods, words };
  };
  const kept = {
    "own": null,
    "baseline": "It carries no config hash of pod-reloader yet: a baseline stands for it, until its config changes for the first time.",
    "foreign": "Its pod template carries the hash of another controller.",
    "none": "Its pod template carries no config hash yet.",
  };

  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    Object.assign(element, attributes);
    element.append(...children.filter(child => child !== null));
    return element;
  };
  const named = node => make("bdi", {}, node.name);
  const linked = (node, ...details) => make("li", {},
    `${node.kind} `, make("a", { href: "#" + node.link }, named(node)),
    make("span", { className: "detail" }, details.flat().filter(Boolean).join(" · ")));
  // Of an edge: the keys that count, and whether pods wait for the object.
  const terms = edge => [
    edge.keys && `only ${edge.keys.length === 1 ? "key" : "keys"} ${edge.keys.join(", ")}`,
    edge.is_required ? "required" : "pods can start without it",
  ];
  const list = (heading, items) => items.length === 0 ? [] : [make("h3", {}, heading), make("ul", {}, ...items)];

  const ofObject = node => {
    const needing = node.edges.filter(edge => edge.is_required).length;
    const warning = node.exists === false
      ? `It does not exist.${needing > 0 ? ` Pods of ${counted(needing, "workload")} cannot start without it.` : ""}`
      : node.exists === null ? "Whether it exists cannot be seen." : null;
    return [
      make("p", { className: "effect", id: "effect" }, `A change restarts ${effect(node).words}.`),
      warning && make("p", { className: "warning" }, warning),
      ...list("It restarts", node.edges.map(edge => linked(edge.workload,
        edge.workload.pods !== null && counted(edge.workload.pods, "pod"), terms(edge)))),
    ];
  };
  const ofWorkload = node => [
    make("p", { className: "effect", id: "effect" },
      node.edges.length === 0 ? "Nothing restarts it." : `A change of ${node.edges.length === 1 ? "1 object" : `any of ${node.edges.length} objects`} restarts it.`),
    node.pods === null ? null : make("p", {}, `It is to have ${counted(node.pods, "pod")}.`),
    kept[node.hash] && make("p", { className: "warning" }, kept[node.hash]),
    ...list("Restarted by", node.edges.map(edge => linked(edge.object,
      edge.object.exists === false && "missing", terms(edge)))),
  ];
  const overview = () => {
    const widest = objects.map(node => ({ node, ...effect(node) }))
      .sort((a, b) => b.pods - a.pods || b.node.edges.length - a.node.edges.length).slice(0, 5);
    const marked = nodes.filter(node => node.element.classList.contains("marked"));
    const where = node => node.namespace && `in ${node.namespace}`;
    return [
      make("h2", {}, "Overview"),
      make("p", {}, "Choose an object to see which workloads restart when it changes, or a workload to see what restarts it."),
      ...list("Widest effect", widest.map(({ node, words }) => linked(node, words, where(node)))),
      ...list("Worth a look", marked.slice(0, 20).map(node =>
        linked(node, node.element.querySelector(".mark").textContent.replace(" · ⚠ ", ""), where(node)))),
      marked.length > 20 ? make("p", {}, `And ${marked.length - 20} more: filter by “missing”, “no hash”, “foreign”.`) : null,
    ];
  };

  // --- The choice

  let chosen = null;
  const choose = node => {
    for (const element of document.querySelectorAll(".chosen, .related, .lit")) {
      element.classList.remove("chosen", "related", "lit");
      element.removeAttribute("aria-current");
    }
    const left = chosen;
    chosen = node;
    root.classList.toggle("has-choice", node !== null);
    // What had the focus goes away with it.
    const hadFocus = find("panel").contains(document.activeElement);
    if (node === null) {
      find("panel").replaceChildren(...[stranger(), ...overview()].filter(Boolean));
      find("spoken").textContent = "";
      if (hadFocus) focus(left);
      return;
    }
    node.element.classList.add("chosen");
    node.element.setAttribute("aria-current", "true");
    for (const edge of node.edges) {
      for (const part of edge.parts) {
        part.classList.add("lit");
        // Drawn last, it lies above the others.
        part.parentNode.append(part);
      }
      other(node, edge).element.classList.add("related");
    }
    const clear = make("button", { type: "button" }, "Clear");
    clear.addEventListener("click", leave);
    find("panel").replaceChildren(...[
      make("p", { className: "above" }, make("span", {}, node.kind, node.namespace ? ` in ${node.namespace}` : ""), clear),
      make("h2", { tabIndex: -1 }, named(node)),
      ...(node.side === 0 ? ofObject(node) : ofWorkload(node)),
    ].filter(Boolean));
    find("panel").scrollTop = 0;
    find("spoken").textContent = `${node.kind} ${node.name}. ${find("effect").textContent}`;
    if (hadFocus) find("panel").querySelector("h2").focus({ preventScroll: true });
  };
  const stranger = () => {
    const asked = decoded(location.hash.slice(1)).replaceAll("\n", " ");
    return asked && make("p", { className: "warning" }, make("bdi", {}, asked), " is not in this graph.");
  };
  const leave = () => { location.hash = ""; };
  const follow = () => {
    const node = byLink.get(decoded(location.hash.slice(1))) ?? null;
    if (node?.element.classList.contains("filtered") || node?.section.hidden) {
      find("filter").value = find("namespace").value = "";
      filter();
    }
    choose(node);
    const box = node?.element.getBoundingClientRect();
    if (box && (box.top < 0 || box.bottom > innerHeight)) node.element.scrollIntoView({ block: "center", inline: "nearest" });
  };
  addEventListener("hashchange", follow);
  addEventListener("click", event => {
    const node = byElement.get(event.target.closest?.("a.node"));
    if (node && node === chosen) {
      event.preventDefault();
      leave();
    }
  });

  // --- The keyboard: one stop for each namespace, arrows from there

  const focus = node => {
    if (!node) return;
    for (const element of node.section.querySelectorAll("a.node")) element.setAttribute("tabindex", "-1");
    node.element.setAttribute("tabindex", "0");
    node.element.focus({ preventScroll: true });
    node.element.scrollIntoView({ block: "nearest", inline: "nearest" });
  };
  const visible = node => !node.element.classList.contains("filtered");
  const inColumn = node => nodes.filter(each => each.section === node.section && each.side === node.side && visible(each))
    .sort((a, b) => a.y - b.y);
  const steps = {
    ArrowUp: node => { const column = inColumn(node); return column[column.indexOf(node) - 1]; },
    ArrowDown: node => { const column = inColumn(node); return column[column.indexOf(node) + 1]; },
    Home: node => inColumn(node)[0],
    End: node => inColumn(node).at(-1),
    ArrowLeft: node => node.side === 1 && across(node),
    ArrowRight: node => node.side === 0 && across(node),
  };
  const across = node => node.edges.map(edge => other(node, edge)).filter(visible)
    .sort((a, b) => Math.abs(a.y - node.y) - Math.abs(b.y - node.y))[0];
  addEventListener("keydown", event => {
    if (event.key === "Escape" && chosen) return leave();
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const node = byElement.get(event.target);
    if (node && Object.hasOwn(steps, event.key)) {
      event.preventDefault();
      focus(steps[event.key](node));
    }
  });

  // --- The filter: what matches and what it is connected to; empty bands are closed

  const sections = new Map();
  for (const node of nodes) {
    if (!sections.has(node.section)) sections.set(node.section, []);
    sections.get(node.section).push(node);
  }
  const filter = () => {
    const words = find("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const namespace = find("namespace").value;
    const everything = words.length === 0 && namespace === "";
    const matches = node => (namespace === "" || "n" + node.namespace === namespace) && words.every(word => node.text.includes(word));
    const shown = new Set();
    let matching = 0;
    for (const node of nodes) {
      if (!matches(node)) continue;
      matching += 1;
      shown.add(node);
      if (words.length > 0) for (const edge of node.edges) shown.add(other(node, edge));
    }
    for (const node of nodes) node.element.classList.toggle("filtered", !shown.has(node));
    for (const [section, all] of sections) close(section, all.filter(node => shown.has(node)));
    for (const { object, workload, parts: [line, label] } of edges) {
      const drawn = shown.has(object) && shown.has(workload);
      line?.classList.toggle("filtered", !drawn);
      label?.classList.toggle("filtered", !drawn);
      if (!drawn) continue;
      const [from, to] = [object.top + height / 2, workload.top + height / 2];
      // As in the drawing itself.
      line?.setAttribute("d", `M304 ${from}C390 ${from} 390 ${to} 476 ${to}`);
      label?.setAttribute("y", (5 * from + 27 * to) / 32 + 4);
    }
    find("no-match").hidden = matching > 0 || nodes.length === 0;
    find("count").value = everything ? "" : `${matching} of ${nodes.length} match`;
  };
  const close = (section, shown) => {
    section.hidden = shown.length === 0;
    if (section.hidden) return;
    shown.sort((a, b) => a.y - b.y);
    const margin = 4, most = graph.spacing.gap + graph.spacing.between;
    let end = margin - most, shift = 0;
    for (const node of shown) {
      // As much as is empty above it; what it shifted before stays.
      shift += Math.max(0, node.y - end - most);
      end = Math.max(end, node.y + height);
      node.top = node.y - shift;
      node.element.setAttribute("transform", `translate(${node.side === 0 ? 4 : 476} ${node.top})`);
    }
    const drawing = section.querySelector("svg[viewBox]");
    drawing.setAttribute("viewBox", `0 0 780 ${end - shift + margin}`);
    focusable(shown);
  };
  const focusable = shown => {
    for (const [index, node] of shown.entries()) node.element.setAttribute("tabindex", index === 0 ? "0" : "-1");
  };

  for (const namespace of [...new Set(nodes.map(node => node.namespace))].sort()) {
    find("namespace").append(make("option", { value: "n" + namespace }, namespace || "none"));
  }
  let pending = 0;
  const later = () => { cancelAnimationFrame(pending); pending = requestAnimationFrame(filter); };
  find("filter").addEventListener("input", later);
  find("namespace").addEventListener("input", later);
  document.querySelector("form").addEventListener("submit", event => event.preventDefault());

  filter();
  follow();
  root.dataset.ready = "true";
})();
