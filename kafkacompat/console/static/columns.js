// Columns of JSON in the table of records: which are chosen, and which paths the records on the page have.

const MOST_OFFERED = 16;
const MOST_DEPTH = 4;
const MOST_NAMES = 50;
const PLAIN = /^[^\s.[\]"|:?'\\=,]+$/;
// A name with one of these cannot be written in a path.
const UNWRITABLE = /["?\\]/;

const PATH = /^(?:"[^"?\\]+"|[^\s.[\]"|:?'\\=,]+)(?:\.(?:"[^"?\\]+"|[^\s.[\]"|:?'\\=,]+)|\[[0-9]{1,4}\])*$/;
const MOST_COLUMNS = 8;

// Why a column cannot be added to those that are chosen. Empty if it can.
export function problemOf(path, chosen) {
  if (!PATH.test(path)) return 'Write a path like a.b[0] or a."b c".';
  return chosen.length >= MOST_COLUMNS && !chosen.includes(path) ? `There may be at most ${MOST_COLUMNS} columns.` : "";
}

export const chosenColumns = (query) => (query?.get("columns")?.match(/(?:[^,"]|"[^"]*")+/g) ?? []).map((path) => path.trim()).filter(Boolean);
export const joined = (paths) => paths.join(",");

// The paths of JSON objects to their texts, numbers and lists, those in the most records first.
export function pathsIn(records) {
  const found = new Map();
  for (const { value } of records) {
    if (value.kind !== "json") continue;
    try {
      gather(JSON.parse(value.text), "", 1, found);
    } catch (error) {
      // What the console shows as JSON may be more than the browser reads.
      if (!(error instanceof SyntaxError || error instanceof RangeError)) throw error;
    }
  }
  return [...found].sort(([, one], [, other]) => other - one).slice(0, MOST_OFFERED).map(([path]) => path);
}

function gather(content, above, depth, found) {
  if (content === null || typeof content !== "object" || Array.isArray(content)) return;
  for (const [name, inner] of Object.entries(content).slice(0, MOST_NAMES)) {
    if (name === "" || name.length > 60 || UNWRITABLE.test(name)) continue;
    const step = PLAIN.test(name) ? name : `"${name}"`;
    const path = above === "" ? step : `${above}.${step}`;
    const nested = inner !== null && typeof inner === "object" && !Array.isArray(inner);
    if (nested && depth < MOST_DEPTH) gather(inner, path, depth + 1, found);
    else found.set(path, (found.get(path) ?? 0) + 1);
  }
}
