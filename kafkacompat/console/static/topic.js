// The view of one topic: its settings, those that somebody has set first, and the state of its partitions.

import { byId, empty, h, replace, setText, table } from "./dom.js";
import { partitionTable } from "./cluster.js";
import { bytes, count, plural, rate, setDuration } from "./format.js";

const NO_LIMIT = 1e15;

export class TopicView {
  constructor() {
    this.name = null;
    this.view = null;
    this.settings = null;
    this.trouble = null;
    this.asked = 0;
  }

  update(view) {
    this.view = view;
    this.draw();
  }

  // Called with the part of the address after #/topic.
  async show(query) {
    const asked = ++this.asked;
    this.name = query.get("topic") ?? "";
    [this.settings, this.trouble] = [null, null];
    this.draw();
    try {
      const response = await fetch(`/api/topic?${new URLSearchParams({ topic: this.name })}`);
      const answer = await response.json();
      if (!response.ok) throw new Error(answer.error);
      if (asked === this.asked) this.settings = answer.settings;
    } catch (error) {
      if (asked === this.asked) this.trouble = error.message;
    }
    if (asked === this.asked) this.draw();
  }

  draw() {
    if (this.name === null) return;
    const topic = this.view?.cluster?.topics.find((each) => each.topic === this.name);
    setText(byId("topic-name"), this.name);
    this.drawSettings();
    if (!topic) {
      const more = this.view?.cluster?.topics_hidden ?? 0;
      setText(byId("topic-note"), "");
      replace(byId("topic-links"));
      replace(byId("topic-partitions"), empty(!this.view?.cluster ? "Nothing is known yet: the broker has not answered." : more > 0 ? "This topic is not among those that the console shows." : "There is no such topic."));
      return;
    }
    setText(byId("topic-note"), [
      plural(topic.partitions.length, "partition"), `${count(topic.records)} records`, rate(topic.records_per_s), `${bytes(topic.size_bytes)} on disk`, `id ${topic.topic_id}`,
    ].join(" · "));
    replace(byId("topic-links"), h("a", { href: `#/browse?topic=${encodeURIComponent(topic.topic)}${topic.partitions.length > 1 ? "&partition=all" : ""}` }, "Records"));
    replace(byId("topic-partitions"), partitionTable(topic));
  }

  drawSettings() {
    if (this.trouble) { replace(byId("topic-settings"), h("p", { class: "muted" }, `The settings are not known: ${this.trouble}`)); return; }
    if (!this.settings) { replace(byId("topic-settings"), empty("reading …")); return; }
    const given = this.settings.filter((each) => each.source !== "default");
    const rest = this.settings.filter((each) => each.source === "default");
    if (byId("topic-settings").dataset.drawn === String(this.asked)) return;
    byId("topic-settings").dataset.drawn = String(this.asked);
    replace(byId("topic-settings"),
      given.length ? settingTable("Settings that somebody has set", given, true) : empty("Every setting has its default."),
      rest.length ? h("details", { class: "as-table" }, h("summary", {}, `${plural(rest.length, "setting")} with the default`), settingTable("Settings with their default", rest, false)) : null);
  }
}

function settingTable(caption, settings, isGiven) {
  return table(caption, [
    { title: "Setting", cell: (row) => h("span", { title: row.documentation ?? null }, row.name) },
    { title: "Value", class: "mono setting", cell: (row) => (row.is_sensitive ? h("span", { class: "muted" }, "hidden") : [shown(row.value), h("span", { class: "muted" }, inWords(row))]) },
    isGiven && { title: "Set for", class: "nowrap", cell: (row) => row.source },
    isGiven && { title: "Default", class: "mono setting hide-small", cell: (row) => shown(row.default) },
  ].filter(Boolean), settings);
}

const shown = (value) => (value === null ? "–" : value === "" ? "(empty)" : value);

// Milliseconds and bytes as people say them.
function inWords({ name, value }) {
  const number = Number(value);
  if (value === null || !(number >= 1000 && number < NO_LIMIT)) return "";
  return name.endsWith(".ms") ? ` ${setDuration(number)}` : name.endsWith(".bytes") ? ` ${bytes(number)}` : "";
}
