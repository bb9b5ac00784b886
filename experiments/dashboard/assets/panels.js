// The panels: from the rows that are visible to what the charts, the axes and the table draw.
"use strict";

// the most that is drawn
const LINES = 80;
const MARKS = 2000;
const PATHS = 400;
// more lines than these are drawn without symbols
const MARKED = 16;
const AXES = {
  tokens: ["tokens", "Tokens", short, 1],
  step: ["steps", "Steps", short, 0],
  seconds: ["time", "Time (h:mm:ss)", duration, 2, timeTicks],
};
const CURVES = {
  "validation loss": ["validation", "Validation loss (nats per predicted token)", false],
  "validation perplexity": ["validation", "Validation perplexity", true],
  "training loss": ["training", "Training loss (nats per predicted token)", false],
  "training perplexity": ["training", "Training perplexity", true],
};

function drawLegend({ numbers, sizes }, groupName) {
  const others = rows.filter((row) => groupName(row) === "others").length;
  const entries = [...numbers, ...(others ? [["others", -1]] : [])];
  const focused = document.activeElement?.dataset?.group;
  const buttons = entries.map(([name, number]) => {
    const { colour, dash, symbol } = look(number);
    const style = `stroke:${colour};stroke-dasharray:${dash || "none"}`;
    const swatch = svg(
      "svg",
      { viewBox: "-18 -7 36 14", width: 36, height: 14, "aria-hidden": "true" },
      svg("path", { class: "line", d: "M-18,0H18", style }),
      svg("path", { d: symbol, style: `fill:${colour}` }),
    );
    const button = html(
      "button",
      { type: "button", "aria-pressed": String(!state.hidden.includes(name)), "data-group": name },
      swatch,
      name,
    );
    button.title = "Click hides or shows it everywhere, Shift-click shows it alone";
    button.append(html("small", {}, String(sizes.get(name) ?? others)));
    button.addEventListener("click", (event) =>
      change({ hidden: event.shiftKey ? onlyOne(entries, name) : toggled(state.hidden, name) }),
    );
    return button;
  });
  byId("legend").replaceChildren(...buttons);
  if (focused !== undefined) buttons.find((button) => button.dataset.group === focused)?.focus();
}

const toggled = (hidden, name) => (hidden.includes(name) ? hidden.filter((each) => each !== name) : [...hidden, name]);
const onlyOne = (entries, name) => entries.map(([each]) => each).filter((each) => each !== name);

/** The name of a group whose runs all have the objective of the row: no mean is taken over several. */
const ofObjective = (name, row) => (row.objective && state.by !== "objective" ? `${name}, ${row.objective}` : name);

function drawCurves(visible, group, groupName) {
  const [kind, yTitle, asPerplexity] = CURVES[state.y];
  const [menuName, xTitle, format, place, round] = AXES[state.x];
  const pointsOf = (row) =>
    data.curves[row.number][kind]
      .map((point) => ({ x: point[place], y: point[3] }))
      .filter((point) => isNumber(point.x) && isNumber(point.y));
  const drawable = visible.filter((row) => data.curves[row.number] && pointsOf(row).length);
  const groupOfOne = (row) => ofObjective(groupName(row), row);
  const key = { seeds: (row) => row.configuration, group: groupOfOne, runs: (row) => row.number }[state.lines];
  const lines = [...grouped(drawable, key).values()];
  const drawn = evenly(lines, LINES).map((members) => ({ members, points: band(members.map(pointsOf)) }));
  const chosen = drawable.find((row) => row.run === state.run);
  if (chosen && state.lines !== "runs")
    drawn.push({
      members: [chosen],
      points: pointsOf(chosen).map((point) => ({ ...point, low: point.y, high: point.y, n: 1 })),
    });
  const of = (loss) => (asPerplexity ? Math.exp(loss) : loss);
  const number = (loss) => shown(of(loss), asPerplexity ? "perplexity" : "loss");
  const series = drawn.map(({ members, points }) => {
    const alone = members.length === 1 ? members[0].run : null;
    const name = alone ?? (state.lines === "group" ? groupOfOne(members[0]) : members[0].configuration);
    const text = (point) => {
      const range = point.n > 1 ? ` (${number(point.low)} to ${number(point.high)}, ${point.n} runs)` : "";
      return [
        name,
        `${state.y} ${number(point.y)}${range}`,
        `${menuName} ${format === duration ? duration(point.x) : counted(point.x)}`,
      ];
    };
    const marked = drawn.length <= MARKED && points.length <= 30;
    const last = points.map((point) => ({
      x: point.x,
      y: of(point.y),
      low: of(point.low),
      high: of(point.high),
      text: () => text(point),
      run: alone,
    }));
    return {
      group: group(members[0]),
      line: true,
      symbols: marked,
      points: last,
      selected: alone !== null && alone === state.run,
    };
  });
  const guess = data.task ? "frequencies of the targets" : "single-token frequencies";
  const guides = data.unigram === null ? [] : [{ y: of(data.unigram), name: guess }];
  curves.draw({
    x: { title: xTitle, format, round },
    y: { title: yTitle, log: asPerplexity, format: asPerplexity ? whole : short },
    series,
    guides,
    empty: "None of these runs has reached an evaluation.",
  });
  const said = [];
  if (series.some((each) => each.points.some((point) => point.high > point.low)))
    said.push(
      `Lines are means where more than half of the runs reach, bands go from the lowest to the highest ${state.lines === "seeds" ? "seed" : "run"}.`,
    );
  if (lines.length > LINES) said.push(`${LINES} of ${counted(lines.length)} lines are drawn: filter to see others.`);
  const without = visible.filter((row) => !data.curves[row.number]).length;
  if (without)
    said.push(
      `${counted(visible.length - without)} of these ${counted(visible.length)} runs have their curve in this file: attn dashboard with key=value words picks others.`,
    );
  if (data.points) said.push(`Curves are thinned to ${data.points} points.`);
  note("curves", said);
}

function drawScatter(chart, visible, group, column, better) {
  const scale = SCALES[column] ?? 1;
  const quality = data.task ? "loss" : "perplexity";
  const known = visible.filter((row) => isNumber(row[column]) && isNumber(row[quality]));
  const pointOf = (row) => ({
    x: row[column] * scale, y: row[quality], run: row.run, row, selected: row.run === state.run,
    text: () => [row.run, `${quality} ${shown(row[quality], quality)}`, `${title(column).toLowerCase()} ${shown(row[column], column)} ${unit(column)}`],
  }); // prettier-ignore
  const points = known.map(pointOf);
  const front = paretoFront(points, better);
  const drawn = points.length > MARKS ? [...new Set([...evenly(points, MARKS), ...front])] : points;
  const series = [...grouped(drawn, (point) => group(point.row))].map(([number, members]) => ({
    group: number,
    symbols: true,
    points: members,
  }));
  chart.draw({
    x: { title: labelled(column) },
    y: { title: `Validation ${quality}`, log: !data.task, format: data.task ? short : whole },
    series,
    fronts: front.length ? [front] : [],
    better,
  });
  const said = ["Ringed: the Pareto front, runs that no other beats in both."];
  if (drawn.length < points.length)
    said.push(`${counted(drawn.length)} of ${counted(points.length)} runs are drawn, the front whole.`);
  if (known.length < visible.length)
    said.push(`Runs without these numbers: ${counted(visible.length - known.length)}.`);
  note(chart.figure.id, said);
}

function drawHeads(visible, group, groupName) {
  const known = visible.filter((row) => isNumber(row.heads) && isNumber(row.loss));
  const by = (row) => ofObjective(state.by === "heads" ? row.variant : groupName(row), row);
  const series = [...grouped(known, by)].map(([name, members]) => {
    const points = [...grouped(members, (row) => row.heads)].map(([count, runs]) => {
      const { y, low, high, n } = spread(runs.map((row) => row.loss));
      const range = n > 1 ? ` (${low.toFixed(4)} to ${high.toFixed(4)}, ${n} runs)` : "";
      return {
        x: count,
        y,
        low,
        high,
        text: () => [name, `heads ${count}`, `validation loss ${y.toFixed(4)}${range}`],
        run: n === 1 ? runs[0].run : null,
      };
    });
    return {
      group: state.by === "heads" ? -1 : group(members[0]),
      line: true,
      symbols: true,
      points: points.sort((a, b) => a.x - b.x),
    };
  });
  const counts = [...new Set(known.map((row) => row.heads))];
  heads.draw({
    x: { title: "Heads", log: true, ticks: counts, format: String },
    y: { title: labelled("loss") },
    series,
  });
  const means = [...grouped(known, (row) => `${by(row)}\0${row.heads}`).values()];
  const mixed = telling.filter((column) => means.some((runs) => new Set(runs.map((row) => row[column])).size > 1));
  note(
    "heads",
    mixed.length
      ? [`Each point is the mean over ${mixed.join(", ")}; the band goes from the lowest to the highest run.`]
      : [],
  );
}

function drawParallel(what, shownRows) {
  // the first drawing gives the axes by which ranges keep rows
  parallel.draw({ ...what, rows: [] });
  const kept = shownRows.filter((row) => parallel.keeps(row, state.ranges));
  const drawn = evenly(kept, PATHS);
  parallel.draw({ ...what, rows: drawn });
  const said = [
    "Drag along an axis, or use its arrow keys, to keep the runs of a range in every panel; a click on it keeps all.",
  ];
  if (drawn.length < kept.length) said.push(`${drawn.length} of ${counted(kept.length)} lines are drawn.`);
  note("parallel", said);
}

function drawTable(visible, group) {
  const measured = data.columns.filter((column) => !data.settings.includes(column) && column !== "run");
  const differing = measured.filter(
    (column) => column === "loss" || new Set(rows.map((row) => String(row[column]))).size > 1,
  );
  const columns = [...telling, ...differing, "run"];
  table.draw({
    rows: visible,
    columns,
    order: data.columns.includes(state.sort.replace(/^-/, "")) ? state.sort : "loss",
    selected: state.run,
    group,
  });
  const same = data.columns.filter(
    (column) => !columns.includes(column) && !varying.includes(column) && rows[0][column] !== null,
  );
  const shared = same.map((column) =>
    html(
      "span",
      {},
      `${title(column)} `,
      html(
        "b",
        {},
        column === "wall_seconds"
          ? shown(rows[0][column], column)
          : `${shown(rows[0][column], column)} ${unit(column)}`.trim(),
      ),
    ),
  );
  byId("shared").replaceChildren(...(shared.length ? ["All runs: ", ...shared] : []));
  const chosen = rows.find((row) => row.run === state.run);
  const best = sortedBy(visible, "loss")[0];
  byId("chosen").hidden = !chosen;
  if (!chosen) return;
  const unlike = varying
    .filter((column) => best && chosen[column] !== best[column])
    .map((column) => `${column} ${shown(chosen[column], column)} (there ${shown(best[column], column)})`);
  const loss =
    best && isNumber(chosen.loss) && isNumber(best.loss)
      ? ` Validation loss ${shown(chosen.loss, "loss")}, there ${shown(best.loss, "loss")}.`
      : "";
  byId("chosen").replaceChildren(
    html("b", {}, chosen.run),
    chosen === best
      ? " has the lowest validation loss of the runs shown."
      : ` differs from the best run shown in ${unlike.join(", ") || "no setting"}.${loss}`,
  );
}

function note(id, said) {
  byId(id).querySelector(".note").textContent = said.join(" ");
}
