// The view of one group: its lag over time, and what the cluster's view unfolds.

import { byId, empty, h, replace, setText, table } from "./dom.js";
import { TimeChart, chartTable } from "./charts.js";
import { groupDetails } from "./cluster.js";
import { count, plural } from "./format.js";

const INTERVAL_MS = 10_000;

export class GroupView {
  constructor() {
    this.name = null;
    this.view = null;
    this.points = null;
    this.asked = 0;
    this.chart = new TimeChart(byId("lag-chart"), { kind: "lines", label: "Lag of the group in records", format: count, seconds: true });
    this.fill = chartTable(byId("lag-table"), this.chart, "Lag of the group", table);
  }

  update(view) {
    this.view = view;
    this.draw();
  }

  // Called with the part of the address after #/group.
  show(query) {
    this.asked += 1;
    this.name = query.get("group") ?? "";
    this.points = null;
    this.draw();
    this.read(this.asked);
  }

  leave() {
    this.asked += 1;
    this.name = null;
  }

  // Read the history again and again until another view is shown.
  async read(asked) {
    while (asked === this.asked) {
      if (!document.hidden) {
        try {
          const response = await fetch(`/api/lag?${new URLSearchParams({ group: this.name })}`, { signal: AbortSignal.timeout(INTERVAL_MS) });
          const answer = await response.json();
          if (asked === this.asked && response.ok) { this.points = answer.points; this.drawLag(); }
        } catch (error) {
          // The banner tells that the console does not answer.
          if (!(error instanceof TypeError) && error.name !== "TimeoutError" && error.name !== "AbortError") throw error;
        }
      }
      await new Promise((done) => { setTimeout(done, INTERVAL_MS); });
    }
  }

  draw() {
    if (this.name === null) return;
    const cluster = this.view?.cluster;
    const group = cluster?.groups.find((each) => each.group === this.name);
    setText(byId("group-name"), this.name);
    setText(byId("group-note"), group ? [group.kind, group.state, plural(group.members, "member"), `lag ${count(group.lag)}`].join(" · ") : "");
    replace(byId("group-details"), group ? h("div", { class: "details" }, groupDetails(group, cluster.share_numbers).flat()) : empty(cluster ? "There is no such group, or it is not among those that the console shows." : "Nothing is known yet: the broker has not answered."));
    this.drawLag();
  }

  drawLag() {
    const points = this.points ?? [];
    const host = byId("lag-chart");
    host.querySelector(".empty")?.remove();
    this.chart.update({
      series: [{ name: "lag", tone: "tone-2" }],
      points: points.map((each) => ({ start: each.at_ms, end: each.at_ms, values: [each.lag], open: false })),
    });
    if (points.length === 0) host.append(empty(this.points === null ? "reading …" : "The lag of this group is not known so far."));
    this.fill();
  }
}
