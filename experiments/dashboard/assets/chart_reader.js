// How a chart is read: by pointing, by the keyboard, and by zooming with either.
"use strict";

const NEAR = 28; // pixels from which the pointer reaches a point
const TOLD = 12; // lines of which the numbers at one x are told

/** The reader of a Chart. onSelect(key) is told of a point that is clicked, or entered by keyboard. */
class ChartReader {
  constructor(chart, onSelect) {
    Object.assign(this, { chart, onSelect, focus: null });
    this.tip = html("div", { class: "tip", role: "status", hidden: "" });
    this.listen();
  }

  /** What lies over the drawing, for a plot of this height: the line and the ring of the pointer, the box of a zoom. */
  overlay(top, bottom) {
    this.cursor = svg("path", { class: "cursor", d: "M-9,0a9,9 0 1,0 18,0a9,9 0 1,0 -18,0", visibility: "hidden" });
    this.across = svg("line", { class: "across", y1: top, y2: bottom, visibility: "hidden" });
    this.box = svg("rect", { class: "box", visibility: "hidden" });
    return [this.across, this.cursor, this.box];
  }

  /** Read the same point of the new drawing, if it is still there. */
  goOn() {
    if (!this.focus) return;
    const { series, point } = this.focus;
    const isSame = (near) => near.series.name === series.name && ["key", "x", "y"].every((part) => near.point[part] === point[part]);
    this.show(this.chart.near.find(isSame) ?? null);
  }

  listen() {
    const surface = this.chart.surface;
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
    whenLeft(surface, () => this.show(null));
    surface.addEventListener("dblclick", () => this.chart.range(null));
    surface.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (isForBrowser(event)) return;
    const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    const acts = {
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.chart.range(null),
      Enter: () => this.select(this.focus),
    }; // prettier-ignore
    if (event.key in steps) this.step(...steps[event.key]);
    else if (event.key === "Escape" && this.chart.zoomed) this.chart.range(null);
    else if (event.key in acts) acts[event.key]();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Walk to the next point of the series, or to the nearest point of the next series. */
  step(along, across) {
    const series = this.chart.what.series.filter(
      (each) => !each.faint && this.chart.near.some((near) => near.series === each),
    );
    if (!series.length) return;
    const number = Math.max(0, series.indexOf(this.focus?.series));
    const next = series[(number + across + series.length) % series.length];
    const line = this.chart.near.filter((near) => near.series === next).sort((a, b) => a.px - b.px);
    if (!this.focus || next !== this.focus.series) {
      const px = this.focus?.px ?? this.chart.left;
      this.show(line.reduce((best, near) => (Math.abs(near.px - px) < Math.abs(best.px - px) ? near : best)));
    } else {
      const at = line.findIndex((near) => near.point === this.focus.point);
      this.show(line[Math.min(line.length - 1, Math.max(0, at + along))]);
    }
  }

  nearest(px, py) {
    let best = null,
      least = NEAR;
    for (const near of this.chart.near ?? []) {
      const distance = Math.hypot(near.px - px, near.py - py);
      if (distance < least) [best, least] = [near, distance];
    }
    return best;
  }

  point(px, py) {
    if (!this.chart.what?.across) return this.show(this.nearest(px, py));
    this.show(null);
    const inside = this.chart.near?.length && px >= this.chart.left && px <= this.chart.right;
    if (inside) this.tell(px, py);
  }

  /** Tell what all the lines are at one x, those nearest to the pointer if there are many. */
  tell(px, py) {
    const x = this.chart.x.value(px);
    const at = (series) =>
      interpolate(
        series.points.map((point) => point.x),
        series.points.map((point) => point.y),
        x,
      );
    const lines = this.chart.what.series
      .filter((series) => series.line && !series.faint)
      .map((series) => [series, at(series)]);
    const known = lines.filter(([, y]) => isNumber(y));
    const nearest = [...known]
      .sort((a, b) => Math.abs(this.chart.y.pixel(a[1]) - py) - Math.abs(this.chart.y.pixel(b[1]) - py))
      .slice(0, TOLD);
    if (!nearest.length) return;
    const told = [...nearest]
      .sort((a, b) => b[1] - a[1])
      .map(([series, y]) => {
        const key = html("span", { class: "swatch", style: `background:${look(series.group).colour}` });
        const line = html("div", {}, key, `${this.chart.what.y.number(y)}  ${cut(series.name)}`);
        return series === nearest[0][0] ? html("b", {}, line) : line;
      });
    const others = known.length - nearest.length;
    const lead = html("div", {}, `${this.chart.what.x.number(x)}${others ? `, ${others} more lines` : ""}`);
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
    const [box, frame] = [this.chart.surface, this.chart.figure].map((element) => element.getBoundingClientRect());
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
    this.chart.range({ x: order(this.chart.x.value(x0), this.chart.x.value(x1)), y: order(this.chart.y.value(y0), this.chart.y.value(y1)) });
  }

  /** Make the visible range `factor` times as large, around the point in focus or the middle. */
  zoom(factor) {
    if (!this.chart.x) return;
    const around = (scale, centre) =>
      [scale.start, scale.end].map((end) => scale.value(centre + (end - centre) * factor));
    const middle = (scale) => (scale.start + scale.end) / 2;
    this.chart.range({
      x: around(this.chart.x, this.focus?.px ?? middle(this.chart.x)),
      y: around(this.chart.y, this.focus?.py ?? middle(this.chart.y)),
    });
  }
}
