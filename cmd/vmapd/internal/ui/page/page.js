"use strict";
// Texts of objects get into the page by el alone, as nodes of text: they are never parsed.
const $ = id => document.getElementById(id);
const fill = (node, ...kids) => node.replaceChildren(...kids);
const el = (tag, style, ...kids) => {
  const e = document.createElement(tag);
  if (style) e.className = style;
  e.append(...kids.map(k => k instanceof Node ? k : String(k)));
  return e;
};
const row = (...cells) => el("tr", "", ...cells.map(c => c instanceof Node && c.tagName === "TD" ? c : el("td", "", c)));
const titled = (title, ...content) => {
  const th = el("th", "", title);
  th.scope = "row";
  return el("tr", "", th, el("td", "", ...content));
};

// The time of the daemon's clock, which the state brings.
let skew = 0;
const now = () => Date.now() - skew;

async function ask(name, query) {
  const url = new URL("api/" + name, location.href);
  url.hash = "";
  url.search = new URLSearchParams(query || {});
  const answer = await fetch(url, {cache: "no-store"});
  const text = await answer.text();
  let value;
  try { value = JSON.parse(text); } catch { value = {error: text}; }
  if (!answer.ok) throw new Error(value.error || answer.statusText);
  heard = Date.now(); silent = "";
  return value;
}

// A time is shown as an age, which tick keeps right.
const ago = t => {
  const s = Math.max(0, Math.round((now() - Date.parse(t)) / 1000));
  return s < 120 ? s + " s ago" : s < 7200 ? Math.round(s / 60) + " min ago" : s < 172800 ? Math.round(s / 3600) + " h ago" : Math.round(s / 86400) + " d ago";
};
const aged = t => {
  if (!t) return "never";
  const e = el("time", "", ago(t));
  e.dateTime = e.title = t;
  return e;
};
const styleOf = state => state.split(" ")[0];
const portOf = s => s.port ? s.port + "/" + s.protocol : s.protocol || "";
const percent = share => (100 * share).toFixed(1) + " %";

// A remedy has a button that copies it.
const remedy = text => {
  const b = el("button", "", "copy");
  b.onclick = () => navigator.clipboard.writeText(text).then(() => { b.textContent = "copied"; setTimeout(() => { b.textContent = "copy"; }, 2000); });
  return el("div", "", text, b);
};

async function showStatus() {
  const s = await ask("status");
  skew = Date.now() - Date.parse(s.now);
  fill($("daemon"), `${s.node}, ${s.backend}${s.with ? " with " + s.with : ""}, ${s.version.split(" ")[0]}, started `, aged(s.started));
  const reasons = [];
  const because = (level, text, fix) => reasons.push({level, text, fix});
  if (!s.ready) because("fail", "not ready: not all Services have been programmed yet");
  for (const l of s.findings || []) because(l.level, `${l.name}: ${l.text}`, l.fix);
  for (const p of s.problems || []) because("warn", p);
  reasons.sort((a, b) => (a.level === "warn") - (b.level === "warn"));
  for (const [state, n] of Object.entries(s.servicePortsByState)) {
    if (state !== "forwarded") because(state === "waiting" ? "fail" : state === "left out" ? "warn" : "", `${n} service port${n > 1 ? "s" : ""}: ${state}`);
  }
  $("light").className = s.level;
  $("light").hidden = false;
  const verdict = {ok: "This node is well", warn: "Something needs attention", fail: "Some connections fail"}[s.level];
  if ($("verdict").textContent !== verdict) fill($("verdict"), verdict);
  const key = JSON.stringify(reasons); // a button that has the focus stays
  if ($("reasons").dataset.key !== key) fill($("reasons"), ...reasons.map(r => el("li", r.level || "note", r.level ? `${r.level}: ${r.text}` : r.text, ...r.fix ? [remedy(r.fix)] : [])));
  $("reasons").dataset.key = key;
  const rows = s.families.map(f => titled(f.family, `${f.servicePorts} service ports, ${f.endpoints} endpoints; last sync `, aged(f.lastSync)));
  rows.push(titled("Doctor", s.doctor));
  if (s.trackedConnectionsLimit) rows.push(titled("Tracking", `${s.trackedConnections} of at most ${s.trackedConnectionsLimit} connections`));
  fill($("node"), ...rows);
}

// The list is limited; the field finds the others. A link that has the focus has it in the new list, too.
async function showServices() {
  const search = $("search").value;
  const list = await ask("services", {search, limit: 300});
  if (search !== $("search").value) return; // a later answer will come
  const items = list.items || [], focus = document.activeElement.dataset.key, byName = new Map();
  for (const s of items) {
    const name = s.namespace + "/" + s.name;
    byName.set(name, [...byName.get(name) || [], s]);
  }
  const count = `${byName.size} Services${list.left ? `, and ${list.left} more service ports` : ""}`;
  if ($("count").textContent !== count) fill($("count"), count);
  fill($("services"), ...[...byName].map(([name, ports]) => {
    const bad = ports.find(s => s.state !== "forwarded") || ports[0], a = el("a", "", name);
    a.href = "#" + encodeURIComponent(name);
    a.dataset.key = name;
    const text = [...new Set(ports.map(s => (s.portName ? s.portName + " " : "") + portOf(s)))].join(", ");
    const r = row(el("td", "state " + styleOf(bad.state), "\u25CF " + bad.state), el("td", "", a), text);
    r.dataset.name = name;
    if (focus === name) queueMicrotask(() => a.focus({preventScroll: true}));
    return r;
  }));
  markChosen();
}

function markChosen() {
  for (const r of $("services").rows) {
    const is = r.dataset.name === chosen;
    r.classList.toggle("chosen", is);
    r.querySelector("a").ariaCurrent = is ? "true" : null;
  }
}

// A box has a coloured edge, a word for it, and further lines.
const box = (style, title, word, ...notes) => el("div", "box " + style, el("b", "", title), el("span", "word", word), ...notes.filter(n => n).map(n => el("span", "note", n)));

const drawAddress = (p, a) => box(styleOf(a.state), `${a.address ? a.address + " : " : "node port "}${a.port}`, a.state, a.kind,
  a.trafficPolicy.toLowerCase() === "local" ? "only to endpoints on this node" : "", a.restricted ? "some sources only" : "");
const drawEndpoint = e => box(styleOf(e.state), e.address, e.state,
  e.share ? "share " + percent(e.share) : "no new connections", e.localShare ? "policy Local: " + percent(e.localShare) : "",
  e.pod ? "pod " + e.pod : "", (e.node ? "node " + e.node : "") + (e.onThisNode ? " (this node)" : "") + (e.zone ? ", zone " + e.zone : ""));

// One port: clients, the addresses side by side, and the endpoints side by side.
function drawPort(p) {
  const endpoints = p.endpointList || [], most = 50;
  const parts = [el("h2", "", `${p.family} ${portOf(p)} ${p.portName || ""} `, el("span", styleOf(p.state), p.state + (p.reason ? ": " + p.reason : ""))),
    el("div", "path", el("div", "", box("", "clients", "")),
      el("div", "", el("div", "branches addresses", ...(p.addresses || []).map(a => drawAddress(p, a)))),
      el("div", "", el("div", "branches", ...endpoints.slice(0, most).map(drawEndpoint), ...endpoints.length ? [] : [el("span", "fail", "no endpoints")],
        ...endpoints.length > most ? [el("span", "note", `and ${endpoints.length - most} more`)] : [])))];
  const rules = p.rules || [];
  if (rules.length) {
    const key = [p.family, portOf(p), p.portName].join(" ");
    const fold = el("details", "", el("summary", "", `Rules: ${rules.filter(l => !l.startsWith("    ")).length} maps and chains`), el("pre", "", rules.join("\n")));
    fold.open = unfolded.has(key);
    fold.ontoggle = () => { if (fold.open) unfolded.add(key); else unfolded.delete(key); };
    parts.push(fold);
  }
  return parts;
}

const hint = $("chosen").firstChild, unfolded = new Set(), pause = 3000;
let chosen = "", last = null, rates = [];

async function showService() {
  const name = chosen;
  if (!name) return fill($("chosen"), hint);
  const slash = name.indexOf("/");
  let s;
  try {
    s = await ask("service", {namespace: name.slice(0, slash), name: name.slice(slash + 1), rules: "daemon"});
  } catch (e) {
    if (name === chosen) fill($("chosen"), el("h2", "", name), el("p", "fail", e.message));
    return;
  }
  if (name !== chosen || $("chosen").dataset.name === name && !getSelection().isCollapsed) return; // a selected text stays
  const parts = [el("h2", "", "Service " + name), ...(s.problems || []).map(p => el("p", "warn", "problem: " + p)),
    ...s.ports.flatMap(drawPort), el("h2", "", "Connections a second"), rate(s), ...(s.notes || []).map(n => el("p", "note", n))];
  const focus = [...$("chosen").querySelectorAll("summary")].indexOf(document.activeElement);
  fill($("chosen"), ...parts);
  $("chosen").querySelectorAll("summary")[focus]?.focus({preventScroll: true});
  $("chosen").dataset.name = name;
}

// The numbers of new connections between answers.
function rate(s) {
  if (!s.ports.some(p => p.connections !== undefined)) return el("p", "note", "not counted");
  const number = s.ports.reduce((sum, p) => sum + (p.connections || 0), 0);
  const next = {name: chosen, at: performance.now(), number};
  if (last && last.name === chosen && next.at > last.at) rates.push(Math.max(0, (number - last.number) * 1000 / (next.at - last.at)));
  rates = rates.slice(-60);
  last = next;
  return el("div", "", el("p", "", `${rates.length ? rates.at(-1).toFixed(1) + " now, " : ""}${number} since counting began`), ...rates.length > 1 ? [chart(rates)] : []);
}

// A line of numbers with its axes, the latest at the right.
function chart(numbers) {
  const w = 480, h = 110, left = 40, bottom = 20, most = Math.max(1, Math.ceil(Math.max(...numbers)));
  const x = i => left + (w - left) * (i + 60 - numbers.length) / 59, y = n => 8 + (h - bottom - 8) * (1 - n / most);
  const make = (tag, attributes, ...kids) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
    e.append(...kids);
    return e;
  };
  return make("svg", {viewBox: `0 0 ${w} ${h}`, width: w, height: h, role: "img", "aria-label": "connections a second"},
    ...[0, most / 2, most].flatMap(n => [make("line", {x1: left, x2: w, y1: y(n), y2: y(n)}), make("text", {x: 0, y: y(n) + 4}, String(n))]),
    make("text", {x: left, y: h - 4}, Math.round(59 * pause / 1000) + " s ago"), make("text", {x: w - 24, y: h - 4}, "now"),
    make("path", {d: "M" + numbers.map((n, i) => x(i).toFixed(1) + " " + y(n).toFixed(1)).join("L")}));
}

// again calls a function now and so many milliseconds after each end, while the page is visible. The header says
// when the last answer came, and why none comes.
let heard = 0, silent = "";
function tick() {
  for (const e of document.querySelectorAll("time")) e.textContent = ago(e.dateTime);
  $("fresh").className = silent ? "fail" : "note";
  $("fresh").textContent = silent ? "not refreshed: " + silent : heard ? `refreshed ${Math.round((Date.now() - heard) / 1000)} s ago, every ${pause / 1000} s` : "";
}
function again(show, pause) {
  const next = async () => {
    if (!document.hidden) try { await show(); } catch (e) { silent = e.message; }
    tick();
    setTimeout(next, pause);
  };
  next();
}

function choose() {
  let name = "";
  try { name = decodeURIComponent(location.hash.slice(1)); } catch { /* no name */ }
  if (name === chosen) return;
  chosen = name; last = null; rates = []; unfolded.clear();
  markChosen();
  showService();
}

let typed;
$("search").oninput = () => { clearTimeout(typed); typed = setTimeout(() => showServices().catch(() => {}), 120); };
addEventListener("hashchange", () => {
  choose();
  $("right").focus({preventScroll: true});
  if ($("right").getBoundingClientRect().top > innerHeight / 2) $("right").scrollIntoView(); // on a phone
});

choose();
again(showServices, 2 * pause);
again(showStatus, pause);
again(showService, pause);
setInterval(tick, 1000);
