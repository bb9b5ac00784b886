// A chart in SVG: axes, lines with bands, points. Colours are the style sheet's; chart_reader.js has hover and zoom.
"use strict";

const MARGIN = { top: 10, right: 14, bottom: 42, left: 58 };
const TITLE = 27; // pixels for the title of the y axis
const DIGIT = 7.7; // pixels, at most
const LETTER = 6.4; // pixels, of a label
const LINE = 14; // pixels from a label to the next
const LABELLED = 0.25; // share of the width that labels take at most
const LABELS = 14; // more lines than these have no labels at their ends
const GUIDED = 3; // the most that a guide may lengthen the y axis

/** A chart in `figure`. draw(what) shows
    {x: {title, log, format, ticks or round}, y: {title, log, format}, guides: [{y, name, reached: whether the axis always reaches
     it}], fronts: [points], better, empty,
     ranges: {x, y} or none for those of the points, across: whether pointing tells all lines at one x, equal: whether a distance is the same on both axes,
     series: [{group, name, line, symbols, faint, hollow, selected, label, points: [{x, y, low, high, left, right, text(),
      key, hollow, selected}]}]}.
    onSelect(key) is told of a point that is clicked, or entered by keyboard; onZoom({x, y} or null) of a new range. */
class Chart {
  constructor(figure, onSelect, onZoom = () => {}) {
    Object.assign(this, { figure, onZoom, zoomed: null, near: [] });
    this.surface = svg("svg", { class: "chart", tabindex: 0, role: "application", ...describedBy(figure) });
    this.surface.setAttribute(
      "aria-label",
      `${figure.dataset.name}: arrow keys read points, + and - zoom, 0 shows all`,
    );
    this.reader = new ChartReader(this, onSelect);
    toolbar(figure, [
      ["+", "Zoom in", () => this.reader.zoom(0.5)],
      ["−", "Zoom out", () => this.reader.zoom(2)],
      ["⤢", "Show all", () => this.range(null)],
      ...pictureButtons(figure, () => this.surface),
    ]);
    figure.append(this.surface, this.reader.tip);
    new ResizeObserver(() => this.what && this.draw(this.what)).observe(figure);
  }

  draw(what) {
    this.what = what;
    const size = this.surface.getBoundingClientRect();
    const [width, height] = [Math.max(260, size.width), Math.max(200, size.height)];
    const points = what.series.flatMap((series) => series.points);
    this.labels =
      width > 640 && what.series.filter((series) => series.label).length <= LABELS
        ? what.series.filter((series) => series.label)
        : [];
    this.letters = Math.floor((LABELLED * width) / LETTER);
    const reserved = this.labels.length
      ? LETTER * Math.min(this.letters, Math.max(...this.labels.map((series) => series.label.length))) + 18
      : MARGIN.right;
    const range = this.zoomed ?? what.ranges ?? this.whole(what, points);
    this.y = new Scale(range.y, [height - MARGIN.bottom, MARGIN.top], what.y.log);
    this.steps = ticks(this.y.low, this.y.high, height / 55, what.y.log)
      .filter((tick) => tick >= this.y.low && tick <= this.y.high)
      .map((tick) => [tick, (what.y.format ?? short)(tick)]);
    this.left = Math.max(MARGIN.left, TITLE + DIGIT * Math.max(0, ...this.steps.map(([, text]) => text.length)));
    this.right = width - reserved;
    this.x = new Scale(range.x, [this.left, this.right], what.x.log);
    if (what.equal) this.equalize();
    this.near = [];
    // many bands over each other would hide their lines
    this.faintness = Math.min(
      0.16,
      0.6 / Math.max(1, what.series.filter((series) => series.line && !series.faint).length),
    ).toFixed(3);
    this.surface.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const clip = `clip-${this.figure.id}`;
    const inside = {
      x: this.left,
      y: MARGIN.top,
      width: this.right - this.left,
      height: height - MARGIN.top - MARGIN.bottom,
    };
    const marks = svg("g", { "clip-path": `url(#${clip})` });
    this.surface.replaceChildren(svg("clipPath", { id: clip }, svg("rect", inside)), this.axes(height), marks);
    if (!points.length) {
      this.surface.append(
        svg("text", { class: "empty", x: width / 2, y: height / 2 }, what.empty ?? "No run has these numbers."),
      );
      this.reader.goOn();
      return;
    }
    for (const guide of what.guides ?? []) marks.append(...this.guide(guide));
    for (const series of what.series) marks.append(...this.series(series));
    for (const front of what.fronts ?? []) marks.append(...this.front(front));
    this.surface.append(...this.endLabels());
    this.surface.append(...this.reader.overlay(MARGIN.top, height - MARGIN.bottom));
    this.reader.goOn();
  }

  /** The ranges that show all points. A guide that would squeeze them stays outside. */
  whole(what, points) {
    const x = points.flatMap((point) => [point.x, point.left, point.right]);
    const y = points.flatMap((point) => [point.y, point.low, point.high]);
    const of = (values) => extent(values, what.y.log);
    const length = ([low, high]) => (what.y.log ? Math.log(high / low) : high - low);
    const near = (what.guides ?? [])
      .filter((guide) => guide.reached || length(of([...y, guide.y])) <= GUIDED * length(of(y)))
      .map((guide) => guide.y);
    return { x: extent(x, what.x.log), y: of([...y, ...near]) };
  }

  /** Make a distance as long on one axis as on the other: the axis with room to spare gets a larger range. */
  equalize() {
    const [x, y] = [this.x, this.y].map((scale) => (scale.high - scale.low) / Math.abs(scale.end - scale.start));
    const scale = x < y ? this.x : this.y;
    const room = ((Math.max(x, y) / Math.min(x, y) - 1) * (scale.high - scale.low)) / 2;
    [scale.low, scale.high] = [scale.low - room, scale.high + room];
    if (scale === this.y) this.steps = ticks(this.y.low, this.y.high, 6, false).map((tick) => [tick, short(tick)]);
  }

  axes(height) {
    const { x, y } = this.what;
    const group = svg("g", { class: "axes" });
    const bottom = height - MARGIN.bottom;
    const { low, high } = this.x;
    const all = x.ticks ?? (x.round ?? ticks)(low, high, (this.right - this.left) / 110, x.log);
    for (const tick of all.filter((each) => each >= low && each <= high)) {
      const at = this.x.pixel(tick);
      group.append(svg("line", { x1: at, x2: at, y1: MARGIN.top, y2: bottom }));
      group.append(svg("text", { x: at, y: bottom + 16, "text-anchor": "middle" }, (x.format ?? short)(tick)));
    }
    for (const [tick, text] of this.steps) {
      const at = this.y.pixel(tick);
      group.append(svg("line", { x1: this.left, x2: this.right, y1: at, y2: at }));
      group.append(svg("text", { x: this.left - 7, y: at + 4, "text-anchor": "end" }, text));
    }
    const title = { class: "title", "text-anchor": "middle" };
    const named = (axis) => (axis.log ? `${axis.title}, logarithmic` : axis.title);
    group.append(svg("text", { ...title, x: (this.left + this.right) / 2, y: height - 6 }, named(x)));
    group.append(
      svg("text", { ...title, transform: `translate(13 ${(MARGIN.top + bottom) / 2}) rotate(-90)` }, named(y)),
    );
    return group;
  }

  /** A line across with its name; beyond the axis, the name at that end and the number that it stands for. */
  guide({ y, name }) {
    const beyond = y > this.y.high ? "▴" : y < this.y.low ? "▾" : "";
    const at = this.y.pixel(Math.max(this.y.low, Math.min(this.y.high, y)));
    const below = at + 18 < this.y.start;
    const text = beyond ? `${beyond} ${name}: ${(this.what.y.number ?? short)(y)}` : name;
    const place = { class: "guide", x: this.right - 4, y: at + (below ? 15 : -5), "text-anchor": "end" };
    const line = svg("line", { class: "guide", x1: this.left, x2: this.right, y1: at, y2: at });
    return [...(beyond ? [] : [line]), svg("text", place, text)];
  }

  series(series) {
    const { colour, dash, symbol } = look(series.group);
    const at = (point, key = "y") => `${this.x.pixel(point.x).toFixed(1)},${this.y.pixel(point[key]).toFixed(1)}`;
    const known = series.points.filter((point) => isNumber(point.x) && isNumber(point.y));
    const kind = `${series.selected ? " selected" : ""}${series.faint ? " faint" : ""}${series.hollow ? " hollow" : ""}`;
    const parts = [];
    if (series.line && known.length > 1) {
      const banded = known.filter((point) => point.high > point.low && !point.whisker);
      if (banded.length > 1) {
        const edge = [
          ...banded.map((point) => at(point, "high")),
          ...[...banded].reverse().map((point) => at(point, "low")),
        ];
        parts.push(
          svg("path", { class: "band", d: `M${edge.join("L")}Z`, style: `fill:${colour};opacity:${this.faintness}` }),
        );
      }
      const d = `M${known.map((point) => at(point)).join("L")}`;
      parts.push(
        svg("path", { class: `line${kind}`, d, style: `stroke:${colour};stroke-dasharray:${dash || "none"}` }),
      );
    }
    for (const point of known) {
      const [px, py] = [this.x.pixel(point.x), this.y.pixel(point.y)];
      this.near.push({ px, py, point, series });
      if (!series.line || known.length === 1 || point.whisker) parts.push(...this.whiskers(point, px, py, colour));
      if (!series.symbols) continue;
      const hollow = series.hollow || point.hollow;
      const style = hollow ? `fill:var(--sheet);stroke:${colour}` : `fill:${colour}`;
      const transform = `translate(${px.toFixed(1)} ${py.toFixed(1)})${series.faint ? " scale(0.6)" : ""}`;
      parts.push(
        svg("path", {
          class: `symbol${kind}${hollow && !series.hollow ? " hollow" : ""}${point.selected ? " selected" : ""}`,
          d: symbol,
          transform,
          style,
        }),
      );
    }
    return parts;
  }

  /** The intervals of a point along both axes. */
  whiskers(point, px, py, colour) {
    const line = (x1, x2, y1, y2) => svg("line", { class: "whisker", x1, x2, y1, y2, style: `stroke:${colour}` });
    const parts = [];
    if (point.high > point.low) parts.push(line(px, px, this.y.pixel(point.low), this.y.pixel(point.high)));
    if (point.right > point.left) parts.push(line(this.x.pixel(point.left), this.x.pixel(point.right), py, py));
    return parts;
  }

  front(points) {
    // a staircase: between two points of the front nothing better is known
    const corner = this.what.better === "high" ? (a, b) => [a.x, b.y] : (a, b) => [b.x, a.y];
    const path = points.flatMap((point, place) => {
      const before = points[place - 1];
      const places = [before ? corner(before, point) : [point.x, point.y], [point.x, point.y]];
      return places.map(([x, y]) => `${this.x.pixel(x).toFixed(1)},${this.y.pixel(y).toFixed(1)}`);
    });
    const ring = (point) =>
      svg("circle", { class: "front ring", cx: this.x.pixel(point.x), cy: this.y.pixel(point.y), r: 8 });
    return [svg("path", { class: "front", d: `M${path.join("L")}` }), ...points.map(ring)];
  }

  /** Names of lines where they end, moved up and down as far as it takes for none to lie on another: in the plot where
      there is room, because a long way to its margin would look like more of the line. */
  endLabels() {
    const ends = this.labels
      .map((series) => [series, this.near.filter((near) => near.series === series && near.px <= this.x.end + 1).at(-1)])
      .filter(([, end]) => end && end.py >= this.y.end && end.py <= this.y.start)
      .sort((a, b) => a[1].py - b[1].py);
    let last = this.y.end - LINE;
    const places = ends.map(([, end]) => (last = Math.max(last + LINE, end.py)));
    let next = this.y.start + LINE / 2;
    for (let place = places.length - 1; place >= 0; place--)
      places[place] = next = Math.min(next - LINE, places[place]);
    return ends.flatMap(([series, end], place) => {
      const label = cut(series.label, this.letters);
      const left = end.px + LETTER * label.length + 22 < this.right ? end.px + 8 : this.right + 8;
      const d = `M${end.px + 2},${end.py}L${left},${places[place]}`;
      return [
        svg("path", { class: "leader", d, style: `stroke:${look(series.group).colour}` }),
        svg("text", { class: "label", x: left + 3, y: places[place] + 4 }, label),
      ];
    });
  }

  range(zoomed) {
    this.zoomed = zoomed;
    this.onZoom(zoomed);
    if (this.what) this.draw(this.what);
  }
}
