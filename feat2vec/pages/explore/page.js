"use strict";
// The page asks for everything by a path, `points/0` or `map/0/pca`: of the server, or, as a file that stands alone, of
// its own script elements. Groups and columns are numbers; a point is the place of a value in its group (`id`) or on the
// map (`p`). What comes from data is put in as text, never as HTML.
(() => {
const $ = (id) => document.getElementById(id);
const facts = JSON.parse($("facts").textContent);
const own = new Map([...document.querySelectorAll("script[data-path]")].map((one) => [one.dataset.path, one]));
const CATEGORIES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];  // Okabe and Ito, for all eyes
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x"];  // told apart without colours too
const SHAPES = { circle: "M6 2a4 4 0 1 0 .01 0z", square: "M2 2h8v8h-8z", diamond: "M6 1l5 5-5 5-5-5z",
  "triangle-up": "M6 1l5 9h-10z", cross: "M4 1h4v3h3v4h-3v3h-4v-3h-3v-4h3z", x: "M3 1l3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3-3-3z" };
const SCALES = { light: ["#7ad151", "#22a884", "#2a788e", "#414487", "#440154"],  // viridis; more is further from the back
  dark: ["#4065a8", "#2a8a8e", "#2fb47c", "#9bd93c", "#fde725"] };
const KINDS = { pca: "PCA", umap: "UMAP", tsne: "t-SNE" };
const SHADES = 16;  // of a scale, each a trace: a colour for each point makes every move ten times as slow
const MANY = 20000;  // points that are drawn small, and all as circles
const SHOWN = 12;  // completions
const state = { group: 0, kind: facts.kind, colour: facts.colour, selected: null, layers: [], xy: null, options: [], active: -1 };
const groups = facts.groups.map((name, i) => ({ name, i }));

// --- what is asked for ---

const asked = new Map();
function ask(path) {
  if (!asked.has(path)) {
    const answer = facts.alone ? read(path) : fetched(path);
    answer.catch(() => asked.delete(path));
    asked.set(path, answer);
  }
  return asked.get(path);
}
async function fetched(path) {
  const answer = await fetch("/api/" + path);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}
async function read(path) {
  if (!own.has(path)) throw new Error("this file does not hold " + path);
  return JSON.parse(own.get(path).textContent);
}
function unpack(text, Kind) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Kind(bytes.buffer);
}
function fold(text) { return text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase(); }
async function points(i) {
  const group = groups[i];
  if (!group.keys) {
    const found = await ask("points/" + i);
    Object.assign(group, { total: found.total, zeros: found.without_vector, counts: unpack(found.counts, Float64Array), scale: found.scale,
      ids: unpack(found.ids, Int32Array), levels: unpack(found.levels, Int8Array), folded: found.keys.map(fold) });
    group.place = new Map();
    group.ids.forEach((id, p) => group.place.set(id, p));
    group.keys = found.keys;
  }
  return group;
}
function value(group, p) {
  return { group: group.i, id: group.ids[p], key: group.keys[p], count: group.counts[p], level: group.levels[p] };
}
function values(i, found) {
  return found.ids.map((id, n) => ({ group: i, id, key: found.keys[n], count: found.counts[n], level: found.levels[n] }));
}
async function neighbours(i, id) {
  if (!facts.alone) {
    const found = await ask(`neighbours/${i}/${id}`);
    return { self: values(i, found)[0], groups: found.groups.map((to) => ({ to: to.group,
      hits: values(to.group, to).map((hit, n) => ({ ...hit, score: to.scores[n] })) })) };
  }
  const group = await points(i), p = group.place.get(id);
  if (p === undefined) return null;  // beyond the limit: the file has its name alone
  const others = groups.map((one) => one.i).filter((j) => own.has(`near/${i}/${j}`));
  const lists = [i, ...others.filter((j) => j !== i)].map(async (to) => {
    const near = await ask(`near/${i}/${to}`), target = await points(to);
    near.known ??= new Map(values(to, near.more).map((hit) => [hit.id, hit]));
    near.unpacked ??= [unpack(near.ids, Int32Array), unpack(near.scores, Float32Array)];
    const hits = Array.from({ length: near.width }, (_, n) => {
      const other = near.unpacked[0][p * near.width + n], at = target.place.get(other);
      return { ...(at === undefined ? near.known.get(other) : value(target, at)), score: near.unpacked[1][p * near.width + n] };
    });
    return { to, hits };
  });
  return { self: value(group, p), groups: await Promise.all(lists) };
}

// --- the map ---

const theme = () => document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
const css = (of, name = "color") => getComputedStyle(document.querySelector(of)).getPropertyValue(name);
const quietColour = () => (theme() === "dark" ? "#7d8590" : "#8c959f");
const shown = (number) => number.toLocaleString("en-US");
function say(text, error = false) { $("status").textContent = text; $("status").classList.toggle("error", error); }
function short(text) { return text.length > 40 ? text.slice(0, 39) + "\u2026" : text; }
function asText(text) { return short(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\s+/g, " "); }

async function colours(group) {
  if (state.colour === "count") return { kind: "scale", ...group.scale, name: "count (log)" };
  if (state.colour === "level") {
    const names = Array.from({ length: facts.levels }, (_, n) => `level ${n + 1}`);
    return { kind: "classes", codes: group.levels.map((level) => level - 1), names, rest: false, name: "level" };
  }
  if (state.colour === "none") return { kind: "classes", codes: new Int8Array(group.keys.length), names: [], rest: false, name: "" };
  if (String(state.colour).startsWith("latent/")) {
    const n = state.colour.split("/")[1];
    return { ...(await ask(`latent/${group.i}/${n}`)), name: facts.latent[n] };
  }
  return { ...(await ask(`colour/${group.i}/${state.colour}`)), name: facts.columns[state.colour] };
}
function shade(part) {
  const stops = SCALES[theme()], at = part * (stops.length - 1), n = Math.min(Math.floor(at), stops.length - 2);
  const [from, to] = [stops[n], stops[n + 1]].map((color) => [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16)));
  return "#" + from.map((one, i) => Math.round(one + (to[i] - one) * (at - n)).toString(16).padStart(2, "0")).join("");
}
function layersOf(group, found) {
  const total = group.keys.length, every = Array.from({ length: total }, (_, p) => p);
  const without = { color: quietColour(), symbol: "circle", name: "none" };
  if (found.kind === "scale") {
    const numbers = typeof found.values === "string" ? unpack(found.values, Float32Array) : found.values;
    found.values = numbers;
    const [low, high] = found.ends[0] === found.ends[1] ? [found.ends[0] - 1, found.ends[0] + 1] : found.ends;
    const none = [], shades = Array.from({ length: SHADES }, () => []);
    every.forEach((p) => {
      if (Number.isNaN(numbers[p])) none.push(p);
      else shades[Math.max(0, Math.min(SHADES - 1, Math.floor((numbers[p] - low) / (high - low) * SHADES)))].push(p);
    });
    const layers = shades.map((points, n) => ({ points, color: shade((n + 0.5) / SHADES), symbol: "circle", name: "" }));
    return [{ ...without, points: none }, ...layers].filter((layer) => layer.points.length);
  }
  const codes = typeof found.codes === "string" ? unpack(found.codes, Int8Array) : found.codes;
  found.codes = codes;
  const lists = [[], ...found.names.map(() => [])];
  if (!found.names.length) return [{ points: every, color: CATEGORIES[0], symbol: "circle", name: "" }];
  every.forEach((p) => lists[codes[p] + 1].push(p));
  const named = found.names.map((name, n) => (found.rest && n === found.names.length - 1
    ? { color: quietColour(), symbol: "circle", name, points: lists[n + 1] }
    : { color: CATEGORIES[n % 6], symbol: total > MANY ? "circle" : SYMBOLS[n % 6], name, points: lists[n + 1] }));
  const layers = lists[0].length ? [{ ...without, points: lists[0] }] : [];
  return [...layers, ...named.reverse()].filter((layer) => layer.points.length);  // the most frequent is drawn last
}
function trace(layer, total) {
  const size = total > MANY ? 3 : total > 2000 ? 5 : 8;
  const marker = { color: layer.color, size, symbol: layer.symbol, opacity: total > MANY ? 0.6 : 0.8, line: { width: 0 } };
  const x = new Float32Array(layer.points.length), y = new Float32Array(layer.points.length);
  layer.points.forEach((p, n) => { x[n] = state.xy[2 * p]; y[n] = state.xy[2 * p + 1]; });
  return { type: "scattergl", mode: "markers", x, y, marker, hoverinfo: "none", showlegend: false };
}
let turn = 0;  // what was asked for last is drawn, whatever comes last
async function draw() {
  const mine = ++turn, group = await points(state.group);
  const kind = kindsOf(group.i).includes(state.kind) ? state.kind : "pca";
  fillKinds(kind);
  if (kind !== "pca" && !facts.alone) say(`${group.name}: ${KINDS[kind]} of ${shown(group.keys.length)} points; it may take minutes \u2026`);
  const [map, found] = await Promise.all([ask(`map/${group.i}/${kind}`), colours(group)]);
  if (mine !== turn) return;
  state.xy = unpack(map.xy, Float32Array);
  state.layers = layersOf(group, found);
  state.near = state.near?.group === group.i ? state.near : null;
  drawLegend(found);
  const axis = { visible: false, zeroline: false };
  const layout = { autosize: true, margin: { l: 8, r: 8, t: 8, b: 8 }, dragmode: "pan", hovermode: "closest", hoverdistance: 12,
    uirevision: `${group.i} ${kind}`, showlegend: false, paper_bgcolor: "transparent", plot_bgcolor: "transparent",
    xaxis: { ...axis, uirevision: `${group.i} ${kind}` }, yaxis: { ...axis, scaleanchor: "x", uirevision: `${group.i} ${kind}` },
    modebar: { bgcolor: "transparent", color: css("#note"), activecolor: css("body") }, ...marks() };
  const config = { scrollZoom: true, displaylogo: false, doubleClick: "reset",
    plotlyServerURL: "", modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] };  // no sharing
  await Plotly.react($("map"), state.layers.map((layer) => trace(layer, group.keys.length)), layout, config);
  bind();
  const whole = group.keys.length + group.zeros === group.total;
  const all = group.keys.length === group.total ? shown(group.total) : `${shown(group.keys.length)} of ${shown(group.total)}`;
  const chosen = whole ? "" : group.i === facts.rows ? ", drawn by chance" : ", the most frequent";
  const zeros = group.zeros ? ` ${shown(group.zeros)} have no vector and are on no map.` : "";
  $("note").textContent = `${group.name}: ${all} points${chosen}. ${map.note}.${zeros}`;
  if (!state.selected) say("");
  document.body.dataset.drawn = `${group.i} ${kind} ${state.colour}`;
}
let bound = false;
function bind() {
  if (bound) return;
  bound = true;
  new ResizeObserver(() => Plotly.Plots.resize($("map"))).observe($("map"));
  const at = (event) => state.layers[event.points[0].curveNumber].points[event.points[0].pointNumber];
  $("map").on("plotly_click", (event) => select(state.group, groups[state.group].ids[at(event)]));
  $("map").on("plotly_hover", (event) => tip(groups[state.group], at(event), event.event));
  $("map").on("plotly_unhover", () => { $("tip").hidden = true; });
}
function tip(group, p, event) {
  const box = $("stage").getBoundingClientRect(), one = value(group, p);
  $("tip").textContent = `${short(one.key)}${about(one, " \u00b7 ")}`;
  $("tip").hidden = false;
  const left = Math.min(event.clientX - box.left + 12, box.width - $("tip").offsetWidth - 4);
  Object.assign($("tip").style, { left: `${Math.max(left, 0)}px`, top: `${event.clientY - box.top + 14}px` });
}
function about(one, before) {
  const count = one.group === facts.rows ? "" : `${before}${shown(one.count)}\u00d7`;
  return facts.levels > 1 && one.group !== facts.rows ? `${count}${before}level ${one.level}` : count;
}
function marks() {  // shapes are moved without drawing the points again
  const group = groups[state.group], near = state.near?.group === group.i ? state.near : null;
  if (!near || !state.xy) return { shapes: [], annotations: [] };
  const ring = (p, radius, width) => ({ type: "circle", xsizemode: "pixel", ysizemode: "pixel", xanchor: state.xy[2 * p],
    yanchor: state.xy[2 * p + 1], x0: -radius, x1: radius, y0: -radius, y1: radius, line: { color: css("body"), width } });
  const annotations = near.self < 0 ? [] : [{ x: state.xy[2 * near.self], y: state.xy[2 * near.self + 1], text: asText(group.keys[near.self]),
    showarrow: true, arrowhead: 0, arrowcolor: css("body"), ax: 0, ay: -34, font: { color: css("body"), size: 14 },
    bgcolor: css("header", "background-color"), bordercolor: css("header", "border-bottom-color"), borderpad: 3 }];
  return { shapes: [...near.hits.map((p) => ring(p, 6, 1.5)), ...(near.self < 0 ? [] : [ring(near.self, 9, 3)])], annotations };
}
function drawLegend(found) {
  const parts = [];
  const add = (tag, text, parent = null) => {
    const one = document.createElement(tag);
    one.textContent = text;
    (parent ? parent.append(one) : parts.push(one));
    return one;
  };
  if (found.name) add("strong", found.name);
  if (found.kind === "scale") {
    add("span", found.labels[0]);
    const bar = add("span", "");
    bar.className = "bar";
    bar.style.background = `linear-gradient(to right, ${SCALES[theme()].join(", ")})`;
    add("span", found.labels[1]);
  }
  [...state.layers].reverse().forEach((layer) => {
    if (!layer.name) return;
    const button = add("button", ""), icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    icon.setAttribute("width", "12");
    icon.setAttribute("height", "12");
    icon.setAttribute("aria-hidden", "true");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", SHAPES[layer.symbol]);
    path.setAttribute("fill", layer.color);
    icon.append(path);
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.title = `${layer.name}: show or hide`;  // the whole name, of which the button has the beginning
    button.append(icon);
    add("span", `${short(layer.name)} (${shown(layer.points.length)})`, button);
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      Plotly.restyle($("map"), { visible: on }, [state.layers.indexOf(layer)]);
    });
  });
  $("legend").replaceChildren(...parts);
}
function range(axis) { return $("map")._fullLayout[axis].range; }
function move(dx, dy, zoom) {
  const next = (axis, shift) => {
    const [low, high] = range(axis), middle = (low + high) / 2 + shift * (high - low), half = ((high - low) / 2) * zoom;
    return [middle - half, middle + half];
  };
  return Plotly.relayout($("map"), { "xaxis.range": next("xaxis", dx), "yaxis.range": next("yaxis", dy) });
}
function bring(p) {  // into sight
  const inside = (axis, at) => at >= Math.min(...range(axis)) && at <= Math.max(...range(axis));
  const [x, y] = [state.xy[2 * p], state.xy[2 * p + 1]];
  if (inside("xaxis", x) && inside("yaxis", y)) return {};
  const around = (axis, at) => { const half = (range(axis)[1] - range(axis)[0]) / 2; return [at - half, at + half]; };
  return { "xaxis.range": around("xaxis", x), "yaxis.range": around("yaxis", y) };
}

// --- a value and its neighbours ---

async function select(i, id) {
  state.selected = { group: i, id };
  say("\u2026");
  try {
    if (i !== state.group) {
      state.group = i;
      $("group").value = String(i);
      await draw();
    }
    const group = groups[i], p = group.place.get(id) ?? -1, found = await neighbours(i, id);
    if (state.selected.group !== i || state.selected.id !== id) return;
    if (!found) {
      say("This file holds the neighbours of the points on its maps alone; that value is not one of them.", true);
      return;
    }
    const inside = found.groups.find((to) => to.to === i)?.hits ?? [];
    state.near = { group: i, self: p, hits: inside.map((hit) => group.place.get(hit.id)).filter((one) => one !== undefined) };
    drawPanel(found);
    await Plotly.relayout($("map"), { ...marks(), ...(p < 0 ? {} : bring(p)) });
    const place = p < 0 ? ", which is not on the map" : "";
    say(`${short(found.self.key)}${place}: ${found.groups.map((to) => `${to.hits.length} in ${groups[to.to].name}`).join(", ")}`);
  } catch (error) {
    say(error.message, true);
  }
}
function drawPanel(found) {
  const make = (tag, text, name) => {
    const one = document.createElement(tag);
    one.textContent = text;
    if (name) one.className = name;
    return one;
  };
  const heading = make("h2", found.self.key, "key");
  heading.id = "value";
  const name = groups[found.self.group].name, levels = facts.levels > 1 ? `, level ${found.self.level} of ${facts.levels}` : "";
  const parts = [heading, make("div", found.self.group === facts.rows ? name : `${name}, count ${shown(found.self.count)}${levels}`, "quiet")];
  found.groups.forEach((to) => {
    parts.push(make("h3", `Nearest in ${groups[to.to].name}`));
    const list = make("ol", "");
    to.hits.forEach((hit) => {
      const item = make("li", ""), button = make("button", "");
      button.type = "button";
      Object.assign(button.dataset, { group: groups[hit.group].name, key: hit.key, score: hit.score, count: hit.count });
      button.append(make("span", hit.score.toFixed(facts.digits), "score"), make("span", hit.key, "key"));
      if (hit.group !== facts.rows) button.append(make("span", about(hit, " ").trim(), "count"));
      button.addEventListener("click", () => select(hit.group, hit.id).then(() => $("selected").querySelector("button")?.focus()));
      item.append(button);
      list.append(item);
    });
    parts.push(to.hits.length ? list : make("p", "nothing else is there", "quiet"));
  });
  $("selected").replaceChildren(...parts);
  document.querySelector("aside").scrollTop = 0;
}

// --- the search ---

function matches(text) {
  const wanted = fold(text.trim()), found = [];
  if (!wanted) return found;
  const inOrder = [groups[state.group], ...groups.filter((group) => group.i !== state.group)].filter((group) => group.keys);
  inOrder.forEach((group, place) => {
    group.folded.forEach((key, p) => {
      const at = key.indexOf(wanted);
      if (at < 0) return;
      const kind = key === wanted ? 0 : at === 0 ? 1 : /[\p{L}\p{N}]/u.test(key[at - 1]) ? 3 : 2;
      found.push({ group, p, rank: kind + (place ? 0.5 : 0) });
    });
  });
  found.sort((a, b) => a.rank - b.rank || b.group.counts[b.p] - a.group.counts[a.p] || a.p - b.p);
  return found.slice(0, SHOWN);
}
function showOptions() {
  state.options = matches($("search").value);
  state.active = -1;
  $("options").replaceChildren(...state.options.map(({ group, p }, n) => {
    const item = document.createElement("li");
    item.id = `option-${n}`;
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", "false");
    const one = value(group, p);
    [["key", one.key], ["group", group.name], ["group", about(one, " ").trim()]].forEach(([name, text]) => {
      const part = document.createElement("span");
      part.className = name;
      part.textContent = text;
      item.append(part);
    });
    item.addEventListener("pointerdown", (event) => { event.preventDefault(); choose(n); });
    return item;
  }));
  open(state.options.length > 0);
}
function open(on) {
  $("options").hidden = !on;
  $("search").setAttribute("aria-expanded", String(on));
  if (!on) activate(-1);
}
function activate(n) {
  state.active = n;
  [...$("options").children].forEach((item, i) => item.setAttribute("aria-selected", String(i === n)));
  if (n < 0) { $("search").removeAttribute("aria-activedescendant"); return; }
  $("search").setAttribute("aria-activedescendant", `option-${n}`);
  $("options").children[n].scrollIntoView({ block: "nearest" });
}
function choose(n) {
  const { group, p } = state.options[n];
  $("search").value = group.keys[p];
  open(false);
  select(group.i, group.ids[p]);
}
async function find(key) {  // a value that is on no map, or whose name is spelled otherwise
  if (facts.alone) return say(`No point is called \u201c${short(key)}\u201d.`, true);
  try {
    const found = await ask(`find/${state.group}?key=${encodeURIComponent(key)}`);
    await select(state.group, found.id);
  } catch (error) {
    say(error.message, true);
  }
}
$("search").addEventListener("input", showOptions);
$("search").addEventListener("blur", () => open(false));
$("search").addEventListener("keydown", (event) => {
  const total = state.options.length, opened = !$("options").hidden;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    if (!opened) showOptions();
    if (state.options.length) activate(event.key === "ArrowDown" ? (state.active + 1) % state.options.length
      : (state.active + state.options.length - (state.active < 0 ? 0 : 1)) % state.options.length);
  } else if (event.key === "Enter") {
    if (opened && total) choose(Math.max(state.active, 0));
    else if ($("search").value.trim()) find($("search").value.trim());
  } else if (event.key === "Escape") {
    if (opened) open(false);
    else $("search").value = "";
  }
});

// --- the rest of the page ---

function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([id, text]) => new Option(text, id, false, String(id) === String(chosen))));
}
function kindsOf(i) {
  if (facts.alone) return facts.made[groups[i].name];
  return (groups[i].keys?.length ?? 0) < facts.few ? ["pca"] : facts.kinds;
}
function fillKinds(kind) { fill($("kind"), kindsOf(state.group).map((one) => [one, KINDS[one]]), kind); }
async function redraw() {
  try {
    await draw();
    if (state.selected) say("");
  } catch (error) {
    say(error.message, true);
    fillKinds(state.kind = "pca");
  }
}
$("group").addEventListener("change", () => { state.group = Number($("group").value); state.selected = null; redraw(); });
$("colour").addEventListener("change", () => {
  state.colour = /^\d+$/.test($("colour").value) ? Number($("colour").value) : $("colour").value;
  redraw();
});
$("kind").addEventListener("change", () => { state.kind = $("kind").value; redraw(); });
function nameTheme() { $("theme").textContent = theme() === "dark" ? "Light" : "Dark"; }
$("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = theme() === "dark" ? "light" : "dark";
  nameTheme();
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { nameTheme(); redraw(); });
const KEYS = { ArrowLeft: [-0.1, 0, 1], ArrowRight: [0.1, 0, 1], ArrowUp: [0, 0.1, 1], ArrowDown: [0, -0.1, 1],
  "+": [0, 0, 0.8], "=": [0, 0, 0.8], "-": [0, 0, 1.25] };
$("map").addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (KEYS[event.key]) move(...KEYS[event.key]);
  else if (event.key === "0") Plotly.relayout($("map"), { "xaxis.autorange": true, "yaxis.autorange": true });
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|SELECT)$/.test(document.activeElement.tagName)) return;
  event.preventDefault();
  $("search").focus();
});
nameTheme();
fill($("group"), groups.map((group) => [group.i, group.name]), 0);
const levels = facts.levels > 1 ? [["level", "level"]] : [];
const latent = facts.latent.map((name, i) => [`latent/${i}`, name]);
fill($("colour"), [["count", "count"], ...levels, ...latent, ["none", "none"], ...facts.columns.map((name, i) => [i, name])], state.colour);
redraw().then(async () => {  // the others, for the search
  for (const group of groups) await points(group.i).catch((error) => say(error.message, true));
  document.body.dataset.ready = "yes";
});
})();
