// The table of runs: sorted by any column, a hundred rows at a time.
"use strict";

const ROWS = 100;

class Table {
  /** onSort(order) is told of a clicked column, onSelect(run) of a chosen row. */
  constructor(element, onSort, onSelect) {
    Object.assign(this, { element, onSort, onSelect, limit: ROWS });
  }

  /** what: {rows, columns, order, selected, look(row)}. */
  draw(what) {
    this.what = what;
    const head = html(
      "tr",
      {},
      html("th", { class: "mark" }, html("span", { class: "hidden" }, "group")),
      ...what.columns.map((column) => this.heading(column)),
    );
    const rows = sortedBy(what.rows, what.order);
    const body = html("tbody", {}, ...rows.slice(0, this.limit).map((row) => this.row(row)));
    const table = html("table", {}, html("caption", { class: "hidden" }, "Runs"), html("thead", {}, head), body);
    const parts = [html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of runs" }, table)];
    if (rows.length > this.limit) {
      const more = html("button", { type: "button" }, `Show ${Math.min(ROWS, rows.length - this.limit)} more`);
      more.addEventListener("click", () => {
        this.limit += ROWS;
        this.draw(this.what);
      });
      const said = `The first ${counted(this.limit)} of ${counted(rows.length)} rows. `;
      parts.push(html("p", { class: "note" }, said, more));
    }
    // keep where the reader has scrolled to and what has the focus
    const left = this.element.querySelector(".scroll")?.scrollLeft ?? 0;
    const focused = this.element.contains(document.activeElement) ? document.activeElement.dataset : {};
    this.element.replaceChildren(...parts);
    this.element.querySelector(".scroll").scrollLeft = left;
    for (const [key, value] of Object.entries(focused))
      this.element.querySelector(`[data-${key}="${CSS.escape(value)}"]`)?.focus();
  }

  heading(column) {
    const { order } = this.what;
    const sorted = order.replace(/^-/, "") === column;
    const down = sorted && order.startsWith("-");
    const arrow = sorted ? (down ? " ▼" : " ▲") : "";
    const button = html("button", { type: "button", "data-column": column }, title(column) + arrow);
    button.addEventListener("click", () => this.onSort(sorted && !down ? `-${column}` : column));
    const of = column in MEASURES && unit(column) ? [html("small", {}, unit(column))] : [];
    const heading = html(
      "th",
      { scope: "col", "aria-sort": sorted ? (down ? "descending" : "ascending") : "none" },
      button,
      ...of,
    );
    if (this.isNumeric(column)) heading.className = "number";
    return heading;
  }

  row(row) {
    const { colour, symbol } = look(this.what.group(row));
    const mark = svg(
      "svg",
      { viewBox: "-7 -7 14 14", width: 14, height: 14, "aria-hidden": "true" },
      svg("path", { d: symbol, style: `fill:${colour}` }),
    );
    const cells = this.what.columns.map((column) => {
      if (column === "run") {
        const button = html("button", { type: "button", "data-run": row.run }, row.run);
        return html("th", { scope: "row" }, button);
      }
      return html("td", this.isNumeric(column) ? { class: "number" } : {}, shown(row[column], column));
    });
    const line = html(
      "tr",
      { "aria-selected": String(row.run === this.what.selected) },
      html("td", { class: "mark" }, mark),
      ...cells,
    );
    line.addEventListener("click", () => this.onSelect(row.run));
    return line;
  }

  isNumeric(column) {
    return this.what.rows.some((row) => isNumber(row[column]));
  }
}
