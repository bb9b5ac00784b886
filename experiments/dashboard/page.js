// The page: one state, kept in the address, from which every panel is drawn.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const rows = data.rows.map((values, number) => ({ ...Object.fromEntries(data.columns.map((column, place) => [column, values[place]])), number }));
const GROUPS = 20, LINES = 80, MARKS = 2000, PATHS = 400; // the most that is drawn
const MARKED = 16; // more lines than these are drawn without symbols
const AXES = { tokens: ["Tokens", short, 1], step: ["Steps", short, 0], seconds: ["Time (h:mm:ss)", duration, 2] };
const CURVES = {
  "validation loss": ["validation", "Validation loss (nats per masked token)", false],
  "validation perplexity": ["validation", "Validation perplexity", true],
  "training loss": ["training", "Training loss (nats per masked token)", false],
  "training perplexity": ["training", "Training perplexity", true],
};
const varying = data.settings.filter((column) => new Set(rows.map((row) => String(row[column]))).size > 1);
const telling = varying.filter((column, place) => {
  const kinds = (columns) => new Set(rows.map((row) => columns.map((each) => row[each]).join("\0"))).size;
  return kinds(varying.slice(0, place + 1)) > kinds(varying.slice(0, place));
});
const apart = telling.filter((column) => column !== "seed");
const cells = grouped(rows, cellOf);

const state = {
  by: varying.includes("variant") ? "variant" : (apart[0] ?? "variant"),
  lines: "seeds", x: "tokens", y: "validation loss", hidden: [], ranges: {}, filter: "", sort: "loss", run: null, theme: null, paused: false,
}; // prettier-ignore
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
const parallel = new Parallel(byId("parallel"), (column, range) => change({ ranges: { ...state.ranges, [column]: range } }), select);
const table = new Table(byId("table"), (sort) => change({ sort }), select);

function cellOf(row) {
  return apart.map((column) => row[column]).join("\0");
}

/** Name of a row's settings as far as they tell runs apart: "talking_heads, heads 24". */
function named(row, columns = apart) {
  return columns.map((column) => (column === "variant" ? row.variant : `${column} ${shown(row[column], column)}`)).join(", ") || row.variant;
}

/** The groups by the chosen key: value -> number; the largest when there are too many, the others together are -1. */
function groupsOf() {
  const found = [...grouped(rows, (row) => String(row[state.by]))];
  const kept = [...found].sort((a, b) => b[1].length - a[1].length).slice(0, GROUPS);
  const names = sortedBy(kept.map(([name, members]) => ({ name, value: members[0][state.by] })), "value").map(({ name }) => name);
  return { numbers: new Map(names.map((name, number) => [name, number])), sizes: new Map(found.map(([name, members]) => [name, members.length])) };
}

function draw() {
  const groups = groupsOf();
  const groupName = (row) => (groups.numbers.has(String(row[state.by])) ? String(row[state.by]) : "others");
  const group = (row) => groups.numbers.get(groupName(row)) ?? -1;
  const test = parsedFilter(state.filter, data.columns);
  const inText = test ? rows.filter(test) : rows;
  const shownRows = inText.filter((row) => !state.hidden.includes(groupName(row)));
  const axes = [...telling.slice(0, 8).map((column) => ({ column, ordinal: true })), ...["loss", "tokens_per_second", "peak_memory_bytes"].map((column) => ({ column }))];
  drawParallel({ axes, all: rows, group, ranges: state.ranges, selected: state.run }, shownRows);
  const visible = shownRows.filter((row) => parallel.keeps(row, state.ranges));
  drawLegend(groups, groupName);
  drawCurves(visible, group, groupName);
  drawScatter(speed, visible, group, "tokens_per_second", "high");
  drawScatter(memory, visible, group, "peak_memory_bytes", "low");
  drawHeads(visible, group, groupName);
  drawTable(visible, group);
  byId("filter").setAttribute("aria-invalid", String(!test));
  byId("count").textContent = `${visible.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} runs`;
  byId("clear").hidden = !(state.filter || state.hidden.length || Object.values(state.ranges).some(Boolean));
  document.documentElement.style.colorScheme = state.theme ?? "light dark";
}

function drawLegend({ numbers, sizes }, groupName) {
  const others = rows.filter((row) => groupName(row) === "others").length;
  const entries = [...numbers, ...(others ? [["others", -1]] : [])];
  const focused = document.activeElement?.dataset?.group;
  const buttons = entries.map(([name, number]) => {
    const { colour, dash, symbol } = look(number);
    const style = `stroke:${colour};stroke-dasharray:${dash || "none"}`;
    const swatch = svg("svg", { viewBox: "-18 -7 36 14", width: 36, height: 14, "aria-hidden": "true" }, svg("path", { class: "line", d: "M-18,0H18", style }), svg("path", { d: symbol, style: `fill:${colour}` }));
    const button = html("button", { type: "button", "aria-pressed": String(!state.hidden.includes(name)), "data-group": name }, swatch, name);
    button.title = "Click hides or shows it everywhere, Shift-click shows it alone";
    button.append(html("small", {}, String(sizes.get(name) ?? others)));
    button.addEventListener("click", (event) => change({ hidden: event.shiftKey ? alone(entries, name) : toggled(state.hidden, name) }));
    return button;
  });
  byId("legend").replaceChildren(...buttons);
  if (focused !== undefined) buttons.find((button) => button.dataset.group === focused)?.focus();
}

const toggled = (hidden, name) => (hidden.includes(name) ? hidden.filter((each) => each !== name) : [...hidden, name]);
const alone = (entries, name) => entries.map(([each]) => each).filter((each) => each !== name);

function drawCurves(visible, group, groupName) {
  const [kind, yTitle, asPerplexity] = CURVES[state.y];
  const [xTitle, format, place] = AXES[state.x];
  const pointsOf = (row) => data.curves[row.number][kind].map((point) => ({ x: point[place], y: point[3] })).filter((point) => isNumber(point.x) && isNumber(point.y));
  const drawable = visible.filter((row) => data.curves[row.number] && pointsOf(row).length);
  const key = { seeds: cellOf, group: groupName, runs: (row) => row.number }[state.lines];
  const lines = [...grouped(drawable, key).values()];
  const drawn = evenly(lines, LINES).map((members) => ({ members, points: band(members.map(pointsOf)) }));
  const chosen = drawable.find((row) => row.run === state.run);
  if (chosen && state.lines !== "runs") drawn.push({ members: [chosen], points: pointsOf(chosen).map((point) => ({ ...point, low: point.y, high: point.y, n: 1 })) });
  const of = (loss) => (asPerplexity ? Math.exp(loss) : loss);
  const series = drawn.map(({ members, points }) => {
    const name = members.length === 1 ? members[0].run : state.lines === "group" ? groupName(members[0]) : named(members[0]);
    const text = (point) => {
      const spreadText = point.n > 1 ? ` (${of(point.low).toFixed(asPerplexity ? 1 : 4)} to ${of(point.high).toFixed(asPerplexity ? 1 : 4)}, ${point.n} runs)` : "";
      return [name, `${state.y} ${of(point.y).toFixed(asPerplexity ? 1 : 4)}${spreadText}`, `${xTitle.replace(/ .*/, "").toLowerCase()} ${state.x === "seconds" ? duration(point.x) : point.x.toLocaleString("en")}`];
    };
    const marked = drawn.length <= MARKED && points.length <= 30;
    const last = points.map((point) => ({ x: point.x, y: of(point.y), low: of(point.low), high: of(point.high), text: () => text(point), run: members.length === 1 ? members[0].run : null }));
    return { group: group(members[0]), line: true, symbols: marked, points: last, selected: members.length === 1 && members[0].run === state.run };
  });
  const guides = data.unigram === null ? [] : [{ y: of(data.unigram), name: "single-token frequencies" }];
  curves.draw({ x: { title: xTitle, format, ticks: null }, y: { title: yTitle, log: asPerplexity }, series, guides, empty: "None of these runs has reached an evaluation." });
  const said = [];
  if (series.some((each) => each.points.some((point) => point.high > point.low))) said.push(`Lines are means, bands reach from the lowest to the highest ${state.lines === "seeds" ? "seed" : "run"}.`);
  if (lines.length > LINES) said.push(`${LINES} of ${lines.length.toLocaleString("en")} lines are drawn: filter to see others.`);
  const without = visible.filter((row) => !data.curves[row.number]).length;
  if (without) said.push(`${(visible.length - without).toLocaleString("en")} of these ${visible.length.toLocaleString("en")} runs have their curve in this file: attn dashboard with key=value words picks others.`);
  if (data.points) said.push(`Curves are thinned to ${data.points} points.`);
  note("curves", said);
}

function drawScatter(chart, visible, group, column, better) {
  const scale = SCALES[column] ?? 1;
  const known = visible.filter((row) => isNumber(row[column]) && isNumber(row.perplexity));
  const pointOf = (row) => ({
    x: row[column] * scale, y: row.perplexity, run: row.run, row, selected: row.run === state.run,
    text: () => [row.run, `perplexity ${shown(row.perplexity, "perplexity")}`, `${title(column).toLowerCase()} ${shown(row[column], column)} ${unit(column)}`],
  }); // prettier-ignore
  const points = known.map(pointOf);
  const front = paretoFront(points, better);
  const drawn = points.length > MARKS ? [...new Set([...evenly(points, MARKS), ...front])] : points;
  const series = [...grouped(drawn, (point) => group(point.row))].map(([number, members]) => ({ group: number, symbols: true, points: members }));
  chart.draw({ x: { title: labelled(column) }, y: { title: "Validation perplexity", log: true }, series, fronts: front.length ? [front] : [], better });
  const said = ["Dotted: the Pareto front, runs that no other beats in both."];
  if (drawn.length < points.length) said.push(`${drawn.length.toLocaleString("en")} of ${points.length.toLocaleString("en")} runs are drawn, the front whole.`);
  if (known.length < visible.length) said.push(`Runs without these numbers: ${(visible.length - known.length).toLocaleString("en")}.`);
  note(chart.figure.id, said);
}

function drawHeads(visible, group, groupName) {
  const known = visible.filter((row) => isNumber(row.heads) && isNumber(row.loss));
  const by = state.by === "heads" ? (row) => row.variant : groupName;
  const series = [...grouped(known, by)].map(([name, members]) => {
    const points = [...grouped(members, (row) => row.heads)].map(([count, runs]) => {
      const { y, low, high, n } = spread(runs.map((row) => row.loss));
      const range = n > 1 ? ` (${low.toFixed(4)} to ${high.toFixed(4)}, ${n} runs)` : "";
      return { x: count, y, low, high, text: () => [name, `heads ${count}`, `validation loss ${y.toFixed(4)}${range}`], run: n === 1 ? runs[0].run : null };
    });
    return { group: state.by === "heads" ? -1 : group(members[0]), line: true, symbols: true, points: points.sort((a, b) => a.x - b.x) };
  });
  const counts = [...new Set(known.map((row) => row.heads))];
  heads.draw({ x: { title: "Heads", log: true, ticks: counts, format: String }, y: { title: labelled("loss") }, series });
  const mixed = telling.filter((column) => column !== "heads" && column !== state.by && new Set(known.map((row) => String(row[column]))).size > 1);
  note("heads", mixed.length ? [`Each point is the mean over ${mixed.join(", ")}; the band reaches from the lowest to the highest run.`] : []);
}

function drawParallel(what, shownRows) {
  // the first drawing gives the axes by which ranges keep rows
  parallel.draw({ ...what, rows: [] });
  const kept = shownRows.filter((row) => parallel.keeps(row, state.ranges));
  const drawn = evenly(kept, PATHS);
  parallel.draw({ ...what, rows: drawn });
  const said = ["Drag along an axis, or use its arrow keys, to keep the runs of a range in every panel; a click on it keeps all."];
  if (drawn.length < kept.length) said.push(`${drawn.length} of ${kept.length.toLocaleString("en")} lines are drawn.`);
  note("parallel", said);
}

function drawTable(visible, group) {
  const measured = data.columns.filter((column) => !data.settings.includes(column) && column !== "run");
  const differing = measured.filter((column) => column === "loss" || new Set(rows.map((row) => String(row[column]))).size > 1);
  const columns = [...telling, ...differing, "run"];
  table.draw({ rows: visible, columns, order: data.columns.includes(state.sort.replace(/^-/, "")) ? state.sort : "loss", selected: state.run, group });
  const same = data.columns.filter((column) => !columns.includes(column) && !varying.includes(column) && rows[0][column] !== null);
  const shared = same.map((column) => html("span", {}, `${title(column)} `, html("b", {}, column === "wall_seconds" ? shown(rows[0][column], column) : `${shown(rows[0][column], column)} ${unit(column)}`.trim())));
  byId("shared").replaceChildren(...(shared.length ? ["All runs: ", ...shared] : []));
  const chosen = rows.find((row) => row.run === state.run);
  const best = sortedBy(visible, "loss")[0];
  byId("chosen").hidden = !chosen;
  if (!chosen) return;
  const unlike = varying.filter((column) => best && chosen[column] !== best[column]).map((column) => `${column} ${shown(chosen[column], column)} (there ${shown(best[column], column)})`);
  const loss = best && isNumber(chosen.loss) && isNumber(best.loss) ? ` Validation loss ${shown(chosen.loss, "loss")}, there ${shown(best.loss, "loss")}.` : "";
  byId("chosen").replaceChildren(html("b", {}, chosen.run), chosen === best ? " has the lowest validation loss of the runs shown." : ` differs from the best run shown in ${unlike.join(", ") || "no setting"}.${loss}`);
}

function note(id, said) {
  byId(id).querySelector(".note").textContent = said.join(" ");
}

function choices(id, options, key) {
  const menu = byId(id);
  menu.replaceChildren(...options.map(([value, name]) => html("option", { value }, name)));
  if (!options.some(([value]) => value === state[key])) state[key] = options[0][0];
  menu.value = state[key];
  menu.addEventListener("change", () => change({ [key]: menu.value, ...(key === "by" ? { hidden: [] } : {}) }));
  menu.addEventListener("change", () => ["x", "y"].includes(key) && curves.reset());
}

const isDark = () => (state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);

function start() {
  const keys = varying.includes(state.by) ? varying : [state.by, ...varying];
  choices("by", keys.map((column) => [column, column]), "by");
  choices("lines", [["seeds", "mean over seeds"], ["group", "mean of the group"], ["runs", "every run"]], "lines");
  choices("y", Object.keys(CURVES).map((name) => [name, name]), "y");
  choices("x", [["tokens", "tokens"], ["step", "steps"], ["seconds", "time"]], "x");
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
  setInterval(() => {
    const busy = state.paused || document.activeElement?.tagName === "INPUT" || document.querySelector(".tip:not([hidden])");
    if (!busy) location.reload();
  }, data.refresh * 1000);
}

start();
