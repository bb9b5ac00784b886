// The page: one state, kept in the address, from which every panel is drawn.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const rows = data.rows.map((values, number) => ({
  ...Object.fromEntries(data.columns.map((column, place) => [column, values[place]])),
  number,
}));
if (data.task) ofTask();
const GROUPS = 20; // the most that the legend names
const HANDS = 5000; // milliseconds after a touch during which the page doesn't load itself again
const varying = data.settings.filter((column) => new Set(rows.map((row) => String(row[column]))).size > 1);
const telling = varying.filter((column, place) => {
  const kinds = (columns) => new Set(rows.map((row) => columns.map((each) => row[each]).join("\0"))).size;
  return kinds(varying.slice(0, place + 1)) > kinds(varying.slice(0, place));
});
const apart = telling.filter((column) => column !== "seed");
for (const row of rows) row.configuration = named(row);

const state = {
  // losses of different objectives are not comparable: then each has a colour of its own
  by: data.columns.includes("objective") ? "objective" : "variant",
  lines: "seeds",
  x: "tokens",
  y: "validation loss",
  hidden: [],
  ranges: {},
  filter: "",
  sort: "loss",
  measure: "entropy",
  run: null,
  theme: null,
  paused: false,
};
try {
  Object.assign(state, JSON.parse(decodeURIComponent(location.hash.slice(1)) || "{}"));
} catch {
  // an address that was cut short shows the page as it is by default
}

const byId = (id) => document.getElementById(id);
const change = (news) => {
  Object.assign(state, news);
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(state))}`);
  draw();
};
const select = (run) => change({ run: run === state.run ? null : run });
const curves = new Chart(byId("curves"), select);
const speed = new Chart(byId("speed"), select);
const memory = new Chart(byId("memory"), select);
const heads = new Chart(byId("heads"), select);
const measures = new HeatMap(byId("measures"));
const plane = new Chart(byId("plane"), select);
const projections = new HeatMap(byId("projections"));
const parallel = new Parallel(
  byId("parallel"),
  (column, range) => change({ ranges: { ...state.ranges, [column]: range } }),
  select,
);
const table = new Table(byId("table"), (sort) => change({ sort }), select);

/** Name of a row's settings as far as they tell runs apart: "talking_heads, heads 24". */
function named(row) {
  const known = apart.filter((column) => row[column] !== null);
  return (
    known.map((column) => (column === "variant" ? row.variant : `${column} ${row[column]}`)).join(", ") || row.variant
  );
}

/** The groups by the chosen key: value -> number; the largest when there are too many, the others together are -1. */
function groupsOf() {
  const found = [...grouped(rows, (row) => String(row[state.by]))];
  const kept = [...found].sort((a, b) => b[1].length - a[1].length).slice(0, GROUPS);
  const names = sortedBy(
    kept.map(([name, members]) => ({ name, value: members[0][state.by] })),
    "value",
  ).map(({ name }) => name);
  return {
    numbers: new Map(names.map((name, number) => [name, number])),
    sizes: new Map(found.map(([name, members]) => [name, members.length])),
  };
}

function draw() {
  const groups = groupsOf();
  const groupName = (row) => (groups.numbers.has(String(row[state.by])) ? String(row[state.by]) : "others");
  const group = (row) => groups.numbers.get(groupName(row)) ?? -1;
  const test = parsedFilter(state.filter, data.columns);
  const inText = test ? rows.filter(test) : rows;
  const shownRows = inText.filter((row) => !state.hidden.includes(groupName(row)));
  const axes = [
    ...telling.slice(0, 8).map((column) => ({ column, ordinal: true })),
    ...[...data.scores, "loss", "tokens_per_second", "peak_memory_bytes"].map((column) => ({ column })),
  ];
  drawParallel({ axes, all: rows, group, ranges: state.ranges, selected: state.run }, shownRows);
  const visible = shownRows.filter((row) => parallel.keeps(row, state.ranges));
  drawLegend(groups, groupName);
  drawCurves(visible, group, groupName);
  drawScatter(speed, visible, group, "tokens_per_second", "high");
  drawScatter(memory, visible, group, "peak_memory_bytes", "low");
  drawHeads(visible, group, groupName);
  drawTable(visible, group);
  drawHeadsOfRun(visible);
  byId("filter").setAttribute("aria-invalid", String(!test));
  const unknown = test ? "" : "; the filter names no column";
  byId("count").textContent = `${counted(visible.length)} of ${counted(rows.length)} runs${unknown}`;
  byId("clear").hidden = !(state.filter || state.hidden.length || Object.values(state.ranges).some(Boolean));
  document.documentElement.style.colorScheme = state.theme ?? "light dark";
}

/** A task has no perplexity, and its loss is not of tokens. */
function ofTask() {
  MEASURES.loss[1] = MEASURES.unigram_loss[1] = "per target";
  for (const name of Object.keys(CURVES)) {
    CURVES[name][1] = CURVES[name][1].replace("nats per predicted token", "per target");
    if (CURVES[name][2]) delete CURVES[name];
  }
}

/** A menu that sets the state of the same name: value -> what it is called. */
function choices(key, options) {
  const menu = byId(key);
  menu.replaceChildren(...Object.entries(options).map(([value, name]) => html("option", { value }, name)));
  if (!(state[key] in options)) state[key] = Object.keys(options)[0];
  menu.value = state[key];
  menu.addEventListener("change", () => {
    // another axis has no use for the range of the one before, another key for the groups hidden
    if (key === "x" || key === "y") curves.zoomed = null;
    change({ [key]: menu.value, ...(key === "by" ? { hidden: [] } : {}) });
  });
}

const isDark = () => (state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);

function start() {
  const keys = [...new Set(["variant", ...varying, "configuration"])];
  choices(
    "by",
    Object.fromEntries(keys.map((key) => [key, key === "configuration" ? "all settings but the seed" : key])),
  );
  choices("lines", { seeds: "mean over seeds", group: "mean of the group", runs: "every run" });
  choices("y", Object.fromEntries(Object.keys(CURVES).map((name) => [name, name])));
  choices("x", Object.fromEntries(Object.entries(AXES).map(([key, [name]]) => [key, name])));
  choices("measure", HEAD_MEASURES);
  byId("filter").value = state.filter;
  byId("filter").addEventListener("input", () => change({ filter: byId("filter").value }));
  byId("clear").addEventListener("click", clear);
  byId("theme").addEventListener("click", () => change({ theme: isDark() ? "light" : "dark" }));
  document.addEventListener("keydown", (event) => {
    const typing = ["INPUT", "SELECT"].includes(document.activeElement?.tagName);
    if (event.key === "Escape") clear();
    else if (!typing && event.key === "/") byId("filter").focus();
    else if (!typing && event.key === "t") byId("theme").click();
    else return;
    event.preventDefault();
  });
  byId("notes").textContent = data.notes.join(" ");
  byId("written").textContent = data.written;
  drawPaperTables();
  watch();
  draw();
}

function clear() {
  byId("filter").value = "";
  change({ filter: "", hidden: [], ranges: {} });
}

/** While runs go on the file is written anew: load it again, but not under someone's hands. */
function watch() {
  const button = byId("pause");
  button.hidden = !data.refresh;
  if (!data.refresh) return;
  const say = () => (button.textContent = state.paused ? "Paused: go on" : "Live: pause");
  say();
  button.addEventListener("click", () => {
    change({ paused: !state.paused });
    say();
  });
  let touched = 0;
  for (const kind of ["pointerdown", "keydown"]) document.addEventListener(kind, () => (touched = Date.now()), true);
  setInterval(() => {
    const busy = Date.now() - touched < HANDS || document.querySelector(".tip:not([hidden])");
    if (!state.paused && !busy) location.reload();
  }, data.refresh * 1000);
}

start();
