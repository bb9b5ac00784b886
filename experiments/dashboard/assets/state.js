// What a reader has chosen. The address of the page keeps it, so a reload or a link shows it again.
"use strict";

const ROWS = 100; // of the table, at first and for each press on its button

const DEFAULTS = {
  comparison: 0, baseline: null, rest: false, by: "variant", lines: "means", x: "tokens", y: "validation loss", logx: false,
  logy: false, smooth: 0, zoom: {}, hidden: [], ranges: {}, filter: "", sort: "loss", columns: null, pinned: [], open: [],
  rows: ROWS, measure: "entropy", attention: null, chosen: null, run: null, theme: null, paused: false, unfolded: {},
  search: null, objective: null, against: null,
}; // prettier-ignore
const LISTS = ["columns"]; // of those without a default, what is no text

/** The choices in the text of an address. What cannot be a value is left out, and so is a text that was cut short. */
function chosenIn(text) {
  try {
    const known = Object.entries(JSON.parse(decodeURIComponent(text) || "{}")).filter(([key, value]) => key in DEFAULTS && canBe(key, value));
    return { ...DEFAULTS, ...Object.fromEntries(known) };
  } catch {
    return { ...DEFAULTS };
  }
}

function canBe(key, value) {
  const like = DEFAULTS[key] ?? (LISTS.includes(key) ? [] : "");
  if (value === null) return DEFAULTS[key] === null;
  return typeof value === typeof like && Array.isArray(value) === Array.isArray(like);
}
