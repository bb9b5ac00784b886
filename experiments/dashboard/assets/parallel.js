// Parallel coordinates: an axis a column, a line a configuration. A range dragged on an axis keeps those inside it: a list
// of values on an axis of values, the two ends on an axis of measured numbers.
"use strict";

const STOPS = 4; // parts of a measured axis that the arrow keys choose
const AXIS = { top: 44, bottom: 20, side: 70, reach: 22, height: 320, letters: 10 };

/** From half a place before the first of some places to half a place after the last. */
const around = (places) => places.length && [Math.min(...places) - 0.5, Math.max(...places) + 0.5];

class Parallel {
  /** onRange(column, range or null) is told of a chosen range, onSelect(run) of a clicked line. */
  constructor(figure, onRange, onSelect) {
    Object.assign(this, { figure, onRange, onSelect });
    this.surface = svg("svg", { class: "chart", role: "group", "aria-label": figure.dataset.name, ...describedBy(figure) });
    this.tip = html("div", { class: "tip", role: "status", hidden: "" });
    this.scroll = html("div", { class: "scroll" }, this.surface);
    toolbar(
      figure,
      pictureButtons(figure, () => this.surface),
    );
    figure.append(this.scroll, this.tip);
    new ResizeObserver(() => this.what && this.draw(this.what)).observe(figure);
  }

  /** what: {axes: [{column, ordinal}], rows, all (rows that span the axes), group(row), ranges, selected}. */
  draw(what) {
    this.what = what;
    const width = Math.max(this.scroll.clientWidth, 2 * AXIS.side + 112 * (what.axes.length - 1));
    // what was drawn before must not hold the panel open
    this.surface.style.height = `${AXIS.height}px`;
    const height = Math.max(AXIS.height, this.scroll.clientHeight);
    this.surface.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.surface.style.width = `${width}px`;
    this.surface.style.height = `${height}px`;
    const gap = (width - 2 * AXIS.side) / Math.max(1, what.axes.length - 1);
    // of a value, which must not reach the next axis
    this.letters = Math.max(AXIS.letters, Math.floor((gap - 20) / (WIDE * fontSize(this.surface))));
    this.axes = what.axes.map((axis, place) => this.axis(axis, AXIS.side + place * gap, height));
    const lines = what.rows.map((row) => this.line(row));
    this.surface.replaceChildren(svg("g", {}, ...lines), ...this.axes.map((axis) => this.drawn(axis, height)));
  }

  axis({ column, ordinal }, at, height) {
    const known = this.what.all.map((row) => row[column]).filter((value) => value !== null && value !== undefined);
    const ends = [height - AXIS.bottom, AXIS.top];
    if (ordinal || !known.every(isNumber)) {
      const values = sortedBy(
        [...new Set(known)].map((value) => ({ value })),
        "value",
      ).map(({ value }) => value);
      const places = new Map(values.map((value, place) => [value, place]));
      return {
        column, at, values, scale: new Scale([-0.3, values.length - 0.7], ends, false), stops: values.map((value) => [value]),
        place: (row) => places.get(row[column]) ?? -1,
        range: ([low, high]) => values.filter((_, place) => place >= low && place <= high),
        ends: (range) => around(range.map((value) => places.get(value)).filter(isNumber)),
        keeps: (row, range) => range.includes(row[column]),
        said: (range) => range.map((value) => shown(value, column)).join(", "),
      }; // prettier-ignore
    }
    const [low, high] = extent(known, false);
    const stops = Array.from({ length: STOPS }, (_, part) => [
      low + ((high - low) * part) / STOPS,
      low + ((high - low) * (part + 1)) / STOPS,
    ]);
    return {
      column, at, stops, scale: new Scale([low, high], ends, false),
      place: (row) => row[column],
      range: (chosen) => chosen,
      ends: (range) => range,
      keeps: (row, range) => isNumber(row[column]) && row[column] >= range[0] && row[column] <= range[1],
      said: (range) => `${range.map((end) => shown(end, column)).join(" to ")} ${unit(column)}`.trim(),
    }; // prettier-ignore
  }

  line(row) {
    const points = this.axes
      .map((axis) => [axis.at, axis.place(row), axis])
      .filter(([, value]) => isNumber(value) && value !== -1);
    const path = points.map(([at, value, axis]) => `${at.toFixed(1)},${axis.scale.pixel(value).toFixed(1)}`);
    const { colour, dash } = look(this.what.group(row));
    const chosen = row.name === this.what.selected ? " selected" : "";
    const line = svg("path", {
      class: `line thin${row.unlike ? " hollow" : ""}${chosen}`,
      d: `M${path.join("L")}`,
      style: `stroke:${colour};stroke-dasharray:${dash || "none"}`,
    });
    line.addEventListener("pointermove", (event) => this.show(row, event));
    line.addEventListener("pointerleave", () => (this.tip.hidden = true));
    line.addEventListener("click", () => this.onSelect(row.name));
    return line;
  }

  show(row, event) {
    const box = this.figure.getBoundingClientRect();
    const lines = [row.name, ...this.axes.map(({ column }) => `${labelled(column)}: ${shown(row[column], column)}`)];
    this.tip.replaceChildren(...lines.map((line) => html("div", {}, line)));
    this.tip.hidden = false;
    this.tip.style.left = `${Math.max(0, Math.min(event.clientX - box.left + 14, box.width - this.tip.offsetWidth))}px`;
    this.tip.style.top = `${event.clientY - box.top + 14}px`;
  }

  drawn(axis, height) {
    const { column, at, scale } = axis;
    const [bottom, top] = [height - AXIS.bottom, AXIS.top];
    const group = svg("g", {
      class: "axis",
      tabindex: 0,
      role: "slider",
      "aria-label": `${title(column)}: up and down choose a range, Escape all`,
    });
    const range = this.what.ranges[column];
    const ends = range && axis.ends(range);
    const values = { valuemin: scale.low, valuemax: scale.high, valuenow: ends?.[0] ?? scale.low };
    for (const [name, value] of Object.entries(values)) group.setAttribute(`aria-${name}`, value);
    group.setAttribute("aria-valuetext", range ? axis.said(range) : "all");
    group.append(
      svg("rect", { class: "grip", x: at - AXIS.reach, y: top - 8, width: 2 * AXIS.reach, height: bottom - top + 16 }),
    );
    group.append(svg("line", { x1: at, x2: at, y1: top, y2: bottom }));
    if (ends) {
      const [y1, y2] = [scale.pixel(Math.min(ends[1], scale.high)), scale.pixel(Math.max(ends[0], scale.low))];
      group.append(svg("rect", { class: "range", x: at - 6, y: y1, width: 12, height: Math.max(2, y2 - y1) }));
    }
    const name = svg("text", { class: "title", x: at, y: 16, "text-anchor": "middle" }, title(column));
    const below = svg("text", { class: "unit", x: at, y: 30, "text-anchor": "middle" }, unit(column));
    group.append(name, below);
    const labels = axis.values
      ? evenly(
          axis.values.map((value, place) => [place, cut(shown(value, column), this.letters)]),
          12,
        )
      : ticks(scale.low, scale.high, 5, false).map((tick) => [tick, short(tick * (SCALES[column] ?? 1))]);
    for (const [value, text] of labels) group.append(svg("text", { x: at + 6, y: scale.pixel(value) + 4 }, text));
    this.listen(group, axis);
    return group;
  }

  listen(group, { column, scale, stops, range }) {
    let start = null;
    const height = (event) => event.clientY - this.surface.getBoundingClientRect().top;
    const within = (pixel) => Math.max(scale.low, Math.min(scale.high, scale.value(pixel)));
    group.addEventListener("pointerdown", (event) => {
      start = height(event);
      group.setPointerCapture(event.pointerId);
    });
    group.addEventListener("pointerup", (event) => {
      const end = height(event);
      if (start === null) return;
      const chosen = range([within(Math.max(start, end)), within(Math.min(start, end))]);
      this.choose(column, Math.abs(end - start) > 4 && chosen.length ? chosen : null);
      start = null;
    });
    group.addEventListener("keydown", (event) => {
      if (isForBrowser(event)) return;
      const now = stops.findIndex(([low]) => low === this.what.ranges[column]?.[0]);
      if (event.key === "ArrowUp") this.choose(column, stops[Math.min(stops.length - 1, now + 1)]);
      else if (event.key === "ArrowDown") this.choose(column, stops[now < 0 ? stops.length - 1 : Math.max(0, now - 1)]);
      else if (event.key === "Escape") this.choose(column, null);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /** Whether the row is inside every chosen range; a range of an axis that isn't there keeps everything. */
  keeps(row, ranges) {
    return (this.axes ?? []).every((axis) => {
      const range = ranges[axis.column];
      return !range || axis.keeps(row, range);
    });
  }

  choose(column, range) {
    const focused = this.axes.findIndex((axis) => axis.column === column);
    this.onRange(column, range);
    this.surface.querySelectorAll(".axis")[focused]?.focus();
  }
}
