// Starts the page: selects the view, and polls for new data at a bounded rate while the page is visible.

import { byId, setText } from "./dom.js";
import { seconds, duration } from "./format.js";
import { PipelineView } from "./pipeline.js";
import { ClusterView, lastSeen } from "./cluster.js";
import { BrowseView } from "./browse.js";
import { TopicView } from "./topic.js";
import { GroupView } from "./group.js";

const RESULTS_INTERVAL_MS = 1000;
const CLUSTER_INTERVAL_MS = 1000;
const FAILED_INTERVAL_MS = 2000;
const REQUEST_TIMEOUT_MS = 8000;

const pipeline = new PipelineView();
const cluster = new ClusterView();
const browse = new BrowseView();
const topic = new TopicView();
const group = new GroupView();
let broker = null;
let consoleAwaySince = null;

function showHealth(view) {
  broker = view;
  setText(byId("where"), view.broker.bootstrap);
  showBanner();
}

function showBanner() {
  const health = consoleAwaySince === null ? broker?.health : { level: "bad", text: "console does not answer" };
  if (health) {
    byId("health").className = `pill ${health.level}`;
    setText(byId("health"), health.text);
    // A reason may be longer than the room for it.
    byId("health").title = health.text;
  }
  let text = "";
  let from = null;
  if (consoleAwaySince !== null) {
    text = `The console itself does not answer since ${seconds(consoleAwaySince)}. Is it still running?`;
    from = consoleAwaySince;
  }
  else if (broker?.broker.state === "unreachable") {
    const { bootstrap, since_ms: since, reason } = broker.broker;
    text = `The broker at ${bootstrap} has not been reachable since ${seconds(since)}: ${reason}.${lastSeen(broker)}`;
    from = since;
  }
  byId("banner").hidden = text === "";
  document.body.classList.toggle("stale", text !== "");
  setText(byId("banner-text"), text);
  // Not inside the alert: a screen reader would read the changing age every second.
  setText(byId("banner-age"), from === null ? "" : `(${duration(Date.now() - from)})`);
}

function keepAsking(path, interval, use) {
  let tag = null;
  const ask = async () => {
    let pause = interval;
    if (!document.hidden) {
      try {
        const response = await fetch(path, { signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS), cache: "no-cache" });
        // The console was restarted with another token: the page at / asks for it.
        if (response.status === 401) { location.reload(); return; }
        if (!response.ok) throw new Error(`status ${response.status}`);
        const answer = await response.json();
        consoleAwaySince = null;
        if (response.headers.get("etag") !== tag) use(answer);
        tag = response.headers.get("etag");
      } catch (error) {
        if (!(error instanceof TypeError) && error.name !== "TimeoutError" && error.name !== "AbortError") console.error(error);
        consoleAwaySince ??= Date.now();
        pause = FAILED_INTERVAL_MS;
        tag = null;
      }
      showBanner();
    }
    setTimeout(ask, pause);
  };
  ask();
}

function route() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  const view = { "/cluster": "cluster", "/browse": "browse", "/topic": "topic", "/group": "group" }[path] ?? "pipeline";
  for (const each of document.querySelectorAll(".view")) each.hidden = each.id !== `view-${view}`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === (view === "topic" || view === "group" ? "cluster" : view)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view === "browse") browse.show(new URLSearchParams(query));
  if (view === "topic") topic.show(new URLSearchParams(query));
  if (view === "group") group.show(new URLSearchParams(query));
  else group.leave();
}

window.addEventListener("hashchange", route);
route();
keepAsking("/api/cluster", CLUSTER_INTERVAL_MS, (view) => { showHealth(view); pipeline.updateCluster(view); cluster.update(view); browse.updateCluster(view); topic.update(view); group.update(view); });
keepAsking("/api/results", RESULTS_INTERVAL_MS, (view) => pipeline.updateResults(view));
