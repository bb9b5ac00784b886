// What is better than the baseline, by how much and how surely: the sentence at the top and the forest plot.
// The numbers and words are Python's.
"use strict";

// marks what would be decided without Holm's correction
const ALONE = "alone";
const SHARE = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });

/** Which configuration is best, by how much and how surely, in sentences. */
function drawAnswer(shownRows, baseline) {
  byId("answer").replaceChildren(...answer(shownRows, baseline), ...conditionsOfAnswer());
}

const named = (row) => html("b", {}, row.name);
const countOthers = (number) => (number === 1 ? "1 other" : `${counted(number)} others`);

const amongOthers = (number, all) =>
  number < all ? `${number} of the ${all} others` : all === 1 ? "the other" : `all ${all} others`;

function answer(shownRows, baseline) {
  if (!baseline) return ["No run has finished: there is nothing to compare yet."];
  const found = differencesFrom(baseline, shownRows);
  if (shownRows.every((row) => row === baseline))
    return [
      "There is nothing to compare ",
      named(baseline),
      ` with. Its validation loss is ${lossAndInterval(baseline)} (${counts(baseline.ended.length, "seed")}).`,
    ];
  if (!found.length) return ["Nothing shares a seed with ", named(baseline), ": there is no difference to show."];
  // a few lucky seeds show nothing
  const surest = found.filter((row) => isNumber(row.difference.half));
  const [lowest] = surest.length ? surest : found;
  const isLowest = lowest === found[0];
  const better = found.filter((row) => row.difference.word === "better");
  if (better.length)
    return [
      named(better[0]),
      " is better than ",
      named(baseline),
      " by ",
      ...howMuch(better[0]),
      better.length > 1 ? `. ${better.length === 2 ? "So is" : "So are"} ${countOthers(better.length - 1)}.` : ".",
      ...(lowest === better[0]
        ? []
        : [` The lowest mean ${isLowest ? "" : "with an interval "}is that of `, named(lowest), ", lower by ", ...howMuch(lowest), outcome(lowest, baseline)]),
    ];
  const worse = found.filter((row) => row.difference.word === "worse").length;
  const alone = found.filter((row) => row.difference.word === `worse ${ALONE}`).length;
  return [
    "Nothing is shown to be better than ",
    named(baseline),
    ...(worse ? [`, which is better than ${amongOthers(worse, found.length)}`] : []),
    // which may be higher than the baseline's
    `. Of the others, the lowest mean ${isLowest ? "" : "with an interval "}is that of `,
    named(lowest),
    `, ${lowest.difference.mean < 0 ? "lower" : "higher"} by `,
    ...howMuch(lowest),
    outcome(lowest, baseline),
    ...(alone ? [` Compared alone, ${counts(alone, "other is", "others are")} worse than the baseline.`] : []),
  ];
}

/** By how much a loss is lower or higher, and how surely: a positive number, and its interval in the same direction. */
function howMuch({ difference: { mean, half: width, n } }) {
  const [low, high] = [-width, width].map((end) => withMinus(FORMATS[4].format(Math.abs(mean) + end)));
  const sure = isNumber(width) ? `95% interval ${low} to ${high}` : "no interval yet: it takes four seeds";
  const share = SHARE.format(Math.abs(100 * Math.expm1(mean)));
  const perplexity = data.task ? "" : `perplexity ${share}% ${mean < 0 ? "lower" : "higher"}; `;
  return [
    html("b", {}, lossText(FORMATS[4].format(Math.abs(mean)))),
    ` of validation loss (${perplexity}${sure}; ${counts(n, "shared seed")})`,
  ];
}

/** What follows from a difference, and why nothing does. */
function outcome({ difference: { word, why } }, baseline) {
  const among = `compared alone, not resolved among ${counts(family(baseline), "comparison")}`;
  const said = word.endsWith(ALONE) ? word.replace(ALONE, among) : word;
  return `: ${said}${why ? `${word === "not tested" ? ", because" : ";"} ${why}` : ""}.`;
}

/** The conditions of what is compared, if there are others. */
function conditionsOfAnswer() {
  const number = data.comparisons.length - 1;
  if (!number) return [];
  const other = number === 1 ? "the other" : `${number} other`;
  const said = ` These are the runs with ${comparison().says}. Compare selects those of ${other} conditions.`;
  return [html("span", { class: "conditions" }, said)];
}

/** The number of differences from the baseline that verdicts allow for. A single pair of runs can show nothing. */
const family = (baseline) =>
  Object.values(comparison().differences[baseline?.number] ?? {}).filter(({ n }) => n > 1).length;

/** The configurations that share seeds with the baseline, each with its difference, the best first. */
function differencesFrom(baseline, shownRows) {
  const known = comparison().differences[baseline.number] ?? {};
  const found = shownRows.filter((row) => known[row.number]).map((row) => ({ ...row, difference: known[row.number] }));
  return found.sort((a, b) => a.difference.mean - b.difference.mean);
}

const interval = ({ mean, half }) => `[${signed(mean - half)}, ${signed(mean + half)}]`;

function drawForest(shownRows, baseline, group) {
  const found = baseline ? differencesFrom(baseline, shownRows) : [];
  const more = (row) => {
    const share = row.parameters / baseline.parameters - 1;
    return Math.abs(share) >= 0.005
      ? `parameters ${share > 0 ? "+" : "−"}${Math.abs(100 * share).toFixed(0)}%`
      : "parameters as many";
  };
  forest.draw({
    title: lossTitle("Mean difference of validation loss from the baseline, paired by seed"),
    brief: lossTitle("Difference from the baseline"),
    heading: ["difference, 95% interval", "seeds", "verdict"],
    zero: {}, margin: data.margin, empty: "Nothing to compare with the baseline.",
    rows: found.slice(0, RUNGS).map((row) => {
      const { mean, half: width, n, word, why, seeds } = row.difference;
      const sure = isNumber(width) ? interval({ mean, half: width }) : "no interval";
      return {
        group: group(row), name: row.name, mean, half: width, seeds, word, aside: word === "not tested" || !isNumber(width), hollow: !isNumber(width), key: row.name, selected: row.name === state.chosen,
        numbers: [`${signed(mean)}  ${sure}`, String(n)],
        text: () => [row.name, `${lossText(signed(mean))} ${sure}, ${counts(n, "shared seed")}`, `${word} ${word === "better" || word === "worse" ? `than ${baseline.name}` : ""}`, ...(why ? [why] : []), more(row)],
      };
    }),
  }); // prettier-ignore
  const without = shownRows.filter((row) => row !== baseline).length - found.length;
  const compared = family(baseline);
  const said = [
    `${baseline ? `The baseline is ${baseline.name}` : "There is no baseline"}.`,
    ...(found.length
      ? [
          "The intervals are anytime-valid: you may look whenever you like.",
          `In the shaded band, a difference is below ${lossText(data.margin)}. Small dots are seeds.`,
        ]
      : []),
    ...(compared > 1 ? [`Verdicts allow for ${counts(compared, "comparison")} (Holm's correction).`] : []),
  ];
  if (found.some((row) => row.difference.half === null)) said.push("Hollow means have no interval yet, because it needs four shared seeds.");
  if (found.some((row) => row.difference.word.endsWith(ALONE)))
    said.push(`A difference with the word ${ALONE} would be decided as the only comparison; among this many it needs more seeds.`);
  if (found.length > RUNGS) said.push(`The best ${RUNGS} of ${counted(found.length)} are drawn.`);
  if (without)
    said.push(`${counts(without, "configuration shares", "configurations share")} no seed with the baseline.`);
  note("forest", said);
}
