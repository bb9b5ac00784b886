// A chart in SVG: axes, lines with bands, points; zoom by dragging, hover, keyboard. Colours are the style sheet's.
"use strict";

const MARGIN = { top: 10, right: 14, bottom: 42, left: 58 };
const TITLE = 27; // pixels for the title of the y axis
const DIGIT = 7.7; // pixels, at most
const NEAR = 28; // pixels from which the pointer reaches a point

/** A chart in `figure`. draw(what) shows
    {x: {title, log, format, ticks or round}, y: {title, log, format}, guides: [{y, name}], fronts: [points], better, empty,
     series: [{group, line, symbols, selected, points: [{x, y, low, high, text(), run, selected}]}]}.
    onSelect(run) is told of a point that is clicked, or entered by keyboard. */
class Chart {
  constructor(figure, onSelect) {
    this.figure = figure;
    this.onSelect = onSelect;
    this.zoomed = null;
    this.focus = null;
    this.surface = svg("svg", { class: "chart", tabindex: 0, role: "application" });
    this.surface.setAttribute(
      "aria-label",
      `${figure.dataset.name}: arrow keys read points, + and - zoom, 0 shows all`,
    );
    this.tip = html("div", { class: "tip", role: "status", hidden: "" });
    const buttons = [
      ["+", "Zoom in", () => this.zoom(0.5)],
      ["−", "Zoom out", () => this.zoom(2)],
      ["⤢", "Show all", () => this.reset()],
    ];
    const tools = html("div", { class: "tools" });
    for (const [sign, name, act] of buttons) {
      const button = html(
        "button",
        { type: "button", title: name, "aria-label": `${name}: ${figure.dataset.name}` },
        sign,
      );
      button.addEventListener("click", act);
      tools.append(button);
    }
    figure.append(tools, this.surface, this.tip);
    this.listen();
    new ResizeObserver(() => this.what && this.draw(this.what)).observe(figure);
  }

  draw(what) {
    this.what = what;
    const size = this.surface.getBoundingClientRect();
    const [width, height] = [Math.max(260, size.width), Math.max(200, size.height)];
    const points = what.series.flatMap((series) => series.points);
    this.whole = {
      x: extent(
        points.map((point) => point.x),
        what.x.log,
      ),
      y: extent(
        [
          ...points.flatMap((point) => [point.y, point.low, point.high]),
          ...(what.guides ?? []).map((guide) => guide.y),
        ],
        what.y.log,
      ),
    };
    const range = this.zoomed ?? this.whole;
    this.y = new Scale(range.y, [height - MARGIN.bottom, MARGIN.top], what.y.log);
    this.steps = ticks(this.y.low, this.y.high, height / 55, what.y.log)
      .filter((tick) => tick >= this.y.low && tick <= this.y.high)
      .map((tick) => [tick, (what.y.format ?? short)(tick)]);
    this.left = Math.max(MARGIN.left, TITLE + DIGIT * Math.max(0, ...this.steps.map(([, text]) => text.length)));
    this.x = new Scale(range.x, [this.left, width - MARGIN.right], what.x.log);
    this.near = [];
    this.surface.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const clip = `clip-${this.figure.id}`;
    const inside = {
      x: this.left,
      y: MARGIN.top,
      width: width - this.left - MARGIN.right,
      height: height - MARGIN.top - MARGIN.bottom,
    };
    const marks = svg("g", { "clip-path": `url(#${clip})` });
    this.surface.replaceChildren(svg("clipPath", { id: clip }, svg("rect", inside)), this.axes(width, height), marks);
    if (!points.length) {
      this.surface.append(
        svg("text", { class: "empty", x: width / 2, y: height / 2 }, what.empty ?? "No run has these numbers."),
      );
      return;
    }
    for (const guide of what.guides ?? []) marks.append(...this.guide(guide, width));
    for (const series of what.series) marks.append(...this.series(series));
    for (const front of what.fronts ?? []) marks.append(...this.front(front));
    this.cursor = svg("path", { class: "cursor", d: "M-9,0a9,9 0 1,0 18,0a9,9 0 1,0 -18,0", visibility: "hidden" });
    this.box = svg("rect", { class: "box", visibility: "hidden" });
    this.surface.append(this.cursor, this.box);
  }

  axes(width, height) {
    const { x, y } = this.what;
    const group = svg("g", { class: "axes" });
    const bottom = height - MARGIN.bottom;
    const { low, high } = this.x;
    const all = x.ticks ?? (x.round ?? ticks)(low, high, width / 110, x.log);
    for (const tick of all.filter((each) => each >= low && each <= high)) {
      const at = this.x.pixel(tick);
      group.append(svg("line", { x1: at, x2: at, y1: MARGIN.top, y2: bottom }));
      group.append(svg("text", { x: at, y: bottom + 16, "text-anchor": "middle" }, (x.format ?? short)(tick)));
    }
    for (const [tick, text] of this.steps) {
      const at = this.y.pixel(tick);
      group.append(svg("line", { x1: this.left, x2: width - MARGIN.right, y1: at, y2: at }));
      group.append(svg("text", { x: this.left - 7, y: at + 4, "text-anchor": "end" }, text));
    }
    group.append(
      svg(
        "text",
        { class: "title", x: (this.left + width - MARGIN.right) / 2, y: height - 6, "text-anchor": "middle" },
        x.title,
      ),
    );
    const middle = (MARGIN.top + bottom) / 2;
    group.append(
      svg(
        "text",
        { class: "title", transform: `translate(13 ${middle}) rotate(-90)`, "text-anchor": "middle" },
        y.title,
      ),
    );
    return group;
  }

  guide({ y, name }, width) {
    const at = this.y.pixel(y);
    const below = at + 18 < this.y.start;
    return [
      svg("line", { class: "guide", x1: this.left, x2: width - MARGIN.right, y1: at, y2: at }),
      svg("text", { class: "guide", x: width - MARGIN.right - 4, y: at + (below ? 15 : -5), "text-anchor": "end" }, name),
    ];
  }

  series(series) {
    const { colour, dash, symbol } = look(series.group);
    const at = (point, key = "y") => `${this.x.pixel(point.x).toFixed(1)},${this.y.pixel(point[key]).toFixed(1)}`;
    const known = series.points.filter((point) => isNumber(point.x) && isNumber(point.y));
    const parts = [];
    if (series.line && known.length > 1) {
      if (known.some((point) => point.high > point.low)) {
        const edge = [
          ...known.map((point) => at(point, "high")),
          ...[...known].reverse().map((point) => at(point, "low")),
        ];
        parts.push(svg("path", { class: "band", d: `M${edge.join("L")}Z`, style: `fill:${colour}` }));
      }
      const style = `stroke:${colour};stroke-dasharray:${dash || "none"}`;
      parts.push(
        svg("path", {
          class: `line${series.selected ? " selected" : ""}`,
          d: `M${known.map((point) => at(point)).join("L")}`,
          style,
        }),
      );
    }
    for (const point of known) {
      const [px, py] = [this.x.pixel(point.x), this.y.pixel(point.y)];
      this.near.push({ px, py, point, series });
      if (!series.symbols) continue;
      if ((!series.line || known.length === 1) && point.high > point.low) {
        parts.push(
          svg("line", {
            class: "whisker",
            x1: px,
            x2: px,
            y1: this.y.pixel(point.low),
            y2: this.y.pixel(point.high),
            style: `stroke:${colour}`,
          }),
        );
      }
      const transform = `translate(${px.toFixed(1)} ${py.toFixed(1)})`;
      parts.push(
        svg("path", {
          class: `symbol${point.selected ? " selected" : ""}`,
          d: symbol,
          transform,
          style: `fill:${colour}`,
        }),
      );
    }
    return parts;
  }

  front(points) {
    // a staircase: between two points of the front nothing better is known
    const corner = this.what.better === "high" ? (a, b) => [a.x, b.y] : (a, b) => [b.x, a.y];
    const path = points.flatMap((point, place) => {
      const before = points[place - 1];
      const [cx, cy] = before ? corner(before, point) : [point.x, point.y];
      return [
        [cx, cy],
        [point.x, point.y],
      ].map(([x, y]) => `${this.x.pixel(x).toFixed(1)},${this.y.pixel(y).toFixed(1)}`);
    });
    const rings = points.map((point) =>
      svg("circle", { class: "front ring", cx: this.x.pixel(point.x), cy: this.y.pixel(point.y), r: 8 }),
    );
    return [svg("path", { class: "front", d: `M${path.join("L")}` }), ...rings];
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
      const [px, py] = place(event);
      if (start && event.buttons) this.rubber(start, [px, py]);
      else this.show(this.nearest(px, py));
    });
    surface.addEventListener("pointerup", (event) => {
      const end = place(event);
      const dragged = start && Math.hypot(end[0] - start[0], end[1] - start[1]) > 8;
      if (dragged) this.zoomTo(start, end);
      else {
        const near = this.nearest(...end);
        this.select(near);
        // a finger has no hover
        this.show(near);
      }
      start = null;
      this.box?.setAttribute("visibility", "hidden");
    });
    surface.addEventListener("pointerleave", () => this.show(null));
    surface.addEventListener("dblclick", () => this.reset());
    surface.addEventListener("blur", () => this.show(null));
    surface.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    const acts = {
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      0: () => this.reset(),
      Enter: () => this.select(this.focus),
    };
    if (event.key in steps) this.step(...steps[event.key]);
    else if (event.key === "Escape" && this.zoomed) this.reset();
    else if (event.key in acts) acts[event.key]();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Walk to the next point of the series, or to the nearest point of the next series. */
  step(along, across) {
    const series = this.what.series.filter((each) => this.near.some((near) => near.series === each));
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

  show(near) {
    this.focus = near;
    this.tip.hidden = !near;
    this.cursor?.setAttribute("visibility", near ? "visible" : "hidden");
    if (!near) return;
    this.cursor.setAttribute("transform", `translate(${near.px} ${near.py})`);
    this.tip.replaceChildren(...near.point.text().map((line) => html("div", {}, line)));
    const [box, frame] = [this.surface, this.figure].map((element) => element.getBoundingClientRect());
    const left = Math.max(0, Math.min(near.px + 14, box.width - this.tip.offsetWidth - 4));
    const below = near.py < this.tip.offsetHeight + 20;
    this.tip.style.left = `${box.left - frame.left + left}px`;
    this.tip.style.top = `${box.top - frame.top + near.py + (below ? 14 : -this.tip.offsetHeight - 10)}px`;
  }

  select(near) {
    if (near?.point.run) this.onSelect(near.point.run);
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
    this.zoomed = { x: order(this.x.value(x0), this.x.value(x1)), y: order(this.y.value(y0), this.y.value(y1)) };
    this.draw(this.what);
  }

  /** Make the visible range `factor` times as large, around the point in focus or the middle. */
  zoom(factor) {
    if (!this.x) return;
    const around = (scale, centre) =>
      [scale.start, scale.end].map((end) => scale.value(centre + (end - centre) * factor));
    const middle = (scale) => (scale.start + scale.end) / 2;
    this.zoomed = {
      x: around(this.x, this.focus?.px ?? middle(this.x)),
      y: around(this.y, this.focus?.py ?? middle(this.y)),
    };
    this.draw(this.what);
  }

  reset() {
    this.zoomed = null;
    this.draw(this.what);
  }
}
