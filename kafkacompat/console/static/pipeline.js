// The pipeline's view: key figures, web requests, website activity, services.

import { byId, empty, h, replace, setText, table, track } from "./dom.js";
import { TimeChart, chartTable, spark } from "./charts.js";
import { bytes, clock, count, decimal, duration, milliseconds, moment, percent, plural, rate, seconds, when } from "./format.js";

const STATUS = [
  { name: "2xx", tone: "tone-ok" }, { name: "3xx", tone: "tone-info" }, { name: "4xx", tone: "tone-warn" }, { name: "5xx", tone: "tone-bad" },
];
const ERROR_SHARE_WARNING = 0.01;
const ERROR_SHARE_BAD = 0.05;
const SERVICE_TONES = 8;
const MOST_NOTICES = 3;

const level = (share) => (share >= ERROR_SHARE_BAD ? "bad" : share >= ERROR_SHARE_WARNING ? "warning" : "");
const command = (words) => `kafkacompat pipeline ${words} --bootstrap ${bootstrap}`;
const run = (job) => command(`run ${job}`);
let bootstrap = "HOST:PORT";

// The newest window is incomplete, so figures come from the window before it.
const settled = (windows) => windows.at(-2) ?? windows.at(-1) ?? null;

export class PipelineView {
  constructor() {
    this.logs = new TimeChart(byId("logs-chart"), { kind: "bars", label: "Requests per second by status class", format: decimal });
    this.visitors = new TimeChart(byId("visitors-chart"), { kind: "lines", label: "Page views and unique visitors per window", format: count, height: 268 });
    this.latency = new TimeChart(byId("latency-chart"), { kind: "lines", label: "95th percentile of latency per service", format: milliseconds });
    this.errors = new TimeChart(byId("errors-chart"), { kind: "lines", label: "Error rate per service", format: percent });
    this.tables = [
      chartTable(byId("logs-table"), this.logs, "Requests per second by status class", table),
      chartTable(byId("visitors-table"), this.visitors, "Views and visitors per window", table),
      chartTable(byId("latency-table"), this.latency, "95th percentile of latency per service", table),
      chartTable(byId("errors-table"), this.errors, "Error rate per service", table),
    ];
    this.rateHistory = [];
    this.results = null;
    this.queries = [];
    this.groups = new Set();
    this.known = "";
  }

  updateCluster(view) {
    bootstrap = view.broker.bootstrap;
    this.rateHistory = view.cluster?.rate_history ?? [];
    this.queries = view.queries;
    this.groups = new Set((view.cluster?.groups ?? []).map((each) => each.group));
    this.drawQueries();
    // What is said in an empty place depends on the jobs that run, and contains the broker's address.
    const known = JSON.stringify([bootstrap, this.queries.map((each) => [each.query, each.state, each.said, each.records])]);
    if (this.results !== null && known !== this.known) this.updateResults(this.results);
    else if (this.results !== null) this.tiles(this.results);
    this.known = known;
  }

  updateResults(view) {
    this.results = view;
    this.tiles(view);
    this.drawLogs(view.logs);
    this.drawRejected(view.logs.rejected);
    this.drawActivity(view.activity);
    this.drawMetrics(view.metrics);
    this.tables.forEach((fill) => fill());
    const { records, repeats, malformed, behind, last_malformed: last } = view.reading;
    const waiting = behind ? `, ${count(behind)} yet to be read` : "";
    const odd = malformed ? ` ${plural(malformed, "row")} not understood (${last}).` : "";
    setText(byId("reading"), `${plural(records, "result record")} read${waiting}; ${plural(repeats, "repeat")} counted once.${odd}`);
  }

  // What is said where a job has no results yet: whether it runs, and the commands that help.
  waiting(job, nothing, ...send) {
    const mine = this.queries.filter((each) => each.job === job);
    const running = mine.filter((each) => each.state === "running");
    const troubled = (running.length ? running : mine).find((each) => each.level !== "good");
    if (running.length === 0) {
      return troubled ? [`${nothing} ${troubled.query} ${troubled.said}. Run the job again:`, run(job)] : [`${nothing} ${send.length ? "Send events and run the job:" : "Run the job:"}`, ...send, run(job)];
    }
    if (troubled) return [`${nothing} The job ${job} runs, but ${troubled.query} ${troubled.said}.`];
    const records = Math.max(...running.map((each) => each.records));
    if (records === 0 && running.some((each) => each.available > 0)) return [`${nothing} The job ${job} runs, and its first batch is not done yet.`];
    if (records > 0) return [`${nothing} The job ${job} runs and has read ${plural(records, "record")}. Results follow.`];
    return [`${nothing} The job ${job} runs and has read no record yet.${send.length ? " Send some:" : ""}`, ...send];
  }

  drawQueries() {
    const troubled = this.queries.filter((each) => each.level !== "good");
    const shown = troubled.slice(0, MOST_NOTICES).map((each) => h("li", {}, h("b", {}, each.query), ` ${each.said}`));
    if (troubled.length > MOST_NOTICES) shown.push(h("li", {}, `and ${troubled.length - MOST_NOTICES} more queries, listed under Jobs`));
    byId("notices").hidden = troubled.length === 0;
    replace(byId("notices"), shown);
    replace(byId("queries"), this.queries.length === 0
      ? empty("No job has reported here in the last day.", run("all"))
      : table("Queries of the jobs: the last batch, late records and the watermark", [
        { title: "Query", cell: (row) => (this.groups.has(groupOf(row)) ? h("a", { href: `#/group?group=${encodeURIComponent(groupOf(row))}`, title: "its group, with its lag over time" }, row.query) : row.query) },
        { title: "State", cell: (row) => h("span", { class: `tag ${{ good: row.state === "running" ? "good" : "", warning: "warning", bad: "bad" }[row.level]}`, title: row.said || null }, row.state === "running" && row.level !== "good" ? row.said.split(" ")[0] : row.state) },
        { title: "Last batch", class: "nowrap", cell: (row) => (row.batch === null ? "none yet" : seconds(row.batch_start_ms)) },
        { title: "Took", number: true, class: "hide-small", cell: (row) => milliseconds(row.batch_ms) },
        { title: "Read", number: true, class: "hide-small", cell: (row) => count(row.batch_records) },
        { title: "Records", number: true, class: "hide-small", cell: (row) => count(row.records) },
        { title: "Late", number: true, cell: (row) => count(row.late) },
        { title: "Waiting", number: true, class: "hide-small", cell: (row) => count(row.behind) },
        { title: "Behind", number: true, class: "hide-small", cell: (row) => duration(row.behind_ms) },
        { title: "Watermark", number: true, cell: (row) => (row.watermark_ms === null ? "–" : when(row.watermark_ms)) },
      ], this.queries, (row) => row.said && h("span", { class: "muted" }, row.said)));
  }

  tiles({ logs, activity, metrics }) {
    const request = settled(logs.windows);
    const visit = settled(activity.windows);
    const slowest = metrics.services.map((each) => ({ service: each.service, last: settled(each.windows), windows: each.windows }))
      .filter((each) => each.last).sort((one, other) => other.last.p95_ms - one.last.p95_ms)[0];
    const alert = metrics.alerts.latest[0];
    const throughput = this.rateHistory.at(-1);
    replace(byId("tiles"),
      tile("Requests", request && decimal(request.requests_per_s), "per second", request ? `${when(request.start_ms) === clock(request.start_ms) ? "minute " : ""}from ${when(request.start_ms)}` : "no requests yet", "", spark(logs.windows.map((each) => each.requests_per_s))),
      tile("Server errors", request && percent(request.server_error_share), "of requests", request ? `${rate(request.status[3])} with 5xx` : "no requests yet", request ? level(request.server_error_share) : "", spark(logs.windows.map((each) => each.server_error_share), "tone-bad")),
      tile("Visitors", visit && count(visit.visitors), "", visit ? `${clock(visit.start_ms)}–${clock(visit.end_ms)}, ${plural(visit.views, "view")}` : "no page views yet", "", spark(activity.windows.map((each) => each.visitors), "tone-3")),
      tile("Slowest service", slowest && milliseconds(slowest.last.p95_ms), "p95", slowest ? slowest.service : "no samples yet", "", slowest && spark(slowest.windows.map((each) => each.p95_ms), "tone-2")),
      tile("Alerts", metrics.services.length || metrics.alerts.kept ? count(metrics.alerts.last_hour) : null, "in the last hour", alert ? `latest: ${alert.service}, ${clock(alert.window_start_ms)}` : "none", metrics.alerts.last_hour > 0 ? "warning" : "", null),
      tile("Broker", throughput && decimal(throughput.records_per_s), "records/s", "written, over all topics", "", spark(this.rateHistory.map((each) => each.records_per_s), "tone-6")),
    );
  }

  drawLogs({ windows }) {
    const host = byId("logs-chart");
    this.logs.update({
      series: STATUS,
      points: windows.map((each, number) => ({ start: each.start_ms, end: each.end_ms, values: each.status, open: number === windows.length - 1 })),
    });
    const last = settled(windows);
    setText(byId("logs-note"), last ? `${rate(last.requests_per_s)} · ${bytes(last.bytes_per_s)}/s · latest window still fills` : "");
    hint(host, windows.length === 0, ...this.waiting("logs", "No requests counted yet.", command("collect ACCESS.LOG")));
  }

  drawRejected({ kept, reasons, latest }) {
    setText(byId("rejected-note"), kept ? `latest ${count(kept)}` : "");
    if (kept === 0) { replace(byId("rejected"), empty("None: every line and event so far was understood.")); return; }
    replace(byId("rejected"),
      h("div", { class: "reasons" }, reasons.map((each) => h("span", { class: "tag warning" }, `${each.reason} · ${count(each.count)}`))),
      h("ul", { class: "list" }, latest.map((each) => h("li", {},
        h("div", { class: "line" }, h("span", {}, each.reason), h("span", { class: "muted" }, seconds(each.received_ms))),
        h("code", { class: "clip", title: each.line ?? "" }, each.line ?? ""),
        h("span", { class: "clip" }, `${each.rejected_by} · ${each.source ?? "unknown source"}`)))));
  }

  drawActivity({ top_pages: top, windows, sessions }) {
    setText(byId("pages-note"), top.pages.length ? `${clock(top.start_ms)}–${clock(top.end_ms)}` : "");
    const most = top.pages[0]?.views ?? 1;
    replace(byId("pages"), top.pages.length === 0
      ? empty(...this.waiting("activity", "No page views yet.", command("generate")))
      : table("Most seen pages of the latest full window", [
        { title: "#", number: true, cell: (row) => row.rank },
        { title: "Page", class: "clip mono", cell: (row) => h("span", { title: row.page }, row.page) },
        { title: "", class: "bar-cell", cell: (row) => track(row.views / most) },
        { title: "Views", number: true, cell: (row) => count(row.views) },
        { title: "Visitors", number: true, cell: (row) => count(row.visitors) },
        { title: "Move", number: true, class: "hide-small", cell: (row) => moved(row) },
      ], top.pages.map((page, number) => ({ ...page, rank: number + 1 }))));
    this.visitors.update({
      series: [{ name: "views", tone: "tone-1" }, { name: "visitors", tone: "tone-3" }, { name: "searches", tone: "tone-2" }],
      points: windows.map((each, number) => ({ start: each.start_ms, end: each.end_ms, values: [each.views, each.visitors, each.searches], open: number === windows.length - 1 })),
    });
    setText(byId("visitors-note"), windows.length ? `${plural(windows.length, "window")} of ${duration(windows.at(-1).end_ms - windows.at(-1).start_ms)}` : "");
    hint(byId("visitors-chart"), windows.length === 0, ...this.waiting("activity", "No visitors counted yet."));
    this.drawSessions(sessions, windows.length > 0);
  }

  drawSessions({ users, mean_duration_ms: mean, mean_page_views: depth, durations, recent }, counting) {
    setText(byId("sessions-note"), users ? `latest session of ${plural(users, "user")}` : "");
    if (users === 0) {
      replace(byId("sessions-bars"), counting
        ? empty("No session has ended yet: one ends when its user is silent for the session gap, and is told when the watermark, too, has passed.")
        : empty(...this.waiting("activity", "No session has been seen yet.")));
      replace(byId("sessions"), empty(`No session has ${counting ? "ended" : "been seen"} yet.`));
      return;
    }
    const most = Math.max(1, ...durations.map((each) => each.sessions));
    replace(byId("sessions-bars"),
      table("Sessions by duration", [
        { title: "Duration", class: "nowrap", cell: (row) => row.label },
        { title: "", class: "bar-cell wide", cell: (row) => track(row.sessions / most, "tone-5") },
        { title: "Sessions", number: true, cell: (row) => count(row.sessions) },
      ], durations),
      h("div", { class: "pair" }, h("div", {}, h("b", {}, duration(mean)), "mean duration"), h("div", {}, h("b", {}, decimal(depth)), "pages per session")));
    replace(byId("sessions"), table("Latest sessions", [
      { title: "User", class: "mono nowrap", cell: (row) => row.user_id },
      { title: "Ended", class: "nowrap", cell: (row) => seconds(row.session_end_ms) },
      { title: "Lasted", number: true, cell: (row) => duration(row.session_end_ms - row.session_start_ms) },
      { title: "Pages", number: true, cell: (row) => count(row.page_views) },
      { title: "Searches", number: true, class: "hide-small", cell: (row) => count(row.searches) },
      { title: "Last page", class: "clip mono", cell: (row) => row.last_page ?? "–" },
    ], recent));
  }

  drawMetrics({ services, services_hidden: more, alerts }) {
    const alarmed = new Set(alerts.firing);
    setText(byId("services-note"), services.length ? `latest full window${more > 0 ? `; ${more} more services` : ""}` : "");
    const rows = services.map((each, number) => ({ ...each, last: settled(each.windows), tone: `tone-${(number % SERVICE_TONES) + 1}` }));
    replace(byId("services"), rows.length === 0
      ? empty(...this.waiting("metrics", "No service has been measured yet.", command("generate")))
      : table("Services: latency, errors and load of the latest full window", [
        { title: "Service", class: "nowrap", cell: (row) => [h("span", { class: `swatch ${row.tone}` }), row.service] },
        { title: "State", cell: (row) => serviceState(row, alarmed) },
        { title: "p50", number: true, class: "hide-small", cell: (row) => milliseconds(row.last?.p50_ms) },
        { title: "p95", number: true, cell: (row) => milliseconds(row.last?.p95_ms) },
        { title: "p99", number: true, class: "hide-small", cell: (row) => milliseconds(row.last?.p99_ms) },
        { title: "Errors", number: true, cell: (row) => percent(row.last?.error_rate) },
        { title: "CPU", number: true, cell: (row) => percent(cpuShare(row.sample ?? row.last)) },
        { title: "Memory", number: true, cell: (row) => bytes(row.sample?.memory_bytes) },
        { title: "p95 over time", number: true, class: "hide-small", cell: (row) => spark(row.windows.map((each) => each.p95_ms), row.tone, { width: 96, height: 22, stretched: false }) },
      ], rows));
    setText(byId("alerts-note"), alerts.kept ? `${count(alerts.last_hour)} in the last hour` : "");
    replace(byId("alerts"), alerts.kept === 0
      ? empty("None: no service has gone over a threshold.")
      : h("ul", { class: "list" }, alerts.latest.map((each) => h("li", {},
        h("div", { class: "line" }, h("span", {}, alertTag(each), " ", h("b", {}, each.service)), h("span", { class: "muted" }, moment(each.window_start_ms).slice(5, 16))),
        h("span", { class: "clip" }, `${each.rule}: ${measured(each.rule, each.value)}, threshold ${measured(each.rule, each.threshold)}`)))));
    this.drawServiceCharts(rows);
  }

  drawServiceCharts(rows) {
    const series = rows.map((row) => ({ name: row.service, tone: row.tone }));
    const windows = new Map();
    rows.forEach((row) => row.windows.forEach((each) => windows.set(each.start_ms, each.end_ms)));
    const starts = [...windows.keys()].sort((one, other) => one - other);
    const found = rows.map((row) => new Map(row.windows.map((each) => [each.start_ms, each])));
    const points = (field) => starts.map((start, number) => ({ start, end: windows.get(start), values: found.map((each) => each.get(start)?.[field] ?? null), open: number === starts.length - 1 }));
    this.latency.update({ series, points: points("p95_ms") });
    this.errors.update({ series, points: points("error_rate") });
    hint(byId("latency-chart"), starts.length === 0, "No latency measured yet.");
    hint(byId("errors-chart"), starts.length === 0, "No errors measured yet.");
  }
}

// The group to which a query commits, unless the run was given another prefix.
const groupOf = (query) => `pipeline-${query.query}`;

function tile(title, figure, unit, note, mood, line) {
  return h("div", { class: `tile ${mood}` }, h("h3", {}, title), h("div", { class: "figure" }, figure ?? "–", figure && unit && h("span", {}, unit)), h("div", { class: "note", title: note }, note), line);
}

function moved(row) {
  if (row.rank_before === null) return h("span", { class: "move up", title: "not in the window before" }, "new");
  const by = row.rank_before - row.rank;
  if (by === 0) return h("span", { class: "move", title: "same rank as in the window before" }, "=");
  return h("span", { class: `move ${by > 0 ? "up" : "down"}`, title: `rank ${row.rank_before} in the window before` }, `${by > 0 ? "▲" : "▼"} ${Math.abs(by)}`);
}

function alertTag({ state, severity }) {
  if (state === "resolved") return h("span", { class: "tag good" }, "resolved");
  return h("span", { class: `tag ${severity === "critical" ? "bad" : "warning"}` }, severity ?? "alert");
}

function serviceState(row, alarmed) {
  if (alarmed.has(row.service)) return h("span", { class: "tag bad" }, "alert");
  if (!row.last) return h("span", { class: "tag", title: "no window has been counted yet" }, "waiting");
  const mood = level(row.last.error_rate);
  return mood ? h("span", { class: `tag ${mood}` }, "errors") : h("span", { class: "tag good" }, "ok");
}

// The share of all cores of a host. A sample has the number of cores; in a window the value is already divided by it.
function cpuShare(row) {
  return (row?.cpu_percent ?? NaN) / (row?.cpu_cores ?? 1) / 100;
}

function measured(rule, value) {
  if (rule.includes("rate")) return percent(value);
  if (rule.includes("cpu") || rule.includes("percent")) return `${decimal(value)} %`;
  return rule.includes("ms") || rule.includes("latency") ? milliseconds(value) : decimal(value);
}

// Shows in the place of a chart without data what there is to wait for, or to do.
function hint(host, wanted, ...said) {
  host.querySelector(".empty")?.remove();
  if (wanted) host.append(empty(...said));
}
