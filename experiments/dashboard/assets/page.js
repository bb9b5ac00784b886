// The page: one state, kept in the address, from which every panel is drawn.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const entries = (names, values) => Object.fromEntries(names.map((name, place) => [name, values[place]]));
// why runs are not compared: status -> words
const LEFT = {
  unfinished: "not finished",
  interrupted: "not finished",
  nan: "diverged",
  oom: "out of memory",
  changed: "edited afterwards",
};
const runs = data.runs.map((values, number) => ({ ...entries(data.run_columns, values), number }));
const configurations = data.configurations.map((each, number) => {
  const row = {
    ...entries(data.settings, each.values), ...entries(data.measures, each.means), number, name: each.name, short: each.name,
    comparison: each.comparison, runs: each.runs.map((run) => runs[run]), ended: each.ended.map((run) => runs[run]),
    errors: entries(data.measures, each.errors), halves: each.halves,
  }; // prettier-ignore
  for (const run of row.runs) run.of = row;
  row.names = row.runs.map((run) => run.run);
  row.seeds = seedsOf(row);
  row.seedKey = row.ended.map((run) => run.seed).sort().join();
  return row;
});
/** A difference of losses with its unit, and a title with it in brackets: squared errors have none. */
const lossText = (difference) => (data.unit ? `${difference} ${data.unit}` : difference);
const lossTitle = (title) => (data.unit ? `${title} (${data.unit})` : title);
if (data.task) ofTask();
const columns = ["name", ...data.settings, ...data.measures];
const GROUPS = 20; // the most that the legend names
const HANDS = 5000; // milliseconds after a touch during which the page doesn't load itself again

const state = chosenIn(location.hash.slice(1));
if (!data.comparisons[state.comparison]) state.comparison = 0;

const comparison = () => data.comparisons[state.comparison];
function remember() {
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(state))}`);
}
function change(news) {
  Object.assign(state, news);
  remember();
  draw();
}
/** Choose a configuration, or one run of it; choosing it again takes the choice back. */
const select = (name, run = null) =>
  change({
    ...(name === state.chosen && run === state.run ? { chosen: null, run: null } : { chosen: name, run }),
    ...unzoomed("plane"),
  });
/** The zooms without those of charts which are about to show something else. */
const unzoomed = (...ids) => ({ zoom: { ...state.zoom, ...Object.fromEntries(ids.map((id) => [id, undefined])) } });
const zooming = (id) => (range) => {
  state.zoom = { ...state.zoom, [id]: range ?? undefined };
  remember();
};
const forest = new Forest(byId("forest"), select);
const losses = new Forest(byId("losses"), select);
const [curves, speed, memory] = ["curves", "speed", "memory"].map((id) => new Chart(byId(id), select, zooming(id)));
const facetCharts = new Facets(byId("heads"), (figure) => new Chart(figure, select, zooming(figure.id)));
const measures = new HeatMap(byId("measures"));
const plane = new Chart(byId("plane"), () => {}, zooming("plane"));
const projections = new HeatMap(byId("projections"));
const parallel = new Parallel(
  byId("parallel"),
  (column, range) => change({ ranges: { ...state.ranges, [column]: range } }),
  select,
);
const table = new Table(byId("table"), change, select);

function reasonLeft(run) {
  return LEFT[run.status] ?? run.status;
}

/** How many seeds have ended, and what became of the others. */
function seedsOf(row) {
  const left = row.runs.filter((run) => !row.ended.includes(run));
  const kinds = [...grouped(left, reasonLeft)].map(([reason, of]) => `${of.length} ${reason}`);
  return [row.ended.length, ...kinds].join(", ");
}

/** The groups by the chosen key. `numbers`: name -> number, of those with most compared configurations if there are too
    many. `sizes`: name -> how many of its configurations are compared; the remaining groups together are "others". */
function groupsOf() {
  const found = [...grouped(configurations, (row) => String(row[state.by]))];
  const comparedOf = (members) => members.filter((row) => row.compared).length;
  const kept = [...found].sort((a, b) => comparedOf(b[1]) - comparedOf(a[1]) || b[1].length - a[1].length).slice(0, GROUPS);
  const values = kept.map(([name, members]) => ({ name, value: members[0][state.by] }));
  const names = new Set(kept.map(([name]) => name));
  const remaining = found.filter(([name]) => !names.has(name)).flatMap(([, members]) => members);
  const all = remaining.length ? [...kept, ["others", remaining]] : kept;
  return {
    numbers: new Map(sortedBy(values, "value").map(({ name }, number) => [name, number])),
    sizes: new Map(all.map(([name, members]) => [name, comparedOf(members)])),
  };
}

function draw() {
  for (const row of configurations) {
    const isOfThese = row.comparison === state.comparison;
    row.compared = isOfThese && row.ended.length > 0;
    row.name = isOfThese ? row.short : `${row.short} (${data.comparisons[row.comparison].says})`;
  }
  const groups = groupsOf();
  const groupName = (row) => (groups.numbers.has(String(row[state.by])) ? String(row[state.by]) : "others");
  const group = (row) => groups.numbers.get(groupName(row)) ?? -1;
  const baseline = drawBaselines();
  // means over different seeds differ also by the seeds
  for (const row of configurations) row.unlike = row.compared && row.seedKey !== baseline?.seedKey;
  const all = configurations.filter((row) => row.compared);
  // where nothing can be compared, what there is is shown
  const rest = state.rest || !all.length;
  const { test, faults } = parsedFilter(state.filter, columns, configurations, data.shared, rest ? configurations : all);
  const kept = configurations.filter((row) => test(row) && !state.hidden.includes(groupName(row)));
  const axes = [
    ...data.telling.slice(0, 8).map((column) => ({ column, ordinal: true })),
    ...[...data.scores, "loss", "tokens_per_second", "peak_memory_bytes"].map((column) => ({ column })),
  ];
  drawParallel(
    { axes, all, group, ranges: state.ranges, selected: state.chosen },
    kept.filter((row) => row.compared),
  );
  const visible = kept.filter((row) => !row.compared || parallel.keeps(row, state.ranges));
  const shownRows = visible.filter((row) => row.compared);
  const others = { rows: [], runs: [] };
  if (rest) {
    others.rows = visible.filter((row) => !row.compared && row.ended.length);
    others.runs = visible.flatMap((row) => row.runs.filter((run) => !row.ended.includes(run)));
  }
  drawLegend(groups, rest);
  drawAnswer(shownRows, baseline);
  drawForest(shownRows, baseline, group);
  drawCurves(shownRows, others, group, baseline);
  drawScatter(speed, shownRows, others, group, "tokens_per_second", "high");
  drawScatter(memory, shownRows, others, group, "peak_memory_bytes", "low");
  drawHeads(shownRows, group);
  drawTable(rest ? visible : shownRows, rest ? [] : all, group, baseline);
  drawSearches();
  drawHeadsOfRun(visible);
  drawCounts(shownRows, all, faults);
  document.documentElement.style.colorScheme = state.theme ?? "light dark";
}

/** The menu of baselines; the configuration that is the baseline now. */
function drawBaselines() {
  const known = comparison().baselines.map((number) => configurations[number]);
  const baseline = known.find((row) => row.name === state.baseline) ?? known[0];
  const menu = byId("baseline");
  menu.replaceChildren(...known.map((row) => html("option", { value: row.name }, cut(row.name))));
  if (baseline) menu.value = baseline.name;
  return baseline;
}

/** What is compared, what is left out of it and why, and what is wrong with the filter. */
function drawCounts(shownRows, all, faults) {
  const compared = all.flatMap((row) => row.ended).length;
  const unfinished = configurations.flatMap((row) => row.runs.filter((run) => !row.ended.includes(run)));
  const others = runs.length - compared - unfinished.length;
  const left = [
    ...[...grouped(unfinished, reasonLeft)].map(([kind, of]) => `${counted(of.length)} ${kind}`),
    ...(others ? [`${counted(others)} of other conditions`] : []),
  ];
  const part = shownRows.length < all.length ? `${counted(shownRows.length)} of ` : "";
  const inSight = shownRows.flatMap((row) => row.ended).length;
  byId("count").textContent =
    `${part}${counts(all.length, "configuration")}, ${counted(inSight)} of ${counts(runs.length, "run")}`;
  byId("left").textContent = left.length ? `Not compared: ${left.join(", ")}` : "";
  byId("rest").parentElement.hidden = !left.length;
  byId("fault").textContent = faults.join("; ");
  byId("filter").setAttribute("aria-invalid", String(faults.length > 0));
  byId("clear").hidden = !(state.filter || state.hidden.length || Object.values(state.ranges).some(Boolean));
}

/** A task has no perplexity, and its loss is not of tokens. */
function ofTask() {
  MEASURES.loss[1] = MEASURES.unigram_loss[1] = "per target";
  for (const [name, quantity] of Object.entries(QUANTITIES)) {
    quantity[2] = quantity[2].replace("nats per predicted token", "per target").replace(" (nats)", lossTitle(""));
    if (quantity[3]) delete QUANTITIES[name];
  }
}

/** What else was logged beside losses. */
function logged() {
  for (const of of Object.values(data.curves.means))
    for (const kind of ["training", "validation"])
      for (const name of Object.keys(of[kind]))
        if (!["step", "tokens", "seconds", "loss", "half"].includes(name)) {
          const called = name.replaceAll("_", " ").replace(" bytes", " (bytes)");
          QUANTITIES[kind === "training" ? called : `validation ${called}`] ??= [
            kind,
            name,
            called[0].toUpperCase() + called.slice(1),
          ];
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
    const zoom =
      key === "comparison"
        ? { zoom: {}, ranges: {} }
        : key === "x" || key === "y"
          ? unzoomed("curves")
          : {};
    change({
      [key]: key === "comparison" ? Number(menu.value) : menu.value,
      ...zoom,
      ...(key === "by" ? { hidden: [] } : {}),
    });
  });
}

/** A box that sets the state of the same name. */
function switches(key) {
  byId(key).checked = state[key];
  byId(key).addEventListener("change", () =>
    change({ [key]: byId(key).checked, zoom: key === "rest" ? state.zoom : {} }),
  );
}

/** A part that can be folded: once somebody has done so, the address says whether it is open. */
function foldable(element, name) {
  let isOpen = (element.open = state.unfolded[name] ?? element.open);
  element.addEventListener("toggle", () => {
    // the browser also tells of parts that are open from the beginning
    if (element.open === isOpen) return;
    isOpen = element.open;
    state.unfolded = { ...state.unfolded, [name]: isOpen };
    remember();
  });
  return element;
}

const isDark = () => (state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);

function start() {
  logged();
  const keys = [...new Set(["variant", ...data.telling, ...data.settings, "name"])].filter(
    (key) => key === "name" || data.settings.includes(key),
  );
  choices("by", Object.fromEntries(keys.map((key) => [key, key === "name" ? "all settings but the seed" : key])));
  choices("lines", { means: "mean over seeds", runs: "every run" });
  choices("y", Object.fromEntries(Object.keys(QUANTITIES).map((name) => [name, name])));
  choices("x", Object.fromEntries(Object.entries(AXES).map(([key, [name]]) => [key, name])));
  choices("comparison", Object.fromEntries(data.comparisons.map(({ says }, place) => [place, cut(says || "all", 60)])));
  byId("comparison").parentElement.hidden = data.comparisons.length < 2;
  for (const key of ["baseline", "attention", "measure"])
    byId(key).addEventListener("change", () => change({ [key]: byId(key).value, ...unzoomed("plane") }));
  for (const key of ["rest", "logx", "logy"]) switches(key);
  byId("smooth").value = state.smooth;
  byId("smooth").addEventListener("input", () => change({ smooth: Number(byId("smooth").value) }));
  listenToFilter();
  byId("clear").addEventListener("click", clear);
  byId("theme").addEventListener("click", () => change({ theme: isDark() ? "light" : "dark" }));
  for (const button of document.querySelectorAll("[data-format]"))
    button.addEventListener("click", () => {
      const format = button.dataset.format;
      const text = tableText(format === "csv" ? table.numbers() : table.text(), format);
      save(`runs.${format}`, new Blob([text], { type: "text/plain" }));
    });
  document.addEventListener("keydown", (event) => {
    if (isForBrowser(event)) return;
    const typing = ["INPUT", "SELECT"].includes(document.activeElement?.tagName);
    if (event.key === "Escape") clear();
    else if (!typing && event.key === "/") byId("filter").focus();
    else if (!typing && event.key === "t") byId("theme").click();
    else return;
    event.preventDefault();
  });
  byId("notes").textContent = data.notes.join(" ");
  byId("written").textContent = data.written;
  // on a phone the legend would fill the first screen
  byId("groups").open = !matchMedia("(max-width: 760px)").matches;
  foldable(byId("groups"), "groups");
  foldable(document.querySelector(".choice"), "columns");
  drawPaperTables();
  watch();
  try {
    draw();
  } catch (error) {
    // an address that was edited may ask for what cannot be drawn
    if (!location.hash) throw error;
    history.replaceState(null, "", location.pathname + location.search);
    location.reload();
  }
}

function listenToFilter() {
  const field = byId("filter");
  const complete = () =>
    byId("completions").replaceChildren(
      ...completions(field.value, columns, configurations).map((value) => html("option", { value })),
    );
  field.value = state.filter;
  field.addEventListener("focus", complete);
  field.addEventListener("input", () => {
    complete();
    change({ filter: field.value });
  });
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

// pictures that were drawn for a wide screen have letters too small for a sheet of paper
for (const [event, isSheet] of Object.entries({ beforeprint: true, afterprint: false }))
  addEventListener(event, () => {
    document.body.classList.toggle("sheet", isSheet);
    draw();
  });
// an address that is pasted over that of the page loads nothing by itself
addEventListener("hashchange", () => location.reload());
start();
