// Charts drawn as SVG: bars stacked over time, lines over time, and small lines without axes.
// A TimeChart stays at its place in the page, redraws when its data or width changes, and follows the pointer or the arrow keys.

import { h, s } from "./dom.js";
import { clock, day, duration, moment, seconds } from "./format.js";

const HEIGHT = 216;
const SPARK_WIDTH = 200;
const TOP = 8;
const BOTTOM = 22;
const RIGHT = 8;
const TICK_GAP = 76;
const MINUTE = 60_000;
const STEPS = [1 / 6, 1 / 3, 1 / 2, 1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080].map((minutes) => minutes * MINUTE);
// With fewer bars than this, room for later bars stays empty.
const FEWEST_BARS = 12;
// Points further apart than this number of windows are not joined: nothing is known in between.
const GAP_WINDOWS = 5;
const MOST_BREAKS = 4;
const BREAK_WIDTH = 20;
const PIECE_WIDTH = 46;

// Smaller values count as 0: steps between such numbers would round to 0, and the loop over the ticks would not end.
const SMALLEST = 1e-12;

export function niceTicks(highest, wanted = 4) {
  if (!(highest > SMALLEST)) return [0, 1];
  const raw = highest / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= raw);
  const ticks = [];
  for (let tick = 0; tick < highest + step * 0.999; tick += step) ticks.push(Number(tick.toPrecision(10)));
  return ticks;
}

export function timeTicks(from, to, most) {
  const step = STEPS.find((each) => (to - from) / each <= most) ?? Math.ceil((to - from) / most / STEPS.at(-1)) * STEPS.at(-1);
  const ticks = [];
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) ticks.push(tick);
  return ticks;
}

// The time from one point to the next. Windows follow each other; other points have no length. Of two points nobody knows whether there
// is a gap between them.
function stepOf(points) {
  const length = points.at(-1).end - points.at(-1).start;
  if (length > 0) return length;
  if (points.length < 3) return Math.max(1, points.at(-1).start - points[0].start);
  const steps = points.slice(1).map((point, number) => point.start - points[number].start).sort((one, other) => one - other);
  return Math.max(1, steps[Math.floor(steps.length / 2)]);
}

// The numbers of the points before which there is a gap.
export function gapsIn(points) {
  const most = GAP_WINDOWS * stepOf(points);
  return new Set([...points.keys()].filter((number) => number > 0 && points[number].start - points[number - 1].end > most));
}

// The pieces of the time axis: {from, to}. A gap of more than half of the time that is covered is cut out, unless there are many.
export function axisPieces(points, gaps, room) {
  const step = stepOf(points);
  const lengthOf = (number) => points[number].start - points[number - 1].end;
  const covered = points.at(-1).end - points[0].start - [...gaps].reduce((sum, number) => sum + lengthOf(number), 0);
  const cut = [...gaps].filter((number) => lengthOf(number) > covered / 2);
  if (cut.length === 0 || cut.length > MOST_BREAKS) {
    const to = Math.max(points.at(-1).end, points[0].start + 1);
    return [{ from: Math.min(points[0].start, to - room * step), to }];
  }
  const starts = [0, ...cut];
  return starts.map((first, number) => {
    const from = points[first].start;
    return { from, to: Math.max(points[(starts[number + 1] ?? points.length) - 1].end, from + GAP_WINDOWS * step) };
  });
}

const timeLabel = (ms) => (ms % (1440 * MINUTE) === 0 ? day(ms) : ms % MINUTE === 0 ? clock(ms) : seconds(ms));

export class TimeChart {
  // options: kind ("bars" or "lines"), label, format(value), height, seconds: show seconds in times
  constructor(host, options) {
    this.host = host;
    this.options = options;
    this.height = options.height ?? HEIGHT;
    this.data = null;
    this.at = null;
    this.legend = h("ul", { class: "legend" });
    this.figure = h("div", { role: "img", tabindex: "0" });
    this.tip = h("div", { class: "tip", hidden: true });
    host.append(this.legend, this.figure, this.tip);
    this.figure.addEventListener("pointermove", (event) => this.point(this.nearest(event)));
    this.figure.addEventListener("pointerleave", () => this.point(null));
    this.figure.addEventListener("blur", () => this.point(null));
    this.figure.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(host);
  }

  // data: {series: [{name, tone}], points: [{start, end, values, open}]}, oldest first
  update(data) {
    this.data = data;
    this.legend.replaceChildren(...(data.series.length > 1 ? data.series.map((each) => h("li", {}, h("span", { class: `swatch ${each.tone}` }), each.name)) : []));
    this.draw();
  }

  draw() {
    const width = Math.floor(this.host.clientWidth);
    const points = this.data?.points ?? [];
    if (width < 60 || points.length === 0) { this.figure.replaceChildren(); this.tip.hidden = true; return; }
    const totals = points.map((point) => (this.options.kind === "bars" ? point.values.reduce((sum, each) => sum + each, 0) : Math.max(0, ...point.values.filter((each) => each !== null))));
    const ticks = niceTicks(Math.max(...totals));
    const left = 14 + 7 * Math.max(...ticks.map((tick) => this.options.format(tick).length));
    this.gaps = gapsIn(points);
    const pieces = this.place(axisPieces(points, this.gaps, this.options.kind === "bars" ? FEWEST_BARS : 0), left, width - RIGHT);
    const y = (value) => TOP + (1 - value / ticks.at(-1)) * (this.height - TOP - BOTTOM);
    const parts = ticks.map((tick) => [
      s("line", { class: tick === 0 ? "base-line" : "grid-line", x1: left, x2: width - RIGHT, y1: Math.round(y(tick)), y2: Math.round(y(tick)) }),
      s("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, this.options.format(tick)),
    ]);
    for (const piece of pieces) {
      const found = timeTicks(piece.from, piece.to, Math.max(1, Math.floor((piece.right - piece.left + (piece === pieces[0] ? left : 0)) / TICK_GAP)));
      for (const tick of found.length ? found : [piece.from]) {
        const at = this.x(tick);
        const anchor = at > width - 24 ? "end" : at < piece.left + 16 ? "start" : "middle";
        parts.push(s("text", { x: at, y: this.height - 5, "text-anchor": anchor }, timeLabel(tick)));
      }
    }
    parts.push(this.breaks(pieces));
    parts.push(this.options.kind === "bars" ? this.bars(points, y) : this.lines(points, y));
    this.marks = s("g", {});
    this.y = y;
    const svg = s("svg", { viewBox: `0 0 ${width} ${this.height}`, height: this.height, "aria-hidden": "true" }, parts.flat(2), this.marks);
    this.figure.replaceChildren(svg);
    this.figure.setAttribute("aria-label", this.summary(points));
    this.point(this.at !== null && this.at < points.length ? this.at : null);
  }

  // Gives each piece of the time axis its place, with room between the pieces, and sets this.x.
  place(pieces, left, right) {
    const least = pieces.length > 1 ? Math.min(PIECE_WIDTH, (right - left) / pieces.length / 2) : 0;
    const room = right - left - (pieces.length - 1) * BREAK_WIDTH - pieces.length * least;
    const total = pieces.reduce((sum, piece) => sum + piece.to - piece.from, 0);
    let at = left;
    const placed = pieces.map((piece) => {
      const end = at + least + (room * (piece.to - piece.from)) / total;
      const one = { ...piece, left: at, right: end };
      at = end + BREAK_WIDTH;
      return one;
    });
    this.x = (ms) => {
      const piece = placed.findLast((each) => ms >= each.from) ?? placed[0];
      return Math.min(piece.right, piece.left + ((ms - piece.from) / (piece.to - piece.from)) * (piece.right - piece.left));
    };
    return placed;
  }

  // Where time was cut out, the grid is interrupted, and each piece names its day.
  breaks(pieces) {
    if (pieces.length < 2) return [];
    const bottom = this.height - BOTTOM;
    return pieces.map((piece, number) => [
      number > 0 && s("rect", { class: "break-band", x: piece.left - BREAK_WIDTH + 2, y: 0, width: BREAK_WIDTH - 4, height: bottom + 6 }),
      number > 0 && s("path", { class: "break", d: [piece.left - BREAK_WIDTH + 2, piece.left - 2].map((x) => `M${x - 3} ${bottom + 5}L${x + 3} ${bottom - 5}`).join("") }),
      s("text", { class: "day", x: number === pieces.length - 1 ? piece.right : piece.left + 2, y: TOP + 4, "text-anchor": number === pieces.length - 1 ? "end" : "start" }, day(piece.from)),
    ]);
  }

  bars(points, y) {
    return points.flatMap((point) => {
      const room = this.x(point.end) - this.x(point.start);
      const gap = room > 4 ? Math.min(2, room * 0.2) : 0;
      let below = 0;
      return point.values.map((value, number) => {
        const [bottom, top] = [y(below), y(below + value)];
        below += value;
        return value > 0 && s("rect", {
          class: `bar ${this.data.series[number].tone}${point.open ? " open" : ""}`,
          x: (this.x(point.start) + gap / 2).toFixed(2), width: Math.max(1, room - gap).toFixed(2),
          y: top.toFixed(2), height: Math.max(0.5, bottom - top).toFixed(2),
        });
      });
    });
  }

  lines(points, y) {
    return this.data.series.map((series, number) => {
      // Runs of points that are joined. A value that is not known and a gap end a run.
      const runs = [];
      let run = null;
      points.forEach((point, place) => {
        const value = point.values[number];
        if (value === null || this.gaps.has(place)) run = null;
        if (value === null) return;
        if (run === null) { run = []; runs.push(run); }
        run.push({ x: this.middle(point).toFixed(1), y: y(value).toFixed(1), open: point.open });
      });
      if (runs.length === 0) return null;
      const whole = runs.length === 1 && runs[0].length > 1 && runs[0].length === points.length && this.data.series.length <= 2;
      // The newest window is incomplete, so its low value is no drop. It is drawn pale, after the end of the line.
      const last = runs.at(-1);
      const newest = last.length > 1 && last.at(-1).open ? `M${last.at(-2).x} ${last.at(-2).y}L${last.at(-1).x} ${last.at(-1).y}` : null;
      if (newest) last.pop();
      const joined = runs.filter((each) => each.length > 1);
      const path = joined.map((each) => `M${each.map((one) => `${one.x} ${one.y}`).join("L")}`).join("");
      return [
        newest && s("path", { class: `newest open ${series.tone}`, d: newest }),
        whole && path && s("path", { class: `area ${series.tone}`, d: `${path}L${last.at(-1).x} ${y(0)}L${last[0].x} ${y(0)}Z` }),
        path && s("path", { class: `line ${series.tone}`, d: path }),
        ...runs.filter((each) => each.length === 1 && !(each === last && newest)).map(([one]) => s("circle", { class: `dot ${series.tone}${one.open ? " open" : ""}`, cx: one.x, cy: one.y, r: 3.5 })),
      ];
    });
  }

  middle(point) { return (this.x(point.start) + this.x(point.end)) / 2; }

  nearest(event) {
    const points = this.data?.points ?? [];
    if (points.length === 0 || !this.x) return null;
    const at = event.clientX - this.figure.getBoundingClientRect().left;
    let best = 0;
    points.forEach((point, number) => { if (Math.abs(this.middle(point) - at) < Math.abs(this.middle(points[best]) - at)) best = number; });
    return best;
  }

  key(event) {
    const last = (this.data?.points.length ?? 0) - 1;
    const to = { ArrowLeft: (this.at ?? last + 1) - 1, ArrowRight: (this.at ?? -1) + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.point(null);
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.point(Math.max(0, Math.min(last, to)));
  }

  point(number) {
    this.at = number;
    this.tip.hidden = number === null;
    this.marks?.replaceChildren();
    if (number === null || !this.marks) return;
    const point = this.data.points[number];
    const at = this.middle(point);
    this.marks.append(s("line", { class: "cursor", x1: at, x2: at, y1: TOP, y2: this.height - BOTTOM }));
    if (this.options.kind === "lines") {
      point.values.forEach((value, index) => value !== null && this.marks.append(s("circle", { class: `dot ${this.data.series[index].tone}`, cx: at, cy: this.y(value), r: 4 })));
    }
    const rows = this.data.series.map((series, index) => [series, point.values[index]]).filter(([, value]) => value !== null);
    if (this.options.kind === "bars") rows.reverse();
    this.tip.replaceChildren(
      h("b", {}, this.options.seconds ? moment(point.start) : `${day(point.start)} ${clock(point.start)}–${clock(point.end)}${point.open ? ", so far" : ""}`),
      ...rows.map(([series, value]) => h("div", {}, h("span", {}, h("span", { class: `swatch ${series.tone}` }), series.name), h("span", {}, this.options.format(value)))),
    );
    const room = this.host.clientWidth;
    const beside = at + 14 + this.tip.offsetWidth > room ? at - 14 - this.tip.offsetWidth : at + 14;
    this.tip.style.left = `${Math.max(0, beside)}px`;
    this.tip.style.top = `${this.figure.offsetTop + TOP}px`;
  }

  summary(points) {
    const last = points.at(-1);
    const said = this.data.series.map((series, number) => `${series.name} ${last.values[number] === null ? "unknown" : this.options.format(last.values[number])}`);
    const gaps = [...this.gaps].map((number) => ` Nothing for ${duration(points[number].start - points[number - 1].end)} before ${moment(points[number].start)}.`);
    return `${this.options.label}, ${moment(points[0].start)} to ${moment(last.end)} UTC.${gaps.slice(-MOST_BREAKS).join("")} Latest: ${said.join(", ")}. Arrow keys read single values.`;
  }
}

// A chart's data as a table inside its <details>, created only while that is open.
export function chartTable(details, chart, caption, tableOf) {
  const fill = () => {
    if (!details.open || !chart.data) return;
    details.querySelector(".scroll")?.remove();
    const columns = [{ title: "Window (UTC)", class: "nowrap", cell: (point) => moment(point.start) }];
    chart.data.series.forEach((series, number) => columns.push({ title: series.name, number: true, cell: (point) => (point.values[number] === null ? "–" : chart.options.format(point.values[number])) }));
    details.append(tableOf(caption, columns, [...chart.data.points].reverse()));
  };
  details.addEventListener("toggle", fill);
  return fill;
}

// A small line chart of the values. stretched: as wide as its container.
export function spark(values, tone = "", { width = SPARK_WIDTH, height = 28, stretched = true } = {}) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return null;
  const [low, high] = [Math.min(0, ...known), Math.max(...known)];
  const x = (number) => (number / (values.length - 1)) * width;
  const y = (value) => height - 1 - ((value - low) / (high - low || 1)) * (height - 3);
  let [path, pen] = ["", "M"];
  values.forEach((value, number) => {
    if (value === null) { pen = "M"; return; }
    path += `${pen}${x(number).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  });
  const area = known.length === values.length && s("path", { class: "area", d: `${path}L${width} ${height}L0 ${height}Z` });
  return s("svg", { class: `spark ${tone}`, width: stretched ? null : width, height, preserveAspectRatio: stretched ? "none" : null, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, area, s("path", { d: path }));
}
