// What is better than the baseline, by how much and how surely: the sentence at the top and the forest plot.
// The numbers and words are Python's.
"use strict";

// marks what would be decided without Holm's correction
const ALONE = "alone";

/** Which configuration is best, by how much and how surely, in a sentence. */
function drawAnswer(shownRows, baseline) {
  const found = baseline ? differencesFrom(baseline, shownRows) : [];
  const parts = (row) => {
    const { mean, n } = row.difference;
    const by = html("b", {}, `${Math.abs(mean).toFixed(3)} nats`);
    const sure = isNumber(row.difference.half)
      ? `95% interval ${interval(row.difference)}`
      : "no interval yet: it takes four seeds";
    return [by, ` (${sure}; ${counts(n, "shared seed")})`];
  };
  const better = found.filter((row) => row.difference.word === "better");
  const worse = found.filter((row) => row.difference.word === "worse").length;
  const alone = found.filter((row) => row.difference.word === `worse ${ALONE}`).length;
  const [lowest] = found;
  const because = ({ word, why }) => (why ? `, ${word === "not tested" ? "because " : ""}${why}` : "");
  const why = ({ difference }) => `: ${difference.word}${because(difference)}.`;
  const named = (row) => html("b", {}, row.name);
  const sentence = better.length
    ? [
        named(better[0]),
        " is better than ",
        named(baseline),
        " by ",
        ...parts(better[0]),
        better.length > 1 ? `. ${better.length === 2 ? "So is 1 other" : `So are ${better.length - 1} others`}.` : ".",
        ...(lowest === better[0] ? [] : [" The lowest mean is that of ", named(lowest), ", lower by ", ...parts(lowest), why(lowest)]),
      ]
    : !baseline
      ? ["No run has finished: there is nothing to compare yet."]
      : !found.length
        ? ["Nothing shares a seed with ", named(baseline), ": there is no difference to show."]
        : [
            "Nothing is shown to be better than ",
            named(baseline),
            ...(worse ? [`, which is better than ${worse} of the ${found.length} others`] : []),
            // which may be higher than the baseline's
            ". Of the others, the lowest mean is that of ",
            named(lowest),
            `, ${lowest.difference.mean < 0 ? "lower" : "higher"} by `,
            ...parts(lowest),
            why(lowest),
            ...(alone ? [` Compared alone, ${counts(alone, "other is", "others are")} worse than the baseline.`] : []),
          ];
  byId("answer").replaceChildren(...sentence);
}

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
    title: "Mean difference of validation loss from the baseline, paired by seed (nats)",
    brief: "Difference from the baseline (nats)",
    heading: ["difference, 95% interval", "seeds", "verdict"],
    zero: {}, margin: data.margin, empty: "Nothing to compare with the baseline.",
    rows: found.slice(0, RUNGS).map((row) => {
      const { mean, half: width, n, word, why, seeds } = row.difference;
      const sure = isNumber(width) ? interval({ mean, half: width }) : "no interval";
      return {
        group: group(row), name: row.name, mean, half: width, seeds, word, aside: word === "not tested" || !isNumber(width), hollow: !isNumber(width), key: row.name, selected: row.name === state.chosen,
        numbers: [`${signed(mean)}  ${sure}`, String(n)],
        text: () => [row.name, `${signed(mean)} nats ${sure}, ${counts(n, "shared seed")}`, `${word} ${word === "better" || word === "worse" ? `than ${baseline.name}` : ""}`, ...(why ? [why] : []), more(row)],
      };
    }),
  }); // prettier-ignore
  const without = shownRows.filter((row) => row !== baseline).length - found.length;
  const all = Object.values(comparison().differences[baseline?.number] ?? {});
  const family = all.filter(({ n }) => n > 1).length;
  const said = [
    `${baseline ? `The baseline is ${baseline.name}` : "There is no baseline"}. The intervals are anytime-valid: you may look whenever you like. Verdicts allow for ${counts(family, "comparison")} (Holm's correction). In the shaded band, a difference is below ${data.margin} nats. Small dots are seeds.`,
  ];
  if (found.some((row) => row.difference.half === null)) said.push("Hollow means have no interval yet, because it needs four shared seeds.");
  if (found.some((row) => row.difference.word.endsWith(ALONE)))
    said.push(`A difference with the word ${ALONE} would be decided as the only comparison; among this many it needs more seeds.`);
  if (found.length > RUNGS) said.push(`The best ${RUNGS} of ${counted(found.length)} are drawn.`);
  if (without)
    said.push(`${counts(without, "configuration shares", "configurations share")} no seed with the baseline.`);
  note("forest", said);
}
