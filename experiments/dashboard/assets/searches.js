// Searches: the values of the trials of a study and the best so far, what decides them, and their Pareto front.
"use strict";

const BAR = { height: 26, thickness: 14, top: 6, bottom: 8, number: 48 };
let searchCharts = null;

function drawSearches() {
  const names = Object.keys(data.searches);
  byId("of-search").hidden = !names.length;
  if (!names.length) return;
  searchCharts ??= makeSearchCharts();
  const name = names.includes(state.search) ? state.search : names[0];
  const search = data.searches[name];
  const objectives = search.objectives.map((objective) => objective.name);
  const known = (chosen, others) => (others.includes(chosen) ? chosen : others[0]);
  const objective = known(state.objective, objectives);
  const others = objectives.filter((each) => each !== objective);
  const against = known(state.against, others);
  fillMenu("search", names, name);
  fillMenu("objective", objectives, objective);
  fillMenu("against", others, against);
  sayFound(search, name);
  const place = objectives.indexOf(objective);
  drawTrials(search, place);
  drawImportances(search, place);
  byId("front").hidden = !others.length;
  if (others.length) drawFront(search, place, objectives.indexOf(against));
}

function makeSearchCharts() {
  const choose = (name) => {
    const run = runs.find((each) => each.run === name);
    if (run) select(run.of.name, name);
  };
  const charts = { bars: new Bars(byId("importance")) };
  for (const id of ["trials", "front"]) charts[id] = new Chart(byId(id), choose, zooming(id));
  for (const key of ["search", "objective", "against"])
    byId(key).addEventListener("change", () => change({ [key]: byId(key).value, ...unzoomed("trials", "front") }));
  return charts;
}

function sayFound(search, name) {
  const states = [...grouped(search.trials, (trial) => trial.state)].map(([state, of]) => `${of.length} ${state}`);
  const wanted = search.objectives.map((each) => `${each.direction} ${each.name}`).join(", ");
  byId("found").textContent = `${name}: ${wanted}; ${counts(search.trials.length, "trial")}: ${states.join(", ")}.`;
}

/** An objective as an axis; validation_loss is what the rest of the page calls loss. */
function axisOf(search, place) {
  const { name } = search.objectives[place];
  const column = name === "validation_loss" ? "loss" : name;
  const scale = SCALES[column] ?? 1;
  return {
    title: labelled(column),
    value: (trial) => trial.values[place] * scale,
    scale,
    said: (value) => `${name} ${shown(value, column)} ${unit(column)}`.trim(),
  };
}

const isDone = (trial) => trial.state === "done";

/** A trial at a place of a chart. */
function trialPoint(search, trial, x, y) {
  const values = search.objectives.map((_, place) => axisOf(search, place).said(trial.values[place]));
  const settings = Object.entries(trial.point).map(([key, value]) => `${key} ${value}`);
  const selected = state.run === trial.run;
  return { x, y, key: trial.run, selected, text: () => [`trial ${trial.number}: ${trial.run}`, ...values, ...settings] };
}

function drawTrials(search, place) {
  const axis = axisOf(search, place);
  const done = search.trials.filter(isDone);
  const best = search.best_so_far[place];
  const line = done.flatMap((trial, number) => {
    const text = () => ["best so far", axis.said(best[number]), `after trial ${trial.number}`];
    // the best changes when a trial ends, not between two
    const heights = number ? [best[number - 1], best[number]] : [best[0]];
    return heights.map((height) => ({ x: trial.number, y: height * axis.scale, text }));
  });
  searchCharts.trials.zoomed = state.zoom.trials ?? null;
  searchCharts.trials.draw({
    x: { title: "Trial", round: (low, high, count) => [...new Set(ticks(low, high, count, false).map(Math.round))] },
    y: { title: axis.title },
    series: [
      { group: 1, name: "best so far", line: true, points: line },
      { group: 0, name: "trials", symbols: true, points: done.map((trial) => trialPoint(search, trial, trial.number, axis.value(trial))) },
    ],
    empty: "No trial is done.",
  });
  note("trials", ["A symbol is a finished trial, and the line is the best so far. Pruned and failed trials have no value."]);
}

function drawImportances(search, place) {
  const rows = search.importances[place];
  byId("importance").hidden = !rows.length;
  if (!rows.length) return;
  searchCharts.bars.draw(rows.map(([name, share]) => ({ name, share })));
  note("importance", [
    "How far each setting decides whether a trial is among the best (PED-ANOVA by Optuna, over the trials that are done). The shares add up to 100%.",
  ]);
}

function drawFront(search, place, other) {
  const [x, y] = [axisOf(search, other), axisOf(search, place)];
  const point = (trial) => trialPoint(search, trial, x.value(trial), y.value(trial));
  const best = search.trials.filter((trial) => search.best.includes(trial.number)).map(point);
  // the staircase between them is true only where nothing else counts
  const fronts = search.objectives.length === 2 ? [best.sort((a, b) => a.x - b.x)] : best.map((each) => [each]);
  searchCharts.front.zoomed = state.zoom.front ?? null;
  searchCharts.front.draw({
    x: { title: x.title },
    y: { title: y.title },
    series: [{ group: 0, name: "trials", symbols: true, points: search.trials.filter(isDone).map(point) }],
    fronts: best.length ? fronts : [],
    better: search.objectives[other].direction === "maximize" ? "high" : "low",
    empty: "No trial is done.",
  });
  note("front", ["A ring marks the Pareto front: the trials that no other beats in every objective."]);
}

/** Shares as bars under each other, in `figure`. draw(rows) shows [{name, share}]. */
class Bars {
  constructor(figure) {
    this.surface = svg("svg", { class: "bars", role: "list", "aria-label": figure.dataset.name, ...describedBy(figure) });
    toolbar(
      figure,
      pictureButtons(figure, () => this.surface),
    );
    figure.append(this.surface);
    new ResizeObserver(() => this.rows && this.draw(this.rows)).observe(figure);
  }

  draw(rows) {
    this.rows = rows;
    const width = Math.max(260, this.surface.getBoundingClientRect().width);
    const height = BAR.top + BAR.height * rows.length + BAR.bottom;
    const names = Math.min(0.45 * width, 14 + LETTER * 1.1 * Math.max(...rows.map((row) => row.name.length)));
    const scale = new Scale([0, Math.max(...rows.map((row) => row.share)) || 1], [names, width - BAR.number], false);
    this.surface.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.surface.style.height = `${height}px`;
    this.surface.replaceChildren(...rows.map((row, place) => this.row(row, BAR.top + BAR.height * place, scale)));
  }

  row({ name, share }, top, scale) {
    const percent = `${Math.round(100 * share)}%`;
    const end = scale.pixel(share);
    const middle = top + BAR.height / 2;
    const bar = { x: scale.start, y: middle - BAR.thickness / 2, width: end - scale.start, height: BAR.thickness };
    return svg(
      "g",
      { role: "listitem", "aria-label": `${name}: ${percent}` },
      svg("text", { x: scale.start - 8, y: middle + 4, "text-anchor": "end" }, cut(name, Math.floor((scale.start - 8) / LETTER))),
      svg("rect", { class: "bar", ...bar }),
      svg("text", { x: end + 6, y: middle + 4 }, percent),
    );
  }
}
