// The table of configurations: sorted by any column, their seeds folded out, a hundred rows at a time.
"use strict";

const NAME = 60; // letters of a name

/** The parts of a text that may stand in lines of their own: a long name breaks after an underscore. */
const breakable = (text) => text.split(/(?<=_)/).flatMap((part, place) => (place ? [html("wbr"), part] : [part]));

class Table {
  /** change(news): tells the page of a new `sort`, `pinned`, `open` or `rows` of its state; onSelect(name), of a chosen row. */
  constructor(element, change, onSelect) {
    Object.assign(this, { element, change, onSelect });
  }

  /** what: {rows, columns, sort, pinned, open, limit: rows at most, selected, group(row)}; a row has its `runs`. */
  draw(what) {
    this.what = what;
    this.columns = [
      ...what.columns.filter((column) => what.pinned.includes(column)),
      ...what.columns.filter((column) => !what.pinned.includes(column)),
    ];
    this.sorted = sortedBy(what.rows, what.sort);
    const head = html("tr", {}, this.heading("name"), ...this.columns.map((column) => this.heading(column)));
    const body = html("tbody", {}, ...this.sorted.slice(0, what.limit).flatMap((row) => this.lines(row)));
    const table = html(
      "table",
      {},
      html("caption", { class: "hidden" }, "Configurations"),
      html("thead", {}, head),
      body,
    );
    const parts = [
      html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of configurations" }, table),
    ];
    if (this.sorted.length > what.limit) {
      const more = html("button", { type: "button" }, `Show ${Math.min(ROWS, this.sorted.length - what.limit)} more`);
      more.addEventListener("click", () => this.change({ rows: what.limit + ROWS }));
      parts.push(
        html("p", { class: "note" }, `The first ${counted(what.limit)} of ${counted(this.sorted.length)} rows. `, more),
      );
    }
    // keep where the reader has scrolled to and what has the focus
    const { scrollLeft, scrollTop } = this.element.querySelector(".scroll") ?? {};
    const focused = this.element.contains(document.activeElement) ? document.activeElement.dataset : {};
    this.element.replaceChildren(...parts);
    this.pin();
    Object.assign(this.element.querySelector(".scroll"), { scrollLeft, scrollTop });
    for (const [key, value] of Object.entries(focused))
      this.element.querySelector(`[data-${key}="${CSS.escape(value)}"]`)?.focus();
  }

  /** Let the name and the pinned columns stay where they are when the others are scrolled away. */
  pin() {
    let left = 0;
    for (let place = 0; place <= this.what.pinned.filter((column) => this.columns.includes(column)).length; place++) {
      const cells = this.element.querySelectorAll(`tr > :nth-child(${place + 1})`);
      for (const cell of cells)
        (Object.assign(cell.style, { position: "sticky", left: `${left}px` }), cell.classList.add("pinned"));
      left += cells[0].getBoundingClientRect().width;
    }
  }

  heading(column) {
    const { sort, pinned } = this.what;
    const sorted = sort.replace(/^-/, "") === column;
    const down = sorted && sort.startsWith("-");
    const name = title(column) + (sorted ? (down ? " ▼" : " ▲") : "");
    const button = html("button", { type: "button", "data-column": column }, name);
    button.addEventListener("click", () => this.change({ sort: sorted && !down ? `-${column}` : column }));
    const heading = html(
      "th",
      { scope: "col", "aria-sort": sorted ? (down ? "descending" : "ascending") : "none", "data-title": name },
      button,
    );
    if (column !== "name") {
      const is = pinned.includes(column);
      const pin = html(
        "button",
        {
          type: "button",
          class: "pin",
          "aria-pressed": String(is),
          "data-pin": column,
          title: "Keep this column in sight",
        },
        "⇤",
      );
      pin.addEventListener("click", () => this.change({ pinned: toggled(pinned, column) }));
      heading.append(pin);
    }
    if (column in MEASURES && unit(column)) heading.append(html("small", {}, unit(column)));
    if (this.what.rows.some((row) => row.errors[column] > 0)) heading.append(html("small", {}, "± standard error"));
    if (this.isNumeric(column)) heading.className = "number";
    return heading;
  }

  /** The row of a configuration, and those of its runs where it is open. */
  lines(row) {
    const { colour, symbol } = look(this.what.group(row));
    const mark = svg(
      "svg",
      { viewBox: "-7 -7 14 14", width: 14, height: 14, "aria-hidden": "true" },
      svg("path", { d: symbol, style: `fill:${colour}` }),
    );
    const open = this.what.open.includes(row.name);
    const fold = html(
      "button",
      {
        type: "button",
        class: "fold",
        "aria-expanded": String(open),
        "data-fold": row.name,
        title: `Its ${row.runs.length} runs`,
      },
      open ? "▾" : "▸",
    );
    fold.addEventListener("click", (event) => {
      event.stopPropagation();
      this.change({ open: toggled(this.what.open, row.name) });
    });
    const name = html("button", { type: "button", "data-name": row.name, title: row.name }, ...breakable(cut(row.name, NAME)));
    const cells = this.columns.map((column) => {
      if (this.isNumeric(column)) return html("td", { class: "number" }, ...this.cell(row, column));
      const value = shown(row[column], column);
      return html("td", { title: value }, ...breakable(column === "seeds" ? value : cut(value)));
    });
    const line = html(
      "tr",
      { "aria-selected": String(row.name === this.what.selected) },
      html("th", { scope: "row" }, fold, mark, name),
      ...cells,
    );
    if (!row.compared || row.unlike) line.className = "rest";
    line.addEventListener("click", () => this.onSelect(row.name));
    return open ? [line, ...row.runs.map((run) => this.line(run))] : [line];
  }

  line(run) {
    const said = run.reason ? `${run.status}: ${run.reason}` : run.status;
    const name = html("button", { type: "button", "data-run": run.run, title: run.run }, ...breakable(cut(run.run, 36)));
    const cells = this.columns.map((column) =>
      html(
        "td",
        this.isNumeric(column) ? { class: "number" } : {},
        column === "seeds" ? said : column in run ? shown(run[column], column) : "",
      ),
    );
    const line = html("tr", { class: "run" }, html("th", { scope: "row" }, `seed ${run.seed}  `, name), ...cells);
    line.addEventListener("click", () => this.onSelect(run.of.name, run.run));
    return line;
  }

  /** A mean, and its standard error in small. */
  cell(row, column) {
    const error = row.errors[column];
    const text = shown(row[column], column);
    return isNumber(error) && error > 0 ? [text, html("small", {}, ` ±${shown(error, column)}`)] : [text];
  }

  /** All rows as text cells under their titles and units, as a person reads them. */
  text() {
    const cells = this.sorted.map((row) => [
      row.name + (row.unlike ? " *" : ""),
      ...this.columns.map((column) => this.cell(row, column).map((part) => part.textContent ?? part).join("")),
    ]);
    const notes = [
      ...(cells.flat().some((cell) => cell.includes("±")) ? ["±: standard error of the mean over seeds."] : []),
      ...(this.sorted.some((row) => row.unlike) ? ["*: over other seeds than the baseline's."] : []),
    ];
    return {
      notes,
      lines: [["Configuration", ...this.columns.map(title)], ...cells],
      units: ["", ...this.columns.map(unit)],
      numeric: [false, ...this.columns.map((column) => this.isNumeric(column))],
    };
  }

  /** All rows as text cells under the names of their columns, with all digits, for a program. */
  numbers() {
    const errors = this.columns.filter((column) => this.sorted.some((row) => isNumber(row.errors[column])));
    const columns = this.columns.flatMap((column) =>
      errors.includes(column) ? [column, `${column} standard error`] : [column],
    );
    const value = (row, column) =>
      column.endsWith(" standard error") ? row.errors[column.split(" ")[0]] : row[column];
    const cells = this.sorted.map((row) => [row.name, ...columns.map((column) => String(value(row, column) ?? ""))]);
    return { lines: [["configuration", ...columns], ...cells] };
  }

  isNumeric(column) {
    return this.what.rows.some((row) => isNumber(row[column]));
  }
}
