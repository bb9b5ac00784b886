// The words of the filter: what they keep, what is wrong with them, how they go on. No page is needed here.
"use strict";

// between quotation marks a space or a comma is a letter like any other
const WORD = /(?:"[^"]*"?|[^\s"])+/g;
const VALUE = /(?:"[^"]*"?|[^,"])+/g;
const CONDITION = /^(!?)([^=<>!*"]+)(<=|>=|!=|=|<|>)(.*)$/;

/** {test(row), faults: [text]} of a person's words, all of which must hold:
    text of a name, key=a,b, key!=a, key<1, key<=1, key>1, key>=1; * stands for any text, ! before a word turns it round.
    Numbers are in the units of the page.
    A word that names nothing is said, and keeps every row if it is its key that nobody has. `shared`: what all rows
    have. `shown`: those of the rows that the page would show without a filter. */
function parsedFilter(text, columns, rows, shared = {}, shown = rows) {
  const faults = [];
  const say = (holds, word, nowhere) => {
    if (shown.some(holds)) return;
    faults.push(rows.some(holds) ? `${word} matches only runs that are not compared` : nowhere());
  };
  const tests = (text.match(WORD) ?? [])
    .map((word) => wordTest(word, columns, rows, shared, faults, say))
    .filter(Boolean);
  const test = (row) => tests.every((each) => each(row));
  if (tests.length && !faults.length && !shown.some(test)) faults.push("nothing that is compared matches all terms");
  return { test, faults };
}

function wordTest(word, columns, rows, shared, faults, say) {
  // the beginning of a word that is still being typed
  if (/^!?"?$/.test(word)) return null;
  const parts = CONDITION.exec(word);
  if (!parts) {
    const text = word.replace(/^!/, "");
    const wanted = pattern(`*${text.replaceAll('"', "")}*`);
    const holds = (row) => [row.name, ...(row.names ?? [])].some((name) => wanted.test(name));
    say(holds, text, () => `no name has ${text}`);
    return word.startsWith("!") ? (row) => !holds(row) : holds;
  }
  const [, not, column, sign, value] = parts;
  if (!columns.includes(column)) {
    const ofAll = Object.keys(shared);
    if (column === "seed") faults.push("seeds are averaged: attn dashboard seed=0,1 chooses some");
    else if (ofAll.includes(column)) faults.push(`all runs have ${column} ${shared[column]}`);
    else faults.push(`there is no ${column}${near(column, [...columns, ...ofAll])}`);
    return null;
  }
  const holds =
    sign.includes("=") && !/[<>]/.test(sign)
      ? isOneOf(column, value, rows, say)
      : isBeyond(column, sign, value, rows, faults, say);
  return holds && ((row) => (holds(row) !== (not === "!")) !== (sign === "!="));
}

/** What a row has in a column; a number in the unit that the page shows, without the error of the conversion. */
function inUnit(row, column) {
  const value = row[column];
  return isNumber(value) && column in SCALES ? Number((value * SCALES[column]).toPrecision(6)) : value;
}

const isKnown = (value) => value !== undefined && value !== null;

function isOneOf(column, value, rows, say) {
  const wanted = (value.match(VALUE) ?? []).map((one) => one.replaceAll('"', "")).filter(Boolean);
  // as it is, or with the digits that the page shows
  const matches = (row, one) =>
    Number(one) === inUnit(row, column) || [String(inUnit(row, column)), shown(row[column], column)].some((text) => pattern(one).test(text));
  for (const one of wanted) {
    say((row) => matches(row, one), `${column}=${one}`, () => {
      const known = [...new Set(sortedBy(rows, column).map((row) => inUnit(row, column)))].filter(isKnown);
      return `${column} is never ${one}${known.length <= 8 ? `: there are ${known.join(", ")}` : ""}`;
    });
  }
  return wanted.length ? (row) => wanted.some((one) => matches(row, one)) : null;
}

function isBeyond(column, sign, value, rows, faults, say) {
  const bound = Number(value);
  if (value === "") return null;
  if (!Number.isFinite(bound)) {
    faults.push(`${column}${sign}${value}: ${value} is no number`);
    return null;
  }
  const compare = { "<": (a) => a < bound, "<=": (a) => a <= bound, ">": (a) => a > bound, ">=": (a) => a >= bound }[
    sign
  ];
  const holds = (row) => isNumber(row[column]) && compare(inUnit(row, column));
  say(holds, `${column}${sign}${value}`, () => {
    const known = rows.map((row) => inUnit(row, column)).filter(isNumber).sort((a, b) => a - b);
    const reach = known.length ? `it is from ${known[0]} to ${known.at(-1)}` : "it is no number";
    return `${column} is never ${sign}${value}: ${reach}`;
  });
  return holds;
}

/** A regular expression of a word in which * is any text. */
function pattern(word) {
  const parts = word.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`, "i");
}

/** Whole texts that the one in the field may become: its last word with a key, or with a value that there is. */
function completions(text, columns, rows) {
  const word = [...text.matchAll(WORD)].at(-1);
  const last = word && word.index + word[0].length === text.length ? word[0] : "";
  const before = text.slice(0, text.length - last.length);
  const [, key, sign, value] = /^(!?[^=<>!]*)(!?=)?(.*)$/.exec(last);
  const column = key.replace(/^!/, "");
  const ends = sign
    ? [...new Set(rows.map((row) => inUnit(row, column)))]
        .filter(isKnown)
        .map((each) => `${key}${sign}${/[\s,]/.test(each) ? `"${each}"` : each}`)
    : columns.map((each) => `${last.startsWith("!") ? "!" : ""}${each}=`);
  const typed = sign ? `${key}${sign}${value}` : last;
  const plain = (word) => word.toLowerCase().replaceAll('"', "");
  return ends
    .filter((end) => plain(end).startsWith(plain(typed)) && end !== typed)
    .slice(0, 20)
    .map((end) => before + end);
}

/** ": did you mean heads?" where one of the names is near a word, or is a part of it or it of the name. */
function near(word, names) {
  const part = names.find((name) => name.endsWith(`.${word}`) || word.startsWith(`${name}.`));
  if (part) return `: did you mean ${part}?`;
  const found = names
    .map((name) => [edits(word.toLowerCase(), name.toLowerCase()), name])
    .sort((a, b) => a[0] - b[0])[0];
  return found && found[0] <= (word.length > 3 ? 2 : 1) ? `: did you mean ${found[1]}?` : "";
}

/** The letters that have to be put in, left out or replaced to make one word the other (Levenshtein). */
function edits(a, b) {
  let line = Array.from({ length: b.length + 1 }, (_, place) => place);
  for (const [row, letter] of [...a].entries()) {
    const next = [row + 1];
    for (const [column, other] of [...b].entries())
      next.push(Math.min(line[column] + (letter !== other), line[column + 1] + 1, next[column] + 1));
    line = next;
  }
  return line[b.length];
}
