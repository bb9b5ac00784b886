// The learning curves: means of configurations with their intervals, seeds, and differences from the baseline.
"use strict";

/** The columns of a run's curve; where its points stand is said once, by those of its configuration. */
function curveOf(run, kind) {
  const own = data.curves.runs[run.number]?.[kind];
  return own && { ...data.curves.means[run.of.number][kind], half: null, ...own };
}

/** The points {x, y, low, high} of a curve's columns. */
function pointsOf(columns, x, name, of) {
  const values = state.smooth ? smoothed(columns[name] ?? [], state.smooth) : (columns[name] ?? []);
  return values
    .map((y, place) => {
      const width = name === "loss" && !state.smooth ? columns.half?.[place] : null;
      return {
        x: columns[x]?.[place],
        y: of(y),
        low: isNumber(width) ? of(y - width) : undefined,
        high: isNumber(width) ? of(y + width) : undefined,
        n: place,
      };
    })
    .filter((point, place) => isNumber(point.x) && isNumber(values[place]));
}

/** The mean difference of a configuration from the baseline at the steps that their shared seeds have. */
function differenceCurve(row, baseline) {
  const pairs = row.ended
    .map((run) => [run, baseline.ended.find((other) => other.seed === run.seed)])
    .filter(([, other]) => other);
  const curves = pairs.map((pair) => pair.map((run) => curveOf(run, "validation")));
  if (!curves.length || curves.some((pair) => pair.some((curve) => !curve?.step))) return {};
  const at = (curve, column, step) => curve[column]?.[curve.step.indexOf(step)];
  const steps = curves[0][0].step.filter((step) =>
    curves.every((pair) => pair.every((curve) => isNumber(at(curve, "loss", step)))),
  );
  const mean = (of) => steps.map((step) => curves.reduce((sum, pair) => sum + of(pair, step), 0) / curves.length);
  return {
    step: steps,
    loss: mean(([own, other], step) => at(own, "loss", step) - at(other, "loss", step)),
    tokens: mean(([own], step) => at(own, "tokens", step)),
    seconds: mean(([own], step) => at(own, "seconds", step)),
  };
}

function drawCurves(shownRows, others, group, baseline) {
  const [kind, column, yTitle, of = (value) => value] = QUANTITIES[state.y];
  const [menuName, xTitle, format, place, round] = AXES[state.x];
  const isDifference = state.y === DIFFERENCE;
  const isLoss = column === "loss";
  const number = (value) =>
    isDifference
      ? signed(value)
      : of === Math.exp
        ? shown(value, "perplexity")
        : isLoss
          ? shown(value, "loss")
          : short(value);
  const known = shownRows.filter((row) => data.curves.means[row.number]);
  const drawn = state.lines === "runs" && isLoss && !isDifference ? [] : evenly(known, LINES);
  const told = (name, point, more = "") => [
    name,
    `${state.y} ${number(point.y)}${more}`,
    `${menuName} ${format === duration ? duration(point.x) : counted(point.x)}`,
  ];
  const line = (row, columns, more) => {
    const points = pointsOf(columns, place, column, of);
    const width = (point) => (isNumber(point.high) ? ` [${number(point.low)}, ${number(point.high)}]` : "");
    return { group: group(row), name: row.name, label: row.name, line: true, symbols: points.length <= 30, selected: row.name === state.chosen, ...more,
      points: points.map((point) => ({ ...point, key: row.name, hollow: row.unlike && !more && !isDifference, text: () => told(more?.name ?? row.name, point, more ? "" : `${width(point)}, ${counts(row.ended.length, "seed")}`) })) }; // prettier-ignore
  };
  const ofRun = (run, more) =>
    line(run.of, curveOf(run, kind) ?? {}, { name: `${run.of.name}, seed ${run.seed}`, label: null, ...more });
  const series =
    isDifference && baseline
      ? drawn
          .filter((row) => row !== baseline)
          .map((row) =>
            withInterval(
              line(row, differenceCurve(row, baseline)),
              comparison().differences[baseline.number]?.[row.number],
            ),
          )
      : drawn.map((row) => line(row, data.curves.means[row.number][kind]));
  const runsOf = (rows) =>
    evenly(
      rows.flatMap((row) => row.ended),
      LINES,
    );
  if (isLoss && !isDifference) {
    if (state.lines === "runs") series.push(...runsOf(known).map((run) => ofRun(run)));
    // without an interval the seeds show how much they differ; with one, those of the configuration that is chosen
    else
      series.unshift(
        ...runsOf(
          known.filter((row) => row.ended.length > 1 && (row.name === state.chosen || half(row, "loss") === null)),
        ).map((run) => ofRun(run, { faint: true, symbols: false })),
      );
    series.push(
      ...evenly(
        others.rows.filter((row) => data.curves.means[row.number]),
        LINES,
      ).map((row) =>
        line(row, data.curves.means[row.number][kind], { name: row.name, label: null, hollow: true, symbols: false }),
      ),
    );
    series.push(
      ...others.runs
        .filter((run) => data.curves.runs[run.number])
        .slice(0, LINES)
        .map((run) => ofRun(run, { hollow: true })),
    );
  }
  const guess = data.task ? "frequencies of the targets" : "single-token frequencies";
  const { unigram } = comparison();
  const guides = isDifference
    ? [{ y: 0, name: baseline?.name ?? "", reached: true }]
    : isLoss && unigram !== null
      ? [{ y: of(unigram), name: guess }]
      : [];
  const shownSeries = series.filter((each) => each.points.length);
  if (shownSeries.length > MARKED) for (const each of shownSeries) each.symbols = false;
  curves.zoomed = state.zoom.curves ?? null;
  const xNumber = (x) => `${menuName} ${format === duration ? duration(x) : counted(Math.round(x))}`;
  curves.draw({
    x: { title: xTitle, format, round, log: state.logx, number: xNumber },
    y: { title: yTitle, log: (state.logy || of === Math.exp) && !isDifference, format: of === Math.exp ? whole : short, number },
    series: shownSeries, guides, across: true,
    empty: "None of these runs has reached an evaluation.",
  }); // prettier-ignore
  sayCurves(shownSeries, known, shownRows, isDifference);
}

/** A difference's last point with the interval that the forest plot shows; between its points nothing is tested. A
    smoothed point is not the difference that the interval is of. */
function withInterval(series, difference) {
  const last = series.points.at(-1);
  if (last && !state.smooth && isNumber(difference?.half))
    Object.assign(last, { low: last.y - difference.half, high: last.y + difference.half, whisker: true });
  return series;
}

function sayCurves(series, known, shownRows, isDifference) {
  const said = [];
  if (isDifference)
    said.push(
      `Lines are means over shared seeds.${state.smooth ? "" : " The bar at the end of a line is the interval of the last evaluation, as above."}`,
    );
  else if (state.lines === "means")
    said.push(
      "Lines are means over finished seeds, and bands are their 95% intervals, which need four seeds. Thin lines are seeds.",
    );
  if (!isDifference && state.lines === "means" && known.some((row) => row.unlike)) {
    const isMarked = series.some((each) => each.symbols && each.points.some((point) => point.hollow));
    const means = isMarked ? "Hollow symbols are means" : "Some means are";
    said.push(`${means} over other seeds than the baseline's; compare only their differences.`);
  }
  if (state.smooth) said.push(`Curves are smoothed by an exponential mean; the weight of the past is ${state.smooth}.`);
  if (series.some((each) => each.hollow)) said.push("Faint, dotted curves are not finished, or have other conditions.");
  if (state.lines === "means" && known.length > LINES)
    said.push(`${LINES} of ${counted(known.length)} lines are drawn: filter to see others.`);
  const without = shownRows.length - known.length;
  if (without)
    said.push(
      `${counted(known.length)} of these ${counts(shownRows.length, "configuration")} have their curves in this file, spread evenly by loss: attn dashboard with key=value words picks others.`,
    );
  if (data.points) said.push(`Curves are thinned to ${data.points} points.`);
  note("curves", said);
}
