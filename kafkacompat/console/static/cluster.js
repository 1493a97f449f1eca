// The cluster's view: nodes, topics with partitions, rates and sizes, groups with lag.

import { byId, empty, h, replace, setText, table } from "./dom.js";
import { TimeChart } from "./charts.js";
import { bytes, count, decimal, duration, moment, plural, rate } from "./format.js";

export class ClusterView {
  constructor() {
    this.open = new Set();
    this.view = null;
    this.rates = new TimeChart(byId("rate-chart"), { kind: "lines", label: "Records written per second over all topics", format: decimal, seconds: true });
    for (const id of ["internal", "topic-order"]) byId(id).addEventListener("change", () => this.draw());
    byId("topic-search").addEventListener("input", () => this.draw());
  }

  update(view) {
    this.view = view;
    this.draw();
  }

  draw() {
    const cluster = this.view?.cluster;
    if (!cluster) {
      for (const id of ["cluster-tiles", "trouble", "mirrors"]) replace(byId(id));
      byId("mirrors-card").hidden = true;
      for (const id of ["nodes", "topics", "groups"]) replace(byId(id), empty("Nothing is known yet: the broker has not answered.", "kafkacompat start"));
      return;
    }
    this.drawTiles(cluster);
    this.drawNodes(cluster);
    this.drawTrouble(cluster.troubled);
    this.drawTopics(cluster);
    this.drawMirrors(cluster.mirrors);
    this.drawGroups(cluster);
    const history = cluster.rate_history;
    this.rates.update({
      series: [{ name: "records/s", tone: "tone-6" }],
      points: history.map((each) => ({ start: each.at_ms, end: each.at_ms, values: [each.records_per_s], open: false })),
    });
  }

  drawTiles({ nodes, topics, groups, rate_history: history }) {
    const partitions = topics.filter((topic) => !topic.internal).flatMap((topic) => topic.partitions);
    const behind = topics.reduce((sum, topic) => sum + topic.under_replicated, 0);
    const offline = topics.reduce((sum, topic) => sum + topic.offline, 0);
    const alive = nodes.filter((node) => node.alive).length;
    const sizes = nodes.map((node) => node.size_bytes).filter((size) => size !== null);
    const lags = groups.map((group) => group.lag).filter((lag) => lag !== null);
    const figures = [
      ["Nodes", `${alive} of ${nodes.length}`, "alive", alive < nodes.length ? "warning" : ""],
      ["Topics", count(topics.filter((topic) => !topic.internal).length), `${count(partitions.length)} partitions`, ""],
      ["Under-replicated", count(behind), offline ? `${offline} without a leader` : "partitions", offline ? "bad" : behind ? "warning" : ""],
      ["Written", decimal(history.at(-1)?.records_per_s), "records/s", ""],
      ["On disk", sizes.length ? bytes(sizes.reduce((sum, size) => sum + size, 0)) : "–", "over all replicas", ""],
      ["Lag", lags.length ? count(lags.reduce((sum, lag) => sum + lag, 0)) : "–", `${plural(groups.length, "group")}`, ""],
    ];
    replace(byId("cluster-tiles"), figures.map(([title, figure, note, mood]) => h("div", { class: `tile ${mood}` }, h("h3", {}, title), h("div", { class: "figure" }, figure), h("div", { class: "note" }, note))));
  }

  drawNodes({ nodes, cluster_id: id, sizes_error: error }) {
    setText(byId("nodes-note"), `cluster ${id}${error ? ` · sizes: ${error}` : ""}`);
    replace(byId("nodes"), table("Nodes of the cluster", [
      { title: "Node", cell: (node) => [h("b", {}, node.node), node.controller && [" ", h("span", { class: "tag accent" }, "controller")]] },
      { title: "Address", class: "mono nowrap hide-small", cell: (node) => node.address ?? "–" },
      { title: "State", cell: (node) => (node.alive ? (node.behind ? h("span", { class: "tag warning" }, `${node.behind} behind`) : h("span", { class: "tag good" }, "alive")) : h("span", { class: "tag bad" }, "away")) },
      { title: "Leads", number: true, cell: (node) => count(node.leads) },
      { title: "Replicas", number: true, cell: (node) => count(node.replicas) },
      { title: "On disk", number: true, cell: (node) => bytes(node.size_bytes) },
    ], nodes));
  }

  drawTrouble(rows) {
    byId("trouble-card").hidden = rows.length === 0;
    replace(byId("trouble"), table("Partitions without a leader or with replicas not in sync", [
      { title: "Partition", cell: (row) => `${row.topic}-${row.partition}` },
      { title: "State", cell: (row) => (row.leader === null ? h("span", { class: "tag bad" }, "no leader") : h("span", { class: "tag warning" }, "under-replicated")) },
      { title: "Leader", cell: (row) => row.leader ?? "–" },
      { title: "Replicas", cell: (row) => row.replicas.join(", ") },
      { title: "In sync", cell: (row) => row.in_sync.join(", ") || "none" },
    ], rows));
  }

  drawTopics({ topics, topics_hidden: more }) {
    const part = byId("topic-search").value.trim().toLowerCase();
    const listed = topics.filter((topic) => !topic.internal || byId("internal").checked);
    const shown = inOrder(listed.filter((topic) => topic.topic.toLowerCase().includes(part)), byId("topic-order").value);
    const unlisted = more > 0 ? h("p", { class: "muted" }, `${more} more topics are not shown.`) : null;
    if (listed.length > 0 && shown.length === 0) { replace(byId("topics"), empty(`No topic here has ${part} in its name.`), unlisted); return; }
    if (shown.length === 0) { replace(byId("topics"), empty("There is no topic yet.", "kafkacompat topics create NAME", "kafkacompat pipeline demo")); return; }
    replace(byId("topics"), table("Topics", [
      { title: "Topic", class: "nowrap", cell: (topic) => this.fold(`topic ${topic.topic}`, topic.topic) },
      { title: "Partitions", number: true, class: "hide-small", cell: (topic) => count(topic.partitions.length) },
      { title: "State", class: "hide-small", cell: (topic) => topicState(topic) },
      { title: "Records", number: true, class: "hide-small", cell: (topic) => h("span", { title: "offsets between start and end; compaction leaves fewer records" }, count(topic.records)) },
      { title: "Records/s", number: true, cell: (topic) => rate(topic.records_per_s) },
      { title: "On disk", number: true, cell: (topic) => bytes(topic.size_bytes) },
      { title: "", number: true, class: "hide-small", cell: linksOf },
    ], shown, (topic) => this.open.has(`topic ${topic.topic}`) && h("div", { class: "nested" }, h("p", { class: "only-small" }, linksOf(topic)), partitionTable(topic))), unlisted);
  }

  drawMirrors(rows) {
    byId("mirrors-card").hidden = rows.length === 0;
    replace(byId("mirrors"), table("Topics that follow another cluster", [
      { title: "Topic", cell: (row) => h("a", { href: `#/topic?topic=${encodeURIComponent(row.topic)}` }, row.topic) },
      { title: "Mirror", cell: (row) => row.mirror },
      { title: "State", cell: (row) => h("span", { class: `tag ${{ mirroring: "good", paused: "warning" }[row.state] ?? ""}` }, row.state) },
      { title: "Source", class: "mono clip hide-small", cell: (row) => row.source },
      { title: "Partitions", number: true, class: "hide-small", cell: (row) => count(row.partitions) },
    ], rows));
  }

  drawGroups({ groups, groups_hidden: more, share_groups_error: error, share_numbers: numbers }) {
    setText(byId("groups-note"), error ? `share and streams groups: ${error}` : "");
    const unshown = more > 0 ? h("p", { class: "muted" }, `${more} more groups are not shown.`) : null;
    if (groups.length === 0) { replace(byId("groups"), unshown ?? empty("There is no group that has committed anything, and no share or streams group.", "kafkacompat consume TOPIC --group NAME")); return; }
    replace(byId("groups"), table("Groups with their lag", [
      { title: "Group", class: "nowrap", cell: (group) => this.fold(`group ${group.group}`, group.group) },
      { title: "Type", class: "hide-small", cell: (group) => group.kind },
      { title: "State", cell: (group) => h("span", { class: `tag ${group.state === "stable" ? "good" : ""}` }, group.state) },
      { title: "Members", number: true, cell: (group) => count(group.members) },
      { title: "Lag", number: true, cell: (group) => (group.lag === null ? "–" : h("b", {}, count(group.lag))) },
      { title: "Topics", class: "clip", cell: (group) => group.topics.join(", ") || "–" },
    ], groups, (group) => this.open.has(`group ${group.group}`) && [h("p", { class: "history" }, h("a", { href: `#/group?group=${encodeURIComponent(group.group)}` }, "Lag over time")), ...groupDetails(group, numbers)]), unshown);
  }

  fold(key, text) {
    return h("button", {
      type: "button", class: "fold", "data-key": key, "aria-expanded": String(this.open.has(key)),
      onclick: () => { if (!this.open.delete(key)) this.open.add(key); this.draw(); },
    }, text);
  }
}

// By a figure the largest comes first. What is not known comes last.
function inOrder(topics, order) {
  if (order === "topic") return topics;
  return [...topics].sort((one, other) => (other[order] ?? -Infinity) - (one[order] ?? -Infinity));
}

function topicState(topic) {
  if (topic.offline) return h("span", { class: "tag bad" }, `${topic.offline} without a leader`);
  if (topic.under_replicated) return h("span", { class: "tag warning" }, `${topic.under_replicated} under-replicated`);
  return h("span", { class: "tag good" }, "in sync");
}

function linksOf(topic) {
  return [
    h("a", { href: `#/topic?topic=${encodeURIComponent(topic.topic)}`, "aria-label": `settings of ${topic.topic}` }, "settings"), " · ",
    h("a", { href: `#/browse?topic=${encodeURIComponent(topic.topic)}${topic.partitions.length > 1 ? "&partition=all" : ""}`, "aria-label": `records of ${topic.topic}` }, "records"),
  ];
}

export function partitionTable(topic) {
  return table(`Partitions of ${topic.topic}`, [
    { title: "Partition", cell: (row) => h("a", { href: `#/browse?topic=${encodeURIComponent(topic.topic)}&partition=${row.partition}` }, row.partition) },
    { title: "State", cell: (row) => (row.leader === null ? h("span", { class: "tag bad" }, "no leader") : row.under_replicated ? h("span", { class: "tag warning" }, "under-replicated") : h("span", { class: "tag good" }, "in sync")) },
    { title: "Leader", cell: (row) => row.leader ?? "none" },
    { title: "Replicas", cell: (row) => row.replicas.join(", ") },
    { title: "In sync", class: "hide-small", cell: (row) => row.in_sync.join(", ") || "none" },
    { title: "Offsets", number: true, cell: (row) => (row.latest === null ? "–" : `${count(row.earliest)} to ${count(row.latest)}`) },
    { title: "On disk", number: true, class: "hide-small", cell: (row) => bytes(row.size_bytes) },
  ], topic.partitions);
}

export function groupDetails(group, numbers) {
  const unshown = group.members - group.member_list.length;
  return [
    group.kind === "streams" && h("p", { class: "muted epochs" }, `group epoch ${group.group_epoch} · target assignment epoch ${group.assignment_epoch}`),
    ["consumer", "share"].includes(group.kind) && h("p", { class: "muted epochs" }, group.group_epoch === null
      ? `assignor ${group.assignor ?? "–"} · the coordinator does not tell the epochs`
      : `group epoch ${group.group_epoch} · target assignment epoch ${group.assignment_epoch} · assignor ${group.assignor ?? "–"}`),
    group.member_list.length > 0 && memberTable(group),
    unshown > 0 && h("p", { class: "muted" }, `${plural(unshown, "more member")} not shown.`),
    group.kind === "streams" ? h("p", { class: "muted" }, `Committed offsets and lag: kafkacompat groups describe ${group.group}`)
      : group.kind === "share" ? standTable(group, numbers.asked) : lagTable(group),
    group.kind === "share" && !numbers.asked && h("p", { class: "muted numbers" },
      "How many records are in flight, since when, and how many were delivered and archived, the nodes tell in their metrics only: kafkacompat console --metrics http://HOST:PORT"),
    group.kind === "share" && numbers.error && h("p", { class: "muted numbers" }, `Not known of all partitions: ${numbers.error}`),
  ];
}

function memberTable(group) {
  const consumer = group.kind === "consumer";
  const streams = group.kind === "streams";
  const modern = consumer || group.kind === "share";
  return h("div", { class: "nested members" }, table(`Members of ${group.group}`, [
    { title: "Member", cell: (row) => h("span", { title: row.member }, row.instance === null ? row.client : `${row.client} (${row.instance})`) },
    { title: "Host", class: "hide-small", cell: (row) => row.host },
    consumer && { title: "Type", class: "hide-small", cell: (row) => row.kind ?? "–" },
    (modern || streams) && { title: "Epoch", number: true, cell: (row) => row.epoch ?? "–" },
    modern && { title: "Subscribed", cell: (row) => [...(row.subscribed ?? []), ...(row.regex === null ? [] : [`/${row.regex}/`])].join(", ") || "–" },
    { title: streams ? "Active tasks" : "Assigned", cell: (row) => placesText(row.assigned) },
    consumer && { title: "Target", cell: (row) => (row.target === null ? "–" : placesText(row.target)) },
  ].filter(Boolean), group.member_list));
}

function placesText({ count: all, topics }) {
  const unshown = all - topics.reduce((sum, { partitions }) => sum + partitions.length, 0);
  return topics.map(({ topic, partitions }) => `${topic}: ${partitions.join(", ")}`).join("; ") + (unshown > 0 ? ` and ${unshown} more` : "") || "none";
}

function lagTable(group) {
  return h("div", { class: "nested" }, table(`Lag of ${group.group}`, [
    { title: "Partition", cell: (row) => `${row.topic}-${row.partition}` },
    { title: "Committed", number: true, cell: (row) => count(row.committed) },
    { title: "End", number: true, cell: (row) => count(row.latest) },
    { title: "Lag", number: true, cell: (row) => count(row.lag) },
  ], group.partitions));
}

function standTable(group, withNumbers) {
  // A phone has no room for all columns.
  const less = withNumbers ? "hide-small" : "";
  return h("div", { class: "nested" }, table(`Queue of ${group.group}`, [
    { title: "Partition", cell: (row) => `${row.topic}-${row.partition}` },
    { title: "Start", number: true, cell: (row) => count(row.start) },
    { title: "End", number: true, class: less, cell: (row) => count(row.latest) },
    { title: "Lag", number: true, cell: (row) => h("span", { title: "records that are neither accepted nor archived, in flight or not" }, count(row.lag)) },
    { title: "Done ahead", number: true, class: less, cell: (row) => h("span", { title: "records after the start that are accepted or archived already" }, count(row.done)) },
    withNumbers && { title: "In flight", number: true, cell: (row) => h("span", { title: "records that members hold now" }, count(row.held)) },
    withNumbers && { title: "Oldest lock", number: true, cell: (row) => h("span", { title: "since it was taken or renewed" }, duration(row.oldest_lock_ms)) },
    withNumbers && { title: "Delivered", number: true, class: less, cell: (row) => h("span", { title: "records given to members since the leader loaded the state, each time counted" }, count(row.delivered)) },
    withNumbers && { title: "Archived", number: true, cell: (row) => h("span", { title: "records rejected or delivered too often since the leader loaded the state" }, count(row.archived)) },
  ].filter(Boolean), group.partitions));
}

export const lastSeen = (view) => (view.broker.answered_ms === null ? "" : ` What is shown was read until ${moment(view.broker.answered_ms)}.`);
