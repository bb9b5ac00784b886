// What is drawn, computed: Pareto fronts, thinning, ticks, numbers as text. No page is needed here.
"use strict";

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** The y of a polyline at x, null outside of it. xs is sorted. */
function interpolate(xs, ys, x) {
  const last = xs.length - 1;
  if (last < 0 || x < xs[0] || x > xs[last]) return null;
  let right = xs.findIndex((each) => each >= x);
  if (xs[right] === x || right === 0) return ys[right];
  const share = (x - xs[right - 1]) / (xs[right] - xs[right - 1]);
  return ys[right - 1] + share * (ys[right] - ys[right - 1]);
}

/** Values with the fluctuation between neighbours taken out: an exponential mean whose weight of the past is `share`. */
function smoothed(values, share) {
  let sum = 0;
  let weight = 0;
  return values.map((value) => {
    if (!isNumber(value)) return value;
    [sum, weight] = [share * sum + (1 - share) * value, share * weight + (1 - share)];
    return sum / weight;
  });
}

/** The points {x, y} that no other beats in both, from left to right: y is better low, x as `better` says. */
function paretoFront(points, better) {
  const sign = better === "high" ? -1 : 1;
  const front = [];
  for (const point of [...points].sort((a, b) => sign * (a.x - b.x) || a.y - b.y)) {
    if (!front.length || point.y < front[front.length - 1].y) front.push(point);
  }
  return front.sort((a, b) => a.x - b.x);
}

/** At most `limit` of the items, evenly spread, the first and the last among them. */
function evenly(items, limit) {
  if (items.length <= limit) return items;
  return Array.from({ length: limit }, (_, place) => items[Math.round((place * (items.length - 1)) / (limit - 1))]);
}

/** Items by what `key` says of them, in order of appearance. */
function grouped(items, key) {
  const groups = new Map();
  for (const item of items) {
    const name = key(item);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(item);
  }
  return groups;
}

/** Round values between two numbers, about `count` of them; on a logarithmic axis 1, 2 and 5 times powers of ten. */
function ticks(low, high, count, logarithmic) {
  if (logarithmic && low > 0 && high / low > 8) {
    const powers = Array.from({ length: 40 }, (_, place) => 10 ** (place - 15));
    const all = powers.flatMap((power) => [power, 2 * power, 5 * power]).filter((tick) => tick >= low && tick <= high);
    return all.length <= 2 * count
      ? all
      : all.filter((tick) => Number.isInteger(Math.round(1e6 * Math.log10(tick)) / 1e6));
  }
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const number = Math.floor(high / step + 1e-9) - first + 1;
  // one value alone doesn't say how large a distance is
  if (number < 2 && high > low) return ticks(low, high, 2 * Math.max(1, count), false);
  return Array.from({ length: number }, (_, place) => Number(((first + place) * step).toPrecision(12)));
}

/** Round values between two numbers of seconds: whole hours, minutes or seconds, and halves and quarters of the first
    two; on a logarithmic axis as above. A part of a second is none of them, because its text would be that of a whole. */
function timeTicks(low, high, count, logarithmic = false) {
  const size = logarithmic ? 1 : ([3600, 60].find((seconds) => high - low > 2 * seconds) ?? 1);
  const all = ticks(low / size, high / size, count, logarithmic).map((tick) => Math.round(tick * size));
  return [...new Set(all)];
}

// column -> [title, unit, places after the point]; a column without an entry is a setting and shows as it is
const MEASURES = {
  loss: ["Validation loss", "nats per predicted token", 4],
  perplexity: ["Perplexity", "", 1],
  unigram_loss: ["Unigram loss", "nats per predicted token", 4],
  bits_per_byte: ["Bits per byte", "bits", 4],
  tokens_per_second: ["Speed", "tokens/s", 0],
  peak_memory_bytes: ["Peak memory", "MB", 0],
  parameters: ["Parameters", "", 0],
  flops_per_token: ["Training cost", "MFLOPs per token", 1],
  steps: ["Steps", "", 0],
  tokens: ["Tokens", "", 0],
  wall_seconds: ["Time", "h:mm:ss", 0],
};
const SCALES = { peak_memory_bytes: 1e-6, flops_per_token: 1e-6 };

const FORMATS = [0, 1, 2, 3, 4].map(
  (digits) => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }),
);

/** A count with commas. */
const counted = (number) => FORMATS[0].format(number);

const title = (column) => (column in MEASURES ? MEASURES[column][0] : column);
const unit = (column) => (column in MEASURES ? MEASURES[column][1] : "");
const labelled = (column) => (unit(column) ? `${title(column)} (${unit(column)})` : title(column));

/** A value of a column as a person reads it, in the unit that its title says. */
function shown(value, column) {
  if (value === null || value === undefined) return "–";
  if (!isNumber(value)) return String(value);
  if (column === "wall_seconds") return duration(value);
  if (!(column in MEASURES)) return String(value);
  const digits = MEASURES[column][2];
  return FORMATS[digits].format(value * (SCALES[column] ?? 1));
}

/** Seconds as h:mm:ss. */
function duration(seconds) {
  const whole = Math.round(seconds);
  const two = (number) => String(number).padStart(2, "0");
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}

/** A number on an axis, short: 4.5M, 12k, 0.003. */
function short(value) {
  const size = Math.abs(value);
  for (const [factor, letter] of [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ]) {
    if (size >= factor) return withMinus(`${Number((value / factor).toPrecision(6))}${letter}`);
  }
  return withMinus(String(Number(value.toPrecision(6))));
}

const withMinus = (text) => text.replace(/^-/, "\u2212");

/** A number on an axis in full, with commas: 1,146.5. */
const whole = (value) => new Intl.NumberFormat("en", { maximumSignificantDigits: 6 }).format(value);

const LEAST = 8; // letters that remain of a part of a name

/** A long name, shortened: first the middles of its longest parts, so that short ones such as "heads 24" remain. */
function cut(name, most = 44) {
  const parts = name.split(", ");
  const shortened = (limit) => parts.map((part) => withoutMiddle(part, limit)).join(", ");
  let limit = Math.max(...parts.map((part) => part.length));
  while (limit > LEAST && shortened(limit).length > most) limit -= 1;
  return withoutMiddle(shortened(limit), most);
}

/** A long text without its middle: variants differ at the start, sizes and seeds at the end. */
function withoutMiddle(text, most) {
  if (text.length <= most) return text;
  const start = Math.ceil((most - 1) / 2);
  return `${text.slice(0, start)}\u2026${text.slice(text.length - (most - 1 - start))}`;
}

/** A difference with its sign, to a ten-thousandth. */
const signed = (value) => `${value < 0 ? "\u2212" : "+"}${FORMATS[4].format(Math.abs(value))}`;

/** Rows by a column, `-column` the largest first; rows without a value last. */
function sortedBy(rows, order) {
  const column = order.replace(/^-/, "");
  const sign = order.startsWith("-") ? -1 : 1;
  const compare = (a, b) =>
    isNumber(a) && isNumber(b) ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  const known = rows.filter((row) => row[column] !== null && row[column] !== undefined);
  const unknown = rows.filter((row) => row[column] === null || row[column] === undefined);
  return [...known.sort((a, b) => sign * compare(a[column], b[column])), ...unknown];
}
