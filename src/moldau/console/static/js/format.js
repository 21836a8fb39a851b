// Numbers, sizes and times as people read them. Everything takes null and gives "–" for it.

export const NOTHING = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const missing = (value) => value === null || value === undefined || Number.isNaN(value);

export function count(value) {
  return missing(value) ? NOTHING : whole.format(value);
}

/** 1234567 → "1.2M". */
export function short(value) {
  if (missing(value)) return NOTHING;
  for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= size) return one.format(value / (size === 1e4 ? 1e3 : size)) + letter;
  }
  return Math.abs(value) < 10 && value % 1 ? one.format(value) : whole.format(value);
}

/** A measured value, which may be small: 0.01234. */
export function measured(value) {
  return missing(value) ? NOTHING : Math.abs(value) < 1000 ? digits.format(value) : short(value);
}

export function bytes(value) {
  if (missing(value)) return NOTHING;
  for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (value >= size) return `${one.format(value / size)} ${unit}`;
  }
  return `${whole.format(value)} B`;
}

export function rate(value) {
  return missing(value) ? NOTHING : `${short(value)}/s`;
}

export function byteRate(value) {
  return missing(value) ? NOTHING : `${bytes(value)}/s`;
}

/** Seconds as the two largest units: "3 h 12 min". */
export function duration(seconds) {
  if (missing(seconds)) return NOTHING;
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds < 1) return seconds === 0 ? "0 s" : "< 1 s";
  if (seconds < 10) return `${one.format(seconds)} s`;
  if (seconds < 60) return `${whole.format(Math.floor(seconds))} s`;
  for (const [size, unit, smaller, name] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (seconds >= size) {
      const rest = Math.floor((seconds % size) / smaller);
      return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${name}` : ""}`;
    }
  }
  return NOTHING;
}

/** The lag in time of an answer; of records that were there before the console it knows only how long it has seen them. */
export function age({ lag_seconds: seconds, lag_seconds_at_least: isLeast = false }) {
  return isLeast && !missing(seconds) ? `at least ${duration(seconds)}` : duration(seconds);
}

export function milliseconds(value) {
  return missing(value) ? NOTHING : value < 1000 ? `${one.format(value)} ms` : duration(value / 1000);
}

/** A moment, in the reader's time zone, with milliseconds if they matter. */
export function moment(ms, { exact = false } = {}) {
  if (missing(ms) || ms < 0) return NOTHING;
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return NOTHING;
  const pad = (value, width = 2) => String(value).padStart(width, "0");
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  const time = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  return `${day} ${time}${exact ? `.${pad(at.getMilliseconds(), 3)}` : ""}`;
}

export function clock(ms) {
  return moment(ms).slice(11);
}

export function ago(ms, now = Date.now()) {
  return missing(ms) ? NOTHING : `${duration(Math.max(0, (now - ms) / 1000))} ago`;
}

/** "once", "2 times". */
export function times(value) {
  return missing(value) ? NOTHING : value === 0 ? "never" : value === 1 ? "once" : `${whole.format(value)} times`;
}

/** "1 topic", "2 topics". */
export function plural(value, noun, many = `${noun}s`) {
  return `${count(value)} ${value === 1 ? noun : many}`;
}

export function shortened(text, length = 24) {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}
