// The panels: from the configurations that are visible to what the charts, the axes and the table draw.
"use strict";

// the most that is drawn
const LINES = 80;
const MARKS = 2000;
const PATHS = 400;
const RUNGS = 40;
// more points than these are drawn without intervals and seeds
const BARS = 60;
// more lines than these are drawn without symbols
const MARKED = 16;
const FACETS = 4;
const AXES = {
  tokens: ["tokens", "Tokens", short, "tokens"],
  step: ["steps", "Steps", short, "step"],
  seconds: ["time", "Time (h:mm:ss)", duration, "seconds", timeTicks],
};
// what is drawn against them: kind and column of a curve, title, how it is written
const QUANTITIES = {
  "validation loss": ["validation", "loss", "Validation loss (nats per predicted token)"],
  "validation perplexity": ["validation", "loss", "Validation perplexity", Math.exp],
  "training loss": ["training", "loss", "Training loss (nats per predicted token)"],
  "training perplexity": ["training", "loss", "Training perplexity", Math.exp],
  "difference from the baseline": ["validation", "loss", "Validation loss, less the baseline's (nats)"],
};
const DIFFERENCE = "difference from the baseline";
const half = (row, column) => row.halves[column] ?? null;
/** The mean loss of a configuration, with its 95% interval in brackets. */
function lossAndInterval(row) {
  const width = half(row, "loss");
  const mean = shown(row.loss, "loss");
  return width === null ? mean : `${mean}  [${shown(row.loss - width, "loss")}, ${shown(row.loss + width, "loss")}]`;
}
const counts = (number, one, many = `${one}s`) => `${counted(number)} ${number === 1 ? one : many}`;

/** A button for each group of which something is compared, and for the others if they are shown too. */
function drawLegend({ numbers, sizes }, withRest) {
  const without = withRest ? [] : [...numbers.keys()].filter((name) => !sizes.get(name));
  const entries = [...numbers].filter(([name]) => !without.includes(name));
  if (sizes.has("others")) entries.push(["others", -1]);
  const focused = document.activeElement?.dataset?.group;
  const buttons = entries.map(([name, number]) => legendButton(name, number, sizes.get(name), entries));
  byId("legend").replaceChildren(...buttons);
  const left = `${counts(without.length, "group has", "groups have")} nothing that is compared`;
  if (without.length) byId("legend").append(html("span", { title: without.join(", ") }, left));
  if (focused !== undefined) buttons.find((button) => button.dataset.group === focused)?.focus();
}

/** size: the number of configurations of a group that are compared; hollow if there are none. */
function legendButton(name, number, size, entries) {
  const { colour, dash, symbol } = look(number);
  const [hollow, fill] = size ? ["", `fill:${colour}`] : [" hollow", `fill:var(--sheet);stroke:${colour}`];
  const style = `stroke:${colour};stroke-dasharray:${dash || "none"}`;
  const line = svg("path", { class: `line${hollow}`, d: "M-18,0H18", style });
  const mark = svg("path", { class: hollow && `symbol${hollow}`, d: symbol, style: fill });
  const swatch = svg("svg", { viewBox: "-18 -7 36 14", width: 36, height: 14, "aria-hidden": "true" }, line, mark);
  const pressed = String(!state.hidden.includes(name));
  const button = html("button", { type: "button", "aria-pressed": pressed, "data-group": name }, swatch, html("bdi", {}, cut(name)));
  const said = size ? counts(size, "configuration") : "of which nothing is compared";
  button.title = `${name}, ${said}: click hides or shows it everywhere, Shift-click shows it alone`;
  button.append(html("small", {}, size ? counted(size) : "not compared"));
  button.addEventListener("click", (event) =>
    change({ hidden: event.shiftKey ? onlyOne(entries, name) : toggled(state.hidden, name) }),
  );
  return button;
}

const toggled = (names, name) => (names.includes(name) ? names.filter((each) => each !== name) : [...names, name]);
const onlyOne = (entries, name) => entries.map(([each]) => each).filter((each) => each !== name);

function drawScatter(chart, shownRows, others, group, column, better) {
  const scale = SCALES[column] ?? 1;
  const of = data.task ? (loss) => loss : Math.exp;
  const quality = data.task ? "loss" : "perplexity";
  const isPlaced = (row) => isNumber(row[column]) && isNumber(row.loss);
  const known = shownRows.filter(isPlaced);
  const point = (row, name) => ({ x: row[column] * scale, y: of(row.loss), key: (row.of ?? row).name, row, group: group(row.of ?? row),
    hollow: !row.of && row.unlike, text: () => [name, `${quality} ${shown(of(row.loss), quality)}`, `${title(column).toLowerCase()} ${shown(row[column], column)} ${unit(column)}`] }); // prettier-ignore
  const points = known.map((row) => {
    const [up, along] = [half(row, "loss"), half(row, column)];
    return { ...point(row, `${row.name}: mean of ${counts(row.ended.length, "seed")}`), selected: row.name === state.chosen,
      ...(up === null || known.length > BARS ? {} : { low: of(row.loss - up), high: of(row.loss + up) }),
      ...(along === null || known.length > BARS ? {} : { left: Math.max(0, row[column] - along) * scale, right: (row[column] + along) * scale }) }; // prettier-ignore
  });
  const front = paretoFront(points.filter((each) => !each.hollow), better);
  const drawn = points.length > MARKS ? [...new Set([...evenly(points, MARKS), ...front])] : points;
  const seeds = known.length <= BARS ? known.filter((row) => row.ended.length > 1).flatMap((row) => row.ended).filter(isPlaced) : [];
  const hollow = [...others.runs, ...others.rows].filter(isPlaced).slice(0, MARKS);
  const series = (points, more) =>
    [...grouped(points, (each) => each.group)].map(([number, members]) => ({
      group: number,
      symbols: true,
      ...more,
      points: members,
    }));
  chart.zoomed = state.zoom[chart.figure.id] ?? null;
  chart.draw({
    x: { title: labelled(column) },
    y: { title: `Validation ${quality}`, log: !data.task, format: data.task ? short : whole },
    series: [
      ...series(
        seeds.map((run) => point(run, `${run.of.name}, seed ${run.seed}`)),
        { faint: true },
      ),
      ...series(
        hollow.map((row) => point(row, row.run ?? row.name)),
        { hollow: true },
      ),
      ...series(drawn),
    ],
    fronts: front.length ? [front] : [],
    better,
  });
  const bars = known.length <= BARS ? "; bars are its 95% interval, and small dots are the seeds" : "";
  const said = [
    `A symbol is the mean of a configuration's seeds${bars}. A ring marks the Pareto front: means that no other beats in both.`,
  ];
  if (drawn.length < points.length)
    said.push(`${counted(drawn.length)} of ${counted(points.length)} are drawn, the front whole.`);
  const kinds = [
    hollow.length && "not finished or of other conditions",
    drawn.some((each) => each.hollow) && "means over other seeds than the baseline's",
  ].filter(Boolean);
  if (kinds.length) said.push(`Hollow symbols are ${kinds.join(", or ")}.`);
  if (column === "tokens_per_second" && data.beside)
    said.push(`Speeds of ${counted(data.beside)} of ${counts(runs.length, "run")} were measured beside other work.`);
  note(chart.figure.id, said);
}

/** Loss against heads where their number differs; else the losses of all configurations under each other. */
function drawHeads(shownRows, group) {
  const known = shownRows.filter((row) => isNumber(row.loss));
  const heads = [...new Set(known.map((row) => row.heads ?? data.shared.heads))].filter(isNumber);
  const isForest = heads.length < 2;
  byId("heads").hidden = isForest;
  byId("losses").hidden = !isForest;
  const told = (row) => [
    row.name,
    `validation loss ${lossAndInterval(row)}, ${counts(row.ended.length, "seed")}`,
  ];
  if (isForest) return drawLosses(known, group, told);
  const facets = data.telling.filter((column) => ["layers", "hidden_size"].includes(column));
  const parts = sortedBy(
    [...grouped(known, (row) => facets.map((column) => `${column} ${row[column]}`).join(", "))].map(([name, rows]) => ({
      name,
      rows,
    })),
    "name",
  ).slice(0, FACETS);
  const y = extent(
    known.flatMap((row) => [row.loss - (half(row, "loss") ?? 0), row.loss + (half(row, "loss") ?? 0)]),
    false,
  );
  facetCharts.show(
    parts.map((part) => part.name),
    (chart, place) => {
      const others = data.telling.filter((column) => column !== "heads");
      const lines = grouped(parts[place].rows, (row) => others.map((column) => row[column]).join("\0"));
      const series = evenly([...lines.values()], LINES).map((rows) => {
        const name = others
          .filter((column) => !facets.includes(column))
          .map((column) => (column === "variant" ? rows[0].variant : `${column} ${rows[0][column]}`))
          .join(", ");
        const points = sortedBy(rows, "heads").map((row) => {
          const width = lines.size > BARS ? null : half(row, "loss");
          return {
            x: row.heads,
            y: row.loss,
            key: row.name,
            selected: row.name === state.chosen,
            hollow: row.unlike,
            text: () => told(row),
            ...(width === null ? {} : { low: row.loss - width, high: row.loss + width, whisker: true }),
          };
        });
        return {
          group: state.by === "heads" ? -1 : group(rows[0]),
          name,
          label: lines.size <= 8 ? name : null,
          line: true,
          symbols: true,
          points,
        };
      });
      chart.zoomed = state.zoom[chart.figure.id] ?? null;
      chart.draw({
        ranges: { x: extent(heads, true), y },
        x: { title: "Heads", log: true, ticks: heads, format: String },
        y: { title: labelled("loss") },
        series,
      });
    },
  );
  const without = grouped(known, (row) => facets.map((column) => row[column]).join("\0")).size - parts.length;
  const lines = grouped(known, (row) =>
    data.telling
      .filter((column) => column !== "heads")
      .map((column) => row[column])
      .join("\0"),
  ).size;
  note("heads", [
    ...(lines > LINES ? [`At most ${LINES} of ${counted(lines)} lines are drawn.`] : []),
    "A line joins configurations that differ only in their heads. Bars are 95% intervals.",
    ...(known.some((row) => row.unlike) ? ["Hollow symbols are means over other seeds than the baseline's."] : []),
    ...(without > 0 ? [`${without} more sizes are not drawn: filter.`] : []),
  ]);
}

function drawLosses(known, group, told) {
  const rows = sortedBy(known, "loss");
  losses.draw({
    title: labelled("loss"), brief: labelled("loss"), heading: ["mean, 95% interval", "seeds"], zero: null, margin: 0, empty: "No run has finished.",
    rows: rows.slice(0, RUNGS).map((row) => ({
      group: group(row), name: row.name, mean: row.loss, half: half(row, "loss"), seeds: row.ended.map((run) => run.loss), key: row.name,
      numbers: [lossAndInterval(row), String(row.ended.length)],
      word: "", hollow: row.unlike, selected: row.name === state.chosen, text: () => told(row),
    })),
  }); // prettier-ignore
  note("losses", [
    "Small dots are seeds. To compare two configurations, see their difference above, which is paired by seed.",
    ...(rows.some((row) => row.unlike) ? ["Hollow symbols are means over other seeds than the baseline's."] : []),
    ...(rows.length > RUNGS ? [`The best ${RUNGS} of ${counted(rows.length)} are drawn.`] : []),
  ]);
}

function drawParallel(what, shownRows) {
  // the first drawing gives the axes by which ranges keep rows
  parallel.draw({ ...what, rows: [] });
  const kept = shownRows.filter((row) => parallel.keeps(row, state.ranges));
  const drawn = evenly(kept, PATHS);
  parallel.draw({ ...what, rows: drawn });
  const said = ["A line is a configuration, and its outcomes are means."];
  if (drawn.some((row) => row.unlike)) said.push("Dotted lines are means over other seeds than the baseline's.");
  if (drawn.length < kept.length) said.push(`${drawn.length} of ${counted(kept.length)} lines are drawn.`);
  note("parallel", said);
  const use = " Drag along an axis, or use its arrow keys, to keep only a range in every panel. A click on the axis keeps all.";
  byId("parallel").querySelector(".note").append(html("span", { class: "keys" }, use));
}

/** The table of rows. What is the same in `all` that are compared stands above it, unless its column is chosen. */
function drawTable(rows, all, group, baseline) {
  const differing = data.measures.filter((column) => column === "loss" || !(column in data.shared));
  // outcomes first: the name says most settings already
  const known = ["seeds", ...differing, ...data.settings];
  const same = all.length > 1 ? [...differing, ...data.settings].filter((column) => isSame(all, column)) : [];
  const columns = state.columns
    ? known.filter((column) => state.columns.includes(column))
    : known.filter((column) => !same.includes(column) && (!data.telling.includes(column) || data.telling.length < 6));
  drawColumnChoice(known, columns);
  table.draw({
    rows,
    columns,
    sort: ["name", ...known].includes(state.sort.replace(/^-/, "")) ? state.sort : "loss",
    pinned: state.pinned,
    open: state.open,
    limit: state.rows,
    selected: state.chosen,
    group,
  });
  const common = { ...data.shared, ...Object.fromEntries(same.map((column) => [column, all[0][column]])) };
  delete common.status;
  const value = (column) => `${shown(common[column], column)} ${column === "wall_seconds" ? "" : unit(column)}`.trim();
  const shared = Object.keys(common).filter((column) => common[column] !== null);
  byId("shared").replaceChildren(
    ...(shared.length ? [same.length ? "All that are compared: " : "All runs: "] : []),
    ...shared.map((column) => html("span", {}, `${title(column)} `, html("b", {}, value(column)))),
  );
  byId("unlike").hidden = !rows.some((row) => row.unlike);
  const chosen = configurations.find((row) => row.name === state.chosen);
  byId("chosen").hidden = !chosen;
  if (chosen) sayChosen(chosen, baseline);
}

/** Whether all rows have the same in a column, and every seed of theirs. The loss always has its column. */
const isSame = (rows, column) =>
  column !== "loss" && rows.every((row) => row[column] === rows[0][column] && !row.errors[column]);

function sayChosen(chosen, baseline) {
  const parts = [html("b", {}, chosen.name)];
  if (chosen === baseline) parts.push(" is the baseline.");
  else if (baseline) {
    const unlike = data.settings
      .filter((column) => chosen[column] !== baseline[column])
      .map((column) => `${column} ${shown(chosen[column], column)} (there ${shown(baseline[column], column)})`);
    parts.push(` differs from the baseline in ${unlike.join(", ") || "no setting"}.`);
    const found = comparison().differences[baseline.number]?.[chosen.number];
    if (found)
      parts.push(
        ` Its loss differs from the baseline's by ${lossText(signed(found.mean))}${isNumber(found.half) ? ` ${interval(found)}` : ""}, ${counts(found.n, "shared seed")}: ${found.word}. `,
      );
    else if (!chosen.compared)
      parts.push(
        ` It is not compared: ${chosen.ended.length ? `its conditions are others${data.comparisons[chosen.comparison].says ? ` (${data.comparisons[chosen.comparison].says})` : ""}` : "none of its runs has finished"}. `,
      );
  }
  if (chosen !== baseline && comparison().baselines.includes(chosen.number)) {
    const button = html("button", { type: "button" }, "Make it the baseline");
    button.addEventListener("click", () => change({ baseline: chosen.name }));
    parts.push(button);
  }
  byId("chosen").replaceChildren(...parts);
}

function drawColumnChoice(all, columns) {
  byId("columns").replaceChildren(...all.map((column) => {
    const box = html("input", { type: "checkbox", ...(columns.includes(column) ? { checked: "" } : {}) });
    box.addEventListener("change", () => change({ columns: toggled(columns, column) }));
    return html("label", {}, box, ` ${title(column)}`);
  })); // prettier-ignore
}

/** Fill a menu whose values depend on what is shown; a choice of one is hidden. */
function fillMenu(key, names, chosen, titles = {}) {
  byId(key).replaceChildren(...names.map((value) => html("option", { value }, titles[value] ?? value)));
  byId(key).value = chosen ?? "";
  byId(key).parentElement.hidden = names.length < 2;
}

function note(id, said) {
  byId(id).querySelector(".note").textContent = said.join(" ");
}
