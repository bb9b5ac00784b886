// The heads of one run: what `attn heads` measured of each, which are alike, and how talking heads talk.
"use strict";

const HEAD_MEASURES = {
  entropy: "entropy of the weights (nats)",
  entropy_share: "entropy as a share of the largest possible",
  confidence: "largest weight on a token that is not special",
  special: "weight on special tokens",
  previous: "weight on the previous token",
  current: "weight on the token itself",
  next: "weight on the next token",
  rarest: "how often it looks at the rarest token",
  offset_share: "how often it looks at one offset",
  gradient: "importance by gradient (nats per predicted token)",
  gradient_in_layer: "importance by gradient, in its layer",
  relevance: "relevance, in its layer",
};

// the kinds of attention of an encoder-decoder; other models have one, without a name
const ATTENTIONS = {
  encoder: "self-attention of the encoder",
  decoder: "self-attention of the decoder",
  cross: "attention of the decoder to the encoder",
};

const ALIKE = 0.001; // nats: heads that are nearer than this are at one place
const NAMED = 12; // of them, the most that are named

/** The run whose heads are shown: the chosen one, or the first of the chosen configuration or of those shown. */
function runWithHeads(visible) {
  const measured = (run) => data.heads[run.number];
  const chosen = configurations.find((row) => row.name === state.chosen);
  return chosen ? (chosen.runs.find((run) => run.run === state.run && measured(run)) ?? chosen.runs.find(measured)) : visible.flatMap((row) => row.runs).find(measured);
}

function drawHeadsOfRun(visible) {
  const section = byId("of-run");
  section.hidden = !Object.keys(data.heads).length;
  byId("attention").parentElement.hidden = true;
  if (section.hidden) return;
  const row = runWithHeads(visible);
  const kinds = row && data.heads[row.number];
  const all = Object.keys(data.heads).length;
  const others = all > 1 ? ` ${counted(all)} runs here have their heads measured: choose one in a chart or the table.` : "";
  byId("whose").replaceChildren(
    ...(kinds ? [html("b", {}, row.run), `; attn heads writes its attention maps and more.${others}`] : [`attn heads has not measured those of the chosen configuration.${others}`]),
  );
  for (const id of ["measures", "plane", "projections"]) byId(id).hidden = !kinds;
  const found = kinds && numbersOfAttention(kinds);
  if (!found) return;
  drawMeasure(found);
  drawPlane(found);
  drawProjections(found);
}

/** The numbers of the chosen kind of attention, or of the first where the run has no such kind; fills the menu. */
function numbersOfAttention(kinds) {
  const names = Object.keys(kinds);
  const name = names.includes(state.attention) ? state.attention : names[0];
  fillMenu("attention", names, name, ATTENTIONS);
  return kinds[name];
}

function drawMeasure(found) {
  const names = Object.keys(found.measures);
  const name = names.includes(state.measure) ? state.measure : names[0];
  fillMenu("measure", names, name, HEAD_MEASURES);
  const values = found.measures[name];
  const known = values.flat().filter(isNumber);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  measures.draw({
    tiles: [{ title: "Layer (down), head (across)", values }],
    range: [low, high],
    most: 90,
    text: (tile, layer, head) => {
      // a layer may have other value heads than softmax heads: a role and a measure are of one of the two
      const alike = (of) => of[layer]?.length === values[layer].length;
      const is = alike(found.roles) ? `head ${head + 1}: ${found.roles[layer][head]}` : `value head ${head + 1}`;
      return [
        `layer ${layer + 1}, ${is}`,
        ...names
          .filter((each) => alike(found.measures[each]) && isNumber(found.measures[each][layer][head]))
          .map((each) => `${HEAD_MEASURES[each] ?? each}: ${found.measures[each][layer][head]}`),
      ];
    },
  });
  note("measures", [low < high ? `From ${low} (faint) to ${high} (full colour).` : `All are ${low}.`]);
}

function drawPlane(found) {
  plane.zoomed = state.zoom.plane ?? null;
  plane.draw({
    x: { title: "Distance, in two dimensions (nats)" },
    y: { title: "The same distance" },
    equal: true,
    series: [...grouped(found.plane, ([layer]) => layer)].map(([layer, heads]) => ({
      group: layer - 1,
      symbols: true,
      points: heads.map(([, head, x, y]) => ({
        x,
        y,
        text: () => [
          `layer ${layer}, head ${head}`,
          found.roles[layer - 1]?.[head - 1] ?? "",
          ...atOnePlace(found, layer, head, x, y),
        ],
      })),
    })),
    empty: "No distances were measured.",
  });
  note("plane", ["Heads that attend alike are near each other (Jensen-Shannon divergence, by multidimensional scaling)."]);
  const layers = [...new Set(found.plane.map(([layer]) => layer))];
  byId("plane").querySelector(".note").append(
    " Layers:",
    ...layers.map((layer) => {
      const { colour, symbol } = look(layer - 1);
      const mark = svg("path", { d: symbol, style: `fill:${colour}` });
      return html("span", { class: "key" }, svg("svg", { viewBox: "-7 -7 14 14", width: 14, height: 14 }, mark), String(layer));
    }),
  );
}

/** The other heads that lie where a head does, whose symbols cover each other. */
function atOnePlace(found, layer, head, x, y) {
  const covered = found.plane
    .filter((other) => Math.hypot(other[2] - x, other[3] - y) < ALIKE && !(other[0] === layer && other[1] === head))
    .map(([layer, head]) => `${layer}-${head}`);
  if (!covered.length) return [];
  const more = covered.length > NAMED ? ` and ${covered.length - NAMED} more` : "";
  return [`at the same place (layer-head): ${covered.slice(0, NAMED).join(", ")}${more}`];
}

function drawProjections(found) {
  const tiles = Object.entries(found.projections).flatMap(([name, layers]) =>
    layers.map((values, layer) => ({ title: `${name}, layer ${layer + 1}`, name, values })),
  );
  byId("projections").hidden = !tiles.length;
  if (!tiles.length) return;
  const most = Math.max(...tiles.flatMap((tile) => tile.values.flat().map(Math.abs)));
  projections.draw({
    tiles,
    across: Math.max(...Object.values(found.projections).map((layers) => layers.length)),
    range: [-most, most],
    diverging: true,
    text: (tile, from, to) => [tile.title, `head ${from + 1} into head ${to + 1}: ${tile.values[from][to]}`],
  });
  note("projections", [
    `An entry is how much of a head (down) goes into a mixed head (across). P_l mixes logits, and P_w mixes weights. Orange adds, and blue subtracts; full colour is ${most}.`,
  ]);
}
