// Formats numbers, sizes and times for people. Times are UTC.

export const NONE = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

function scaled(value, step, units) {
  let unit = 0;
  while (Math.abs(value) >= step && unit < units.length - 1) { value /= step; unit += 1; }
  const digits = unit === 0 || Math.abs(value) >= 100 ? 0 : 1;
  return [value.toFixed(digits), units[unit]];
}

export const count = (value) => (!known(value) ? NONE : Math.abs(value) < 1e7 ? whole.format(value) : scaled(value, 1000, ["", "k", "M", "G", "T"]).join(" "));
export const decimal = (value) => (!known(value) ? NONE : Math.abs(value) >= 100 ? whole.format(value) : value.toFixed(Math.abs(value) < 9.95 && value !== 0 ? 1 : 0));
export const rate = (value) => (known(value) ? `${decimal(value)}/s` : NONE);
export const bytes = (value) => (known(value) ? scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]).join(" ") : NONE);
export const percent = (share) => (!known(share) ? NONE : `${Number((share * 100).toFixed(share < 0.1 ? 1 : 0))} %`);

export function milliseconds(value) {
  if (!known(value)) return NONE;
  if (Math.abs(value) >= 10000) return `${(value / 1000).toFixed(0)} s`;
  if (Math.abs(value) >= 1000) return `${(value / 1000).toFixed(1)} s`;
  return `${value.toFixed(value !== 0 && Math.abs(value) < 10 ? 1 : 0)} ms`;
}

export function duration(value) {
  if (!known(value)) return NONE;
  const seconds = Math.max(0, Math.round(value / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min${seconds % 60 ? ` ${seconds % 60} s` : ""}`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

// A length of time that somebody has set: days, if it is so many.
export const setDuration = (value) => (value >= 172_800_000 ? `${decimal(value / 86_400_000)} days` : duration(value));

// Date supports only times within 8.64e15 ms of 1970.
const iso = (ms) => (known(ms) && Math.abs(ms) < 8.64e15 ? new Date(ms).toISOString() : null);
export const clock = (ms) => iso(ms)?.slice(11, 16) ?? NONE;
export const seconds = (ms) => iso(ms)?.slice(11, 19) ?? NONE;
export const day = (ms) => (iso(ms) ? new Date(ms).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" }) : NONE);
// The time of day, with the date if it is not today's, and with the year if it is not this year's: event times may be old.
export const when = (ms) => {
  const [date, today] = [ms, Date.now()].map((each) => iso(each)?.slice(0, 10));
  if (!date || date === today) return clock(ms);
  const year = date.slice(0, 4) === today.slice(0, 4) ? "" : ` ${date.slice(0, 4)}`;
  return `${clock(ms)}, ${day(ms)}${year}`;
};
export const moment = (ms) => iso(ms)?.replace("T", " ").slice(0, 19) ?? NONE;
export const precise = (ms) => iso(ms)?.replace("T", " ").replace("Z", "") ?? NONE;
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
