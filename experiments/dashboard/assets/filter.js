// The words of the filter: what they keep, what is wrong with them, how they go on. No page is needed here.
"use strict";

const WORD = /!?"[^"]*"?|\S+/g;
const CONDITION = /^(!?)([^=<>!*"]+)(<=|>=|!=|=|<|>)(.*)$/;

/** {test(row), faults: [text]} of a person's words, all of which must hold:
    text of a name, key=a,b, key!=a, key<1, key<=1, key>1, key>=1; * stands for any text, ! before a word turns it round.
    A word that names nothing is said, and keeps every row if it is its key that nobody has. `shared`: what all rows have. */
function parsedFilter(text, columns, rows, shared = {}) {
  const faults = [];
  const tests = (text.match(WORD) ?? []).map((word) => wordTest(word, columns, rows, shared, faults)).filter(Boolean);
  return { test: (row) => tests.every((test) => test(row)), faults };
}

function wordTest(word, columns, rows, shared, faults) {
  // the beginning of a word that is still being typed
  if (/^!?"?$/.test(word)) return null;
  const parts = CONDITION.exec(word);
  if (!parts) {
    const wanted = pattern(`*${word.replace(/^!/, "").replaceAll('"', "")}*`);
    const holds = (row) => [row.name, ...(row.names ?? [])].some((name) => wanted.test(name));
    if (!rows.some(holds)) faults.push(`no name has ${word.replace(/^!/, "")}`);
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
      ? isOneOf(column, value, rows, faults)
      : isBeyond(column, sign, value, faults);
  return holds && ((row) => (holds(row) !== (not === "!")) !== (sign === "!="));
}

function isOneOf(column, value, rows, faults) {
  const wanted = value.replaceAll('"', "").split(",").filter(Boolean);
  const matches = (row, one) =>
    (isNumber(row[column]) && one !== "" && Number(one) === row[column]) || pattern(one).test(String(row[column]));
  for (const one of wanted) {
    if (rows.some((row) => matches(row, one))) continue;
    const known = [...new Set(rows.map((row) => row[column]))];
    faults.push(`${column} is never ${one}${known.length <= 8 ? `: there are ${known.join(", ")}` : ""}`);
  }
  return wanted.length ? (row) => wanted.some((one) => matches(row, one)) : null;
}

function isBeyond(column, sign, value, faults) {
  const bound = Number(value);
  if (value === "") return null;
  if (!Number.isFinite(bound)) {
    faults.push(`${column}${sign}${value}: ${value} is no number`);
    return null;
  }
  const compare = { "<": (a) => a < bound, "<=": (a) => a <= bound, ">": (a) => a > bound, ">=": (a) => a >= bound }[
    sign
  ];
  return (row) => isNumber(row[column]) && compare(row[column]);
}

/** A regular expression of a word in which * is any text. */
function pattern(word) {
  const parts = word.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`, "i");
}

/** Whole texts that the one in the field may become: its last word with a key, or with a value that there is. */
function completions(text, columns, rows) {
  const [, before, last] = /^(.*?)(\S*)$/.exec(text);
  const [, key, sign, value] = /^(!?[^=<>!]*)(!?=)?(.*)$/.exec(last);
  const column = key.replace(/^!/, "");
  const ends = sign
    ? [...new Set(rows.map((row) => row[column]))]
        .filter((each) => each !== undefined && each !== null)
        .map((each) => `${key}${sign}${/\s/.test(each) ? `"${each}"` : each}`)
    : columns.map((each) => `${last.startsWith("!") ? "!" : ""}${each}=`);
  const typed = sign ? `${key}${sign}${value}` : last;
  return ends
    .filter((end) => end.toLowerCase().startsWith(typed.toLowerCase()) && end !== typed)
    .slice(0, 20)
    .map((end) => before + end);
}

/** ": did you mean heads?" where one of the names is near a word. */
function near(word, names) {
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
