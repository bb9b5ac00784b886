// A chart in SVG: axes, lines with bands, points; zoom by dragging, hover, keyboard. Colours are the style sheet's.
"use strict";

const MARGIN = { top: 10, right: 14, bottom: 42, left: 58 };
const TITLE = 27; // pixels for the title of the y axis
const DIGIT = 7.7; // pixels, at most
const LETTER = 6.4; // pixels, of a label
const LINE = 14; // pixels from a label to the next
const NEAR = 28; // pixels from which the pointer reaches a point
const LABELS = 14; // more lines than these have no labels at their ends
const TOLD = 12; // lines of which the numbers at one x are told

/** A chart in `figure`. draw(what) shows
    {x: {title, log, format, ticks or round}, y: {title, log, format}, guides: [{y, name}], fronts: [points], better, empty,
     across: whether pointing tells all lines at one x, equal: whether a distance is the same on both axes,
     series: [{group, name, line, symbols, faint, hollow, selected, label, points: [{x, y, low, high, left, right, text(),
      key, selected}]}]}.
    onSelect(key) is told of a point that is clicked, or entered by keyboard; onZoom({x, y} or null) of a new range. */
class Chart {
  constructor(figure, onSelect, onZoom = () => {}) {
    Object.assign(this, { figure, onSelect, onZoom, zoomed: null, focus: null });
    this.surface = svg("svg", { class: "chart", tabindex: 0, role: "application" });
    this.surface.setAttribute(
      "aria-label",
      `${figure.dataset.name}: arrow keys read points, + and - zoom, 0 shows all`,
    );
    this.tip = html("div", { class: "tip", role: "status", hidden: "" });
    toolbar(figure, [
      ["+", "Zoom in", () => this.zoom(0.5)],
      ["−", "Zoom out", () => this.zoom(2)],
      ["⤢", "Show all", () => this.range(null)],
      ...pictureButtons(figure, () => this.surface),
    ]);
    figure.append(this.surface, this.tip);
    this.listen();
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
    const reserved = this.labels.length
      ? LETTER * Math.min(30, Math.max(...this.labels.map((series) => series.label.length))) + 18
      : MARGIN.right;
    const range = this.zoomed ?? this.whole(what, points);
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
      return;
    }
    for (const guide of what.guides ?? []) marks.append(...this.guide(guide));
    for (const series of what.series) marks.append(...this.series(series));
    for (const front of what.fronts ?? []) marks.append(...this.front(front));
    this.surface.append(...this.endLabels());
    this.cursor = svg("path", { class: "cursor", d: "M-9,0a9,9 0 1,0 18,0a9,9 0 1,0 -18,0", visibility: "hidden" });
    this.across = svg("line", { class: "across", y1: MARGIN.top, y2: height - MARGIN.bottom, visibility: "hidden" });
    this.box = svg("rect", { class: "box", visibility: "hidden" });
    this.surface.append(this.across, this.cursor, this.box);
  }

  whole(what, points) {
    const x = points.flatMap((point) => [point.x, point.left, point.right]);
    const y = [
      ...points.flatMap((point) => [point.y, point.low, point.high]),
      ...(what.guides ?? []).map((guide) => guide.y),
    ];
    return { x: extent(x, what.x.log), y: extent(y, what.y.log) };
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

  guide({ y, name }) {
    const at = this.y.pixel(y);
    const below = at + 18 < this.y.start;
    return [
      svg("line", { class: "guide", x1: this.left, x2: this.right, y1: at, y2: at }),
      svg("text", { class: "guide", x: this.right - 4, y: at + (below ? 15 : -5), "text-anchor": "end" }, name),
    ];
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
      const style = series.hollow ? `fill:var(--sheet);stroke:${colour}` : `fill:${colour}`;
      const transform = `translate(${px.toFixed(1)} ${py.toFixed(1)})${series.faint ? " scale(0.6)" : ""}`;
      parts.push(
        svg("path", { class: `symbol${kind}${point.selected ? " selected" : ""}`, d: symbol, transform, style }),
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

  /** Names of lines where they end, moved up and down as far as it takes for none to lie on another. */
  endLabels() {
    const ends = this.labels
      .map((series) => [series, this.near.filter((near) => near.series === series && near.px <= this.x.end + 1).at(-1)])
      .filter(([, end]) => end && end.py >= this.y.end && end.py <= this.y.start)
      .sort((a, b) => a[1].py - b[1].py);
    let last = this.y.end - LINE;
    const places = ends.map(([, end]) => (last = Math.max(last + LINE, end.py)));
    let next = this.y.start + LINE;
    for (let place = places.length - 1; place >= 0; place--)
      places[place] = next = Math.min(next - LINE, places[place]);
    return ends.flatMap(([series, end], place) => [
      svg("path", { class: "leader", d: `M${end.px + 2},${end.py}L${this.right + 8},${places[place]}` }),
      svg(
        "text",
        { class: "label", x: this.right + 11, y: places[place] + 4, style: `fill:${look(series.group).colour}` },
        cut(series.label, 30),
      ),
    ]);
  }

  listen() {
    const surface = this.surface;
    let start = null;
    const place = (event) => {
      const box = surface.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    surface.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "touch" && event.button === 0) start = place(event);
    });
    surface.addEventListener("pointermove", (event) => {
      if (start && event.buttons) this.rubber(start, place(event));
      else this.point(...place(event));
    });
    surface.addEventListener("pointerup", (event) => {
      const end = place(event);
      if (start && Math.hypot(end[0] - start[0], end[1] - start[1]) > 8) this.zoomTo(start, end);
      else {
        this.select(this.nearest(...end));
        // a finger has no hover
        this.point(...end);
      }
      start = null;
      this.box?.setAttribute("visibility", "hidden");
    });
    surface.addEventListener("pointerleave", () => this.show(null));
    surface.addEventListener("dblclick", () => this.range(null));
    surface.addEventListener("blur", () => this.show(null));
    surface.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    const acts = {
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.range(null),
      Enter: () => this.select(this.focus),
    }; // prettier-ignore
    if (event.key in steps) this.step(...steps[event.key]);
    else if (event.key === "Escape" && this.zoomed) this.range(null);
    else if (event.key in acts) acts[event.key]();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Walk to the next point of the series, or to the nearest point of the next series. */
  step(along, across) {
    const series = this.what.series.filter((each) => !each.faint && this.near.some((near) => near.series === each));
    if (!series.length) return;
    const number = Math.max(0, series.indexOf(this.focus?.series));
    const next = series[(number + across + series.length) % series.length];
    const line = this.near.filter((near) => near.series === next).sort((a, b) => a.px - b.px);
    if (!this.focus || next !== this.focus.series) {
      const px = this.focus?.px ?? this.left;
      this.show(line.reduce((best, near) => (Math.abs(near.px - px) < Math.abs(best.px - px) ? near : best)));
    } else {
      const at = line.findIndex((near) => near.point === this.focus.point);
      this.show(line[Math.min(line.length - 1, Math.max(0, at + along))]);
    }
  }

  nearest(px, py) {
    let best = null,
      least = NEAR;
    for (const near of this.near ?? []) {
      const distance = Math.hypot(near.px - px, near.py - py);
      if (distance < least) [best, least] = [near, distance];
    }
    return best;
  }

  point(px, py) {
    if (!this.what?.across) return this.show(this.nearest(px, py));
    this.show(null);
    const inside = this.near?.length && px >= this.left && px <= this.right;
    if (inside) this.tell(px, py);
  }

  /** Tell what all the lines are at one x, those nearest to the pointer if there are many. */
  tell(px, py) {
    const x = this.x.value(px);
    const at = (series) =>
      interpolate(
        series.points.map((point) => point.x),
        series.points.map((point) => point.y),
        x,
      );
    const lines = this.what.series
      .filter((series) => series.line && !series.faint)
      .map((series) => [series, at(series)]);
    const known = lines.filter(([, y]) => isNumber(y));
    const nearest = [...known]
      .sort((a, b) => Math.abs(this.y.pixel(a[1]) - py) - Math.abs(this.y.pixel(b[1]) - py))
      .slice(0, TOLD);
    if (!nearest.length) return;
    const told = [...nearest]
      .sort((a, b) => b[1] - a[1])
      .map(([series, y]) => {
        const key = html("span", { class: "swatch", style: `background:${look(series.group).colour}` });
        const line = html("div", {}, key, `${this.what.y.number(y)}  ${cut(series.name)}`);
        return series === nearest[0][0] ? html("b", {}, line) : line;
      });
    const others = known.length - nearest.length;
    const lead = html("div", {}, `${this.what.x.number(x)}${others ? `, ${others} more lines` : ""}`);
    this.tip.replaceChildren(lead, ...told);
    for (const [key, value] of Object.entries({ x1: px, x2: px, visibility: "visible" }))
      this.across.setAttribute(key, value);
    this.place(px, py);
  }

  show(near) {
    this.focus = near;
    this.tip.hidden = !near;
    this.across?.setAttribute("visibility", "hidden");
    this.cursor?.setAttribute("visibility", near ? "visible" : "hidden");
    if (!near) return;
    this.cursor.setAttribute("transform", `translate(${near.px} ${near.py})`);
    this.tip.replaceChildren(...near.point.text().map((line) => html("div", {}, line)));
    this.place(near.px, near.py);
  }

  place(px, py) {
    this.tip.hidden = false;
    const [box, frame] = [this.surface, this.figure].map((element) => element.getBoundingClientRect());
    const beside = px + 14 + this.tip.offsetWidth < box.width ? px + 14 : px - 14 - this.tip.offsetWidth;
    const below = py < this.tip.offsetHeight + 20;
    this.tip.style.left = `${box.left - frame.left + Math.max(0, beside)}px`;
    this.tip.style.top = `${box.top - frame.top + py + (below ? 14 : -this.tip.offsetHeight - 10)}px`;
  }

  select(near) {
    if (near?.point.key) this.onSelect(near.point.key);
  }

  rubber([x0, y0], [x1, y1]) {
    this.show(null);
    const sides = {
      x: Math.min(x0, x1),
      y: Math.min(y0, y1),
      width: Math.abs(x1 - x0),
      height: Math.abs(y1 - y0),
      visibility: "visible",
    };
    for (const [key, value] of Object.entries(sides)) this.box?.setAttribute(key, value);
  }

  zoomTo([x0, y0], [x1, y1]) {
    const order = (a, b) => [Math.min(a, b), Math.max(a, b)];
    this.range({ x: order(this.x.value(x0), this.x.value(x1)), y: order(this.y.value(y0), this.y.value(y1)) });
  }

  /** Make the visible range `factor` times as large, around the point in focus or the middle. */
  zoom(factor) {
    if (!this.x) return;
    const around = (scale, centre) =>
      [scale.start, scale.end].map((end) => scale.value(centre + (end - centre) * factor));
    const middle = (scale) => (scale.start + scale.end) / 2;
    this.range({
      x: around(this.x, this.focus?.px ?? middle(this.x)),
      y: around(this.y, this.focus?.py ?? middle(this.y)),
    });
  }

  range(zoomed) {
    this.zoomed = zoomed;
    this.onZoom(zoomed);
    if (this.what) this.draw(this.what);
  }
}
