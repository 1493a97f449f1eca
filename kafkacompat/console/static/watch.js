// The page of requests: follows /api/watch while it is visible, and shows the newest exchanges at a bounded rate.

import { byId, h, setText } from "./dom.js";

const OWN = "kafkacompat-console"; // the client.id of consoles
const SHOWN_MAX = 200;
const DRAW_MS = 250;
const AGAIN_MS = 3000;
const FIELDS = ["api", "client_id", "topic", "principal"];
const FLAGS = ["errors", "values"];

let source = null;
let again = null;
let paused = false;
let waiting = [];
let drawing = null;
let seen = 0;
let lost = 0;
const nodes = new Map(); // place -> the problem, or null

function wanted() {
  const query = new URLSearchParams();
  for (const name of FIELDS) {
    const values = name === "api" ? byId(name).value.split(/[\s,]+/) : [byId(name).value];
    for (const value of values) if (value !== "") query.append(name, value);
  }
  for (const name of FLAGS) if (byId(name).checked) query.set(name, "true");
  return query;
}

function begin() {
  end();
  if (document.hidden || paused) { showState(); return; }
  nodes.clear();
  const query = wanted().toString();
  source = new EventSource(query === "" ? "/api/watch" : `/api/watch?${query}`);
  source.onmessage = (event) => take(JSON.parse(event.data));
  source.onerror = () => failed(query);
  showState();
}

function end() {
  source?.close();
  source = null;
  clearTimeout(again);
}

// The browser asks again by itself if the stream has ended, and not if it was refused.
async function failed(query) {
  if (source === null || source.readyState !== EventSource.CLOSED) { showState(); return; }
  end();
  again = setTimeout(begin, AGAIN_MS);
  try {
    const response = await fetch(`/api/watch?${query}`, { cache: "no-store" });
    if (response.status === 401) { location.assign("/"); return; }
    const text = response.ok ? null : (await response.json()).error;
    if (response.ok) await response.body.cancel();
    nodes.clear();
    if (text !== null) nodes.set("", text);
  } catch {
    nodes.set("", "The console does not answer.");
  }
  showState();
}

function take(told) {
  if ("watching" in told) nodes.set(told.watching, null);
  else if ("problem" in told) nodes.set(told.place, told.problem);
  else if ("lost" in told) lost += told.lost;
  else if (told.client_id !== OWN || byId("own").checked || byId("client_id").value !== "") {
    seen += 1;
    waiting.push(told);
    if (waiting.length > SHOWN_MAX) waiting.shift();
  }
  drawing ??= setTimeout(draw, DRAW_MS);
}

function draw() {
  drawing = null;
  const list = byId("exchanges");
  if (!paused) {
    list.prepend(...waiting.reverse().map(item));
    waiting = [];
    while (list.childElementCount > SHOWN_MAX) list.lastElementChild.remove();
  }
  showState();
}

function showState() {
  const problems = [...nodes.values()].filter((problem) => problem !== null);
  const watched = nodes.size - problems.length;
  const [level, text] = paused ? ["warning", "paused"]
    : problems.length > 0 ? ["bad", watched > 0 ? `${watched} of ${nodes.size} nodes` : "not watching"]
      : watched > 0 ? ["good", watched === 1 ? "watching 1 node" : `watching ${watched} nodes`] : ["warning", "connecting"];
  byId("watched").className = `pill ${level}`;
  setText(byId("watched"), text);
  byId("problems").hidden = problems.length === 0;
  setText(byId("problems"), problems.join("; "));
  setText(byId("pause"), paused ? "Go on" : "Pause");
  byId("none").hidden = byId("exchanges").childElementCount > 0;
  setText(byId("counted"), `${seen} seen` + (lost > 0 ? `, ${lost} not shown: they came faster than they are read` : ""));
}

function outcome(told) {
  if (told.errors.length > 0) return told.errors.join(", ") + (told.closed === null ? "" : ", closed");
  if (told.closed !== null) return "closed";
  return "ok";
}

function item(told) {
  const kind = told.errors.length > 0 ? "refused" : told.closed !== null ? "closed" : "";
  const reasons = told.closed === null ? told.reasons : [...told.reasons, `closed: ${told.closed}`];
  const details = h("details", {},
    h("summary", {},
      h("span", { class: "mono" }, new Date(told.at_ms).toISOString().slice(11, 23)),
      h("span", { class: "api" }, `${told.api} v${told.version}`),
      told.topics.length > 0 && h("span", {}, told.topics.join(", ")),
      h("span", { class: "muted" }, `${told.client_id ?? "no client.id"}, ${told.principal}, ${told.client}, node ${told.node}`),
      h("span", { class: "outcome" }, outcome(told))));
  // Made when it is opened: most never are.
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    if (told.too_long) details.append(h("p", { class: "muted" }, `Request and response are too long to be shown (${told.too_long} bytes).`));
    else {
      for (const name of ["request", "response"]) {
        details.append(h("h3", {}, name), h("pre", { tabindex: "0" }, told[name] === null ? "none" : JSON.stringify(told[name], null, 2)));
      }
    }
  });
  return h("li", { class: kind || null }, details, reasons.map((reason) => h("p", { class: "reason" }, reason)));
}

byId("filter").addEventListener("submit", (event) => {
  event.preventDefault();
  waiting = [];
  byId("exchanges").replaceChildren();
  seen = 0;
  lost = 0;
  paused = false;
  begin();
});
byId("pause").addEventListener("click", () => {
  paused = !paused;
  begin();
});
document.addEventListener("visibilitychange", begin);
begin();
