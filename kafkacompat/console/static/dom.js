// Creates elements. Text is inserted as text only: the content of a record is never interpreted as markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  for (const child of children.flat(2)) {
    if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

export const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// A table: columns are {title, number, cell(row), class}, extra(row) gives the content of a row below, or null.
export function table(caption, columns, rows, extra = null) {
  const kind = (column) => [column.number ? "number" : "", column.class ?? ""].join(" ").trim() || null;
  const body = [];
  for (const row of rows) {
    body.push(h("tr", {}, columns.map((column) => h("td", { class: kind(column) }, column.cell(row)))));
    const below = extra?.(row);
    if (below) body.push(h("tr", {}, h("td", { colspan: columns.length }, below)));
  }
  const head = h("tr", {}, columns.map((column) => h("th", { scope: "col", class: kind(column) }, column.title)));
  return h("div", { class: "scroll" }, h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, head), h("tbody", {}, body)));
}

// Whether the user has selected text in this element, to copy it.
function marked(host) {
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed && selection.rangeCount > 0 && selection.getRangeAt(0).intersectsNode(host);
}

// Replaces the content of an element and restores the focus to the element with the same data-key. Equal content is not replaced.
// Content with a text selection is not replaced either, until the selection ends: new content arrives every second.
export function replace(host, ...content) {
  const parts = content.flat().filter((part) => part !== null && part !== undefined);
  const same = parts.length === host.childNodes.length && parts.every((part, number) => part instanceof Node && !part.querySelector?.("button") && part.isEqualNode(host.childNodes[number]));
  if (same || marked(host)) return;
  const key = host.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const scrolled = [...host.querySelectorAll(".scroll, .list")].map((part) => [part.scrollLeft, part.scrollTop]);
  host.replaceChildren(...parts);
  [...host.querySelectorAll(".scroll, .list")].forEach((part, number) => {
    if (scrolled[number]) [part.scrollLeft, part.scrollTop] = scrolled[number];
  });
  if (key !== undefined) host.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}

export function empty(text, ...commands) {
  return h("div", { class: "empty" }, text, commands.map((command) => [h("br"), h("code", {}, command)]));
}

export function track(share, tone = null) {
  const inside = h("div", {});
  inside.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h("div", { class: `track ${tone ?? ""}`, "aria-hidden": "true" }, inside);
}
