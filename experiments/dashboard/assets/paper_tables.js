// The papers' tables that `attn table` has rendered from these runs, each with the verdicts on its claims.
"use strict";

const VERDICTS = {
  "holds": "\u2713",
  "reversed": "\u2717",
  "no difference": "=",
  "depends": "\u00b1",
  "not resolved": "?",
  "not tested": "\u2013",
};

function drawPaperTables() {
  const section = byId("papers");
  section.hidden = !data.tables.length;
  const about = "Made by attn table. A verdict rests on differences paired by seed, with Holm's correction over the claims of a table.";
  byId("papers-note").textContent = about;
  byId("paper-tables").replaceChildren(...data.tables.map(paperTable));
}

function paperTable(made, place) {
  const verdicts = made.claims.map(({ key, word }) => verdictMark(key, word));
  const summary = html("summary", {}, html("b", {}, made.title), ` (${made.name}, ${made.budget}) `, ...verdicts);
  const parts = [html("p", {}, made.shows), ...made.tables.map((lines) => scrolling(plainTable(lines), made.title))];
  parts.push(...made.notes.map((text) => html("p", { class: "note" }, text)));
  for (const { key, word, says, lines } of made.claims) {
    const items = lines.map((line) => html("li", {}, line));
    parts.push(html("p", {}, verdictMark(key, word), ` ${says}`), html("ul", {}, ...items));
  }
  const facts = made.facts.map(([name, fact]) => html("li", {}, html("b", {}, name), `: ${fact}`));
  parts.push(html("ul", { class: "facts" }, ...facts));
  return foldable(html("details", place === 0 ? { open: "" } : {}, summary, ...parts), `${made.name} ${made.budget}`);
}

/** What became of a claim: sign, colour and word say the same. */
function verdictMark(key, word) {
  const kind = word.replace(" ", "-");
  return html("span", { class: `verdict ${kind}`, title: word }, `${VERDICTS[word]} ${key}`);
}

function scrolling(element, name) {
  return html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Table: ${name}` }, element);
}

/** Lines of equal keys, whose cells are text or null. */
function plainTable(lines) {
  const columns = Object.keys(lines[0]);
  const looksNumeric = (text) => /^[-+]?[\d.,]+( \S+)?$/.test(text ?? "");
  const side = Object.fromEntries(
    columns.map((column) => [column, lines.some((line) => looksNumeric(line[column])) ? "number" : ""]),
  );
  const head = columns.map((column) => html("th", { class: side[column], scope: "col" }, column.replaceAll("_", " ")));
  const body = lines.map((line) => html("tr", {}, ...columns.map((column) => html("td", { class: side[column] }, line[column] ?? ""))));
  return html("table", {}, html("thead", {}, html("tr", {}, ...head)), html("tbody", {}, ...body));
}
