// The records' view: records by offset or time, page by page, or those that match a search. The address bar has the current query.

import { byId, empty, h, replace, setText, table } from "./dom.js";
import { chosenColumns, joined, pathsIn, problemOf } from "./columns.js";
import { bytes, count, plural, precise } from "./format.js";

const WHOLE_VALUE_BYTES = 1_000_000;
const PREVIEW_CHARACTERS = 160;
const ALL = "all";
// What is looked for, by the name of its parameter.
const SOUGHT = { key: "sought-key", value: "sought-value", from_ms: "sought-from", to_ms: "sought-to" };
const MOST_FOUND = 1_000;

export class BrowseView {
  constructor() {
    this.open = new Set();
    this.page = null;
    this.topics = [];
    this.asked = 0;
    byId("browse-form").addEventListener("submit", (event) => { event.preventDefault(); this.submit(); });
    byId("browse-topic").addEventListener("change", () => this.fillPartitions());
    byId("browse-start").addEventListener("change", () => { if (byId("browse-start").value === "search") this.choose(ALL); this.showAt(); });
    byId("browse-oldest").addEventListener("click", () => this.turn({ offset: "0" }));
    byId("browse-older").addEventListener("click", () => this.turn(this.page.partition === ALL ? { ends: this.page.older } : { before: String(this.page.previous_before) }));
    byId("browse-newer").addEventListener("click", () => this.turn({ offset: String(this.page.next_offset) }));
    byId("browse-newest").addEventListener("click", () => this.turn({}));
    byId("search-go").addEventListener("click", () => (this.going ? this.stop() : this.goOn()));
    byId("columns").addEventListener("submit", (event) => { event.preventDefault(); this.toggle(byId("columns-add").value.trim()); });
    this.going = false;
    this.buttons();
  }

  updateCluster(view) {
    const topics = view.cluster?.topics ?? [];
    const shape = JSON.stringify(topics.map((topic) => [topic.topic, topic.partitions.length]));
    if (shape === this.shape) return;
    this.shape = shape;
    this.topics = [...topics].sort((one, other) => Number(one.internal) - Number(other.internal));
    const chosen = byId("browse-topic").value || this.query?.get("topic");
    replace(byId("browse-topic"), this.topics.map((topic) => h("option", { value: topic.topic }, topic.topic)));
    if (chosen && this.topics.some((topic) => topic.topic === chosen)) byId("browse-topic").value = chosen;
    this.fillPartitions(this.query?.get("partition"));
  }

  // Called with the part of the address after #/browse.
  show(query) {
    this.query = query;
    const topic = query.get("topic");
    this.stop();
    if (!topic) {
      setText(byId("browse-range"), "");
      replace(byId("browse-records"), empty("Choose a topic and a partition, and where to start."));
      this.page = null;
      this.buttons();
      return;
    }
    if (this.topics.some((each) => each.topic === topic)) byId("browse-topic").value = topic;
    this.fillPartitions(query.get("partition") ?? "0");
    if (query.has("limit")) this.fillLimit(query.get("limit"));
    this.fillStart(query);
    byId("browse-uncommitted").checked = query.get("uncommitted") === "true";
    this.load(query);
  }

  fillPartitions(chosen = byId("browse-partition").value) {
    const topic = this.topics.find((each) => each.topic === byId("browse-topic").value);
    const numbers = (topic?.partitions ?? []).map((each) => String(each.partition));
    const choices = numbers.length > 1 ? [...numbers, ALL] : numbers;
    replace(byId("browse-partition"), choices.map((each) => h("option", { value: each }, each)));
    this.choose(chosen);
  }

  choose(partition) {
    const choices = byId("browse-partition");
    if ([...choices.options].some((option) => option.value === partition)) choices.value = partition;
  }

  // An address may have a limit that is not among the choices.
  fillLimit(limit) {
    const choices = byId("browse-limit");
    if ([...choices.options].every((option) => option.value !== limit)) choices.append(h("option", {}, limit));
    choices.value = limit;
  }

  // Fill in the start of the current page. Paging back does not change it.
  fillStart(query) {
    if (query.has("before")) return;
    const time = query.has("time_ms");
    byId("browse-start").value = isSearch(query) ? "search" : time ? "time" : query.has("offset") ? "offset" : "latest";
    for (const [name, id] of Object.entries(SOUGHT)) byId(id).value = name.endsWith("_ms") && query.has(name) ? precise(Number(query.get(name))) : query.get(name) ?? "";
    byId("browse-at").value = time ? precise(Number(query.get("time_ms"))) : query.get("offset") ?? "";
    this.showAt();
  }

  showAt() {
    const start = byId("browse-start").value;
    byId("browse-at-label").hidden = start === "latest" || start === "search";
    byId("browse-sought").hidden = start !== "search";
    setText(byId("browse-at-name"), start === "time" ? "Time, UTC" : "Offset");
    byId("browse-at").placeholder = start === "time" ? "2026-11-21 10:15:00" : "0";
  }

  submit() {
    const start = byId("browse-start").value;
    const at = byId("browse-at").value.trim();
    if (start === "search") { this.search(); return; }
    if (start !== "latest" && byId("browse-partition").value === ALL) { this.fail("of all partitions only the latest records are shown"); return; }
    if (start === "latest") { this.go({}); return; }
    if (start === "offset") { this.go({ offset: at || "0" }); return; }
    const time = this.time(at);
    if (time === null) return;
    this.go({ time_ms: String(time) });
  }

  // Milliseconds since 1970. null, and a message, for what is no time.
  time(text) {
    const time = Date.parse(`${text.replace(" ", "T")}${/Z$/.test(text) ? "" : /T|\s/.test(text) ? "Z" : ""}`);
    if (!Number.isNaN(time) && time >= 0) return String(time);
    this.fail(`${text || "nothing"} is not a time; write it like 2026-11-21 10:15:00`);
    return null;
  }

  search() {
    const sought = {};
    for (const [name, id] of Object.entries(SOUGHT)) {
      const text = byId(id).value;
      if (name.endsWith("_ms") ? text.trim() === "" : text === "") continue;
      sought[name] = name.endsWith("_ms") ? this.time(text.trim()) : text;
      if (sought[name] === null) return;
    }
    if (Object.keys(sought).length === 0) { this.fail("there is nothing to look for: write a key, a text or a time"); return; }
    this.go(sought);
  }

  // Show a column, or no longer. The place in the topic stays.
  toggle(path) {
    const columns = chosenColumns(this.query);
    const problem = problemOf(path, columns);
    setText(byId("columns-problem"), columns.includes(path) ? "" : problem);
    if (problem && !columns.includes(path)) return;
    const chosen = columns.includes(path) ? columns.filter((each) => each !== path) : [...columns, path];
    const query = new URLSearchParams(this.query);
    if (chosen.length > 0) query.set("columns", joined(chosen));
    else query.delete("columns");
    byId("columns-add").value = "";
    location.hash = `#/browse?${query}`;
  }

  // Go to another page of the current query. The form may have changes that were not submitted.
  turn(where) {
    this.go({ ...where, topic: this.page.topic, partition: String(this.page.partition) });
  }

  go(where) {
    const topic = where.topic ?? byId("browse-topic").value;
    if (!topic) { this.fail("there is no topic to show"); return; }
    const query = new URLSearchParams({ topic, partition: byId("browse-partition").value || "0", limit: byId("browse-limit").value, ...where });
    if (byId("browse-uncommitted").checked) query.set("uncommitted", "true");
    if (this.query?.get("topic") === topic && this.query.has("columns")) query.set("columns", this.query.get("columns"));
    const next = `#/browse?${query}`;
    if (location.hash === next) this.show(query);
    else location.hash = next;
  }

  async load(query) {
    const asked = ++this.asked;
    const sought = isSearch(query);
    const partition = query.get("partition") ?? (sought ? ALL : "0");
    setText(byId("browse-title"), `${query.get("topic")}, ${partition === ALL ? "all partitions" : `partition ${partition}`}`);
    setText(byId("browse-range"), sought ? "searching …" : "reading …");
    let answer;
    try {
      answer = await ask(`/api/${sought ? "search" : "records"}?${query}`);
    } catch (error) {
      if (asked === this.asked) this.fail(error.message);
      return;
    }
    if (asked !== this.asked) return;
    // The cells are those of the columns that were asked for, whatever is chosen until the next page comes.
    this.page = { ...answer, columns: chosenColumns(query) };
    this.paths = pathsIn(answer.records);
    this.open.clear();
    this.draw();
  }

  // Search on from where the last request ended, until something is found, everything is looked at, or the user stops it.
  async goOn() {
    const { page, asked } = this;
    this.going = true;
    // A request that was stopped may still be answered. The search then goes on from there.
    if (this.searched === page) return;
    this.searched = page;
    const before = page.records.length;
    while (this.going && page.older !== null && page.records.length === before && !document.hidden) {
      this.draw();
      const query = new URLSearchParams(this.query);
      query.set("ends", page.older);
      let more;
      try {
        more = await ask(`/api/search?${query}`);
      } catch (error) {
        page.trouble = error.message;
        break;
      }
      if (asked !== this.asked) break;
      for (const name of Object.keys(page.looked)) page.looked[name] += more.looked[name];
      page.records.push(...more.records);
      [page.older, page.left, page.back_to_ms, page.stopped, page.trouble] = [more.older, more.left, more.back_to_ms, more.stopped, null];
    }
    this.searched = null;
    if (asked === this.asked) this.stop();
  }

  stop() {
    this.going = false;
    if (this.page?.looked) this.draw();
  }

  fail(text) {
    this.page = null;
    this.buttons();
    setText(byId("browse-range"), "");
    replace(byId("browse-records"), h("p", { class: "banner", role: "alert" }, text));
  }

  buttons() {
    const sought = Boolean(this.page?.looked);
    byId("browse-pager").hidden = sought;
    const full = sought && this.page.records.length >= MOST_FOUND;
    byId("search-more").hidden = !sought || this.page.older === null || full;
    setText(byId("search-go"), this.going ? "Stop" : "Go on");
    this.drawColumns();
    if (sought) return;
    const all = this.page?.partition === ALL;
    byId("browse-older").disabled = !this.page || (all ? this.page.older : this.page.previous_before) === null;
    byId("browse-oldest").disabled = all || byId("browse-older").disabled;
    byId("browse-newer").disabled = !this.page || all || this.page.next_offset === null;
    byId("browse-newest").disabled = !this.page;
  }

  draw() {
    const { records, earliest, latest, topic, partition } = this.page;
    this.buttons();
    if (this.page.looked) { this.drawFound(); return; }
    const all = partition === ALL;
    const shown = records.length ? `offsets ${count(records[0].offset)} to ${count(records.at(-1).offset)}` : "no records here";
    setText(byId("browse-range"), all ? `${plural(records.length, "record")} of ${plural(this.page.partitions, "partition")}, newest first` : `${shown}; the partition holds ${count(earliest)} to ${count(latest)}`);
    if (records.length === 0) {
      replace(byId("browse-records"), empty(all ? "There are no records here." : earliest === latest ? "This partition holds no records." : "There are no records from here on. Older ones are before it."));
      return;
    }
    replace(byId("browse-records"), this.recordTable(all));
  }

  // The columns that are shown, and paths in the JSON of this page, to choose from.
  drawColumns() {
    const chosen = chosenColumns(this.query);
    const offered = [...chosen, ...(this.page ? this.paths : []).filter((path) => !chosen.includes(path))];
    byId("columns").hidden = !this.page || offered.length === 0;
    replace(byId("columns-chosen"), offered.map((path) => h("button", {
      type: "button", class: "chip", "data-key": `column ${path}`, "aria-pressed": String(chosen.includes(path)), onclick: () => this.toggle(path),
    }, path)));
  }

  drawFound() {
    const { records, looked, left, back_to_ms: back, older, trouble, partitions, partition } = this.page;
    const whole = older === null;
    const cut = looked.cut > 0 ? `; of ${plural(looked.cut, "longer value")} only the first ${count(1_000_000)} bytes` : "";
    setText(byId("browse-range"), [
      `${plural(records.length, "record")} found${this.going ? ", searching …" : ""}`,
      `looked at ${plural(looked.records, "record")} (${bytes(looked.bytes)})${partition === ALL ? ` of ${plural(partitions, "partition")}` : ""}${cut}`,
      whole ? "nothing is left to look at" : `${back === null ? "" : `back to ${precise(back).slice(0, 19)}, `}${plural(left, "offset")} left`,
    ].join(" · "));
    const said = trouble && h("p", { class: "banner", role: "alert" }, `The search has not gone on: ${trouble}`);
    const full = records.length >= MOST_FOUND && !whole && h("p", { class: "muted" }, `${count(MOST_FOUND)} records are shown. Look for less to see others.`);
    replace(byId("browse-records"), said || null, records.length ? this.recordTable(true) : empty(whole ? "No record matches." : "No record matches so far."), full || null);
  }

  recordTable(all) {
    const { records, topic, partition, columns } = this.page;
    return table(`Records of ${topic}, ${partition === ALL ? "all partitions" : `partition ${partition}`}`, [
      { title: "Offset", class: "nowrap", cell: (row) => this.fold(row) },
      all && { title: "Partition", class: "nowrap partition", cell: (row) => row.partition },
      { title: "Time (UTC)", class: "nowrap time", cell: (row) => h("span", { title: row.timestamp_type ?? "" }, precise(row.timestamp_ms)) },
      { title: "Key", class: "clip mono key", cell: (row) => short(row.key) },
      ...(columns.length > 0
        ? columns.map((path, number) => ({ title: path, class: "mono column", cell: (row) => h("span", { "data-column": path, title: row.cells[number] ?? null }, row.cells[number] ?? "–") }))
        : [{ title: "Value", class: "clip mono value", cell: (row) => short(row.value) }]),
      { title: "Size", number: true, class: "hide-small", cell: (row) => (row.value.kind === "null" ? "null" : bytes(row.value.size_bytes)) },
    ].filter(Boolean), records, (row) => this.open.has(placeOf(row)) && this.detail(row));
  }

  fold(row) {
    return h("button", {
      type: "button", class: "fold", "data-key": placeOf(row), "aria-expanded": String(this.open.has(placeOf(row))), "aria-label": `record ${placeOf(row)}`,
      onclick: () => { if (!this.open.delete(placeOf(row))) this.open.add(placeOf(row)); this.draw(); },
    }, row.offset);
  }

  detail(row) {
    const part = (title, { kind, text, raw, writer, problem, size_bytes: size, truncated }) => [
      h("h4", {}, `${title} · ${kind === "null" ? "null" : `${writer ?? kind}, ${bytes(size)}`}${truncated ? ", only its beginning" : ""}`),
      problem === undefined ? null : h("p", { class: "muted" }, `Not decoded by a schema: ${problem}`),
      kind === "null" ? null : h("pre", {}, text || "(empty)"),
      raw === undefined || raw === text ? null : h("details", {}, h("summary", {}, `${title} as it is written`), h("pre", {}, raw)),
    ];
    return h("div", { class: "record" },
      part("Key", row.key), part("Value", row.value),
      row.trouble && h("p", { class: "banner", role: "alert" }, `No more of the value: ${row.trouble}`),
      row.value.truncated && h("button", { type: "button", "data-key": `whole ${placeOf(row)}`, onclick: () => this.whole(row) }, "Show more of the value"),
      row.headers.length > 0 && table("Headers", [
        { title: "Header", cell: (each) => each.name },
        { title: "Value", class: "mono", cell: (each) => (each.value.kind === "null" ? "null" : each.value.text) },
      ], row.headers),
      row.headers_hidden > 0 && h("p", { class: "muted" }, `${row.headers_hidden} more headers`),
      row.headers_unreadable && h("p", { class: "muted" }, "The headers cannot be shown: the name of one is no UTF-8 text."));
  }

  async whole(row) {
    const { topic, partition } = { ...this.page, partition: row.partition ?? this.page.partition };
    const query = new URLSearchParams({ topic, partition, offset: row.offset, limit: 1, value_bytes: WHOLE_VALUE_BYTES, uncommitted: byId("browse-uncommitted").checked });
    try {
      const answer = await ask(`/api/records?${query}`);
      if (answer.records[0]?.offset !== row.offset) throw new Error("the record is gone");
      [row.value, row.trouble] = [answer.records[0].value, null];
    } catch (error) {
      row.trouble = error.message;
    }
    if (this.page?.records.includes(row)) this.draw();
  }
}

const isSearch = (query) => Object.keys(SOUGHT).some((name) => query.has(name));

async function ask(path) {
  const response = await fetch(path);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

// Offsets of several partitions may be equal.
const placeOf = (row) => (row.partition === undefined ? String(row.offset) : `${row.partition}-${row.offset}`);

function short({ kind, text }) {
  if (kind === "null") return h("span", { class: "muted" }, "null");
  // Truncate before joining lines: with a long text that is mostly blanks, joining would take minutes.
  const line = kind === "json" ? text.slice(0, PREVIEW_CHARACTERS * 16).replace(/\s*\n\s*/g, " ") : kind === "hex" ? text.split("\n")[0] : text;
  return line.slice(0, PREVIEW_CHARACTERS);
}
