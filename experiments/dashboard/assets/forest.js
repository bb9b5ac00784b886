// Intervals under each other: a row a configuration, its mean, its 95% interval, its seeds, and what follows from them.
"use strict";

const ROW = { wide: 27, printed: 20, narrow: 68, top: 26, bottom: 40, narrowest: 760, spread: 1.8 };
const TEXTS = [0, 245, 295, 400]; // pixels from the plot to its columns of text, and to their end
const SIDE = 64; // pixels that the name of a side takes
const REACH = 2.2; // the axis goes so many times as far as means and seeds do; intervals that go further have arrows
const BOLD = 0.66; // width of a bold letter, as a share of the size of the font
const SEEDS = 8; // pixels from an interval down to the dots of its seeds
const LENGTHENED = 5; // the most that a row without a verdict may lengthen the axis; one that goes further has an arrow

/** A forest plot in `figure`. draw(what) shows
    {title, brief: title where there is little room, rows: [{group, name, mean, half, seeds, numbers, word, aside: whether nothing is tested, key, selected, hollow,
     text()}], zero: {name} or null, margin,
     heading: titles of the numbers and of the word, empty}. onSelect(key) is told of a row that is clicked or entered. */
class Forest {
  constructor(figure, onSelect) {
    Object.assign(this, { figure, onSelect });
    this.surface = svg("svg", { class: "forest", role: "list", "aria-label": figure.dataset.name, ...describedBy(figure) });
    this.tip = html("div", { class: "tip", role: "status", hidden: "" });
    toolbar(
      figure,
      pictureButtons(figure, () => this.surface),
    );
    figure.append(this.surface, this.tip);
    new ResizeObserver(() => this.what && this.draw(this.what)).observe(figure);
  }

  draw(what) {
    this.what = what;
    const width = Math.max(280, this.surface.getBoundingClientRect().width);
    this.narrow = width < ROW.narrowest;
    this.size = fontSize(this.surface);
    const step = this.step(what.rows.length);
    const letters = Math.max(10, ...what.rows.map((row) => row.name.length));
    this.names = this.narrow ? 0 : Math.min(0.34 * width, WIDE * this.size * letters + 30);
    const texts = this.narrow ? 0 : TEXTS.at(-1);
    const bottom = ROW.top + step * what.rows.length;
    this.scale = new Scale(this.range(what), [this.names + 16, width - texts - 16], false);
    this.texts = width - texts;
    const height = Math.max(bottom + ROW.bottom, this.surface.getBoundingClientRect().height);
    this.surface.setAttribute("viewBox", `0 0 ${width} ${height}`);
    if (!what.rows.length) {
      this.surface.replaceChildren(svg("text", { class: "empty", x: width / 2, y: ROW.top + 14 }, what.empty));
      return;
    }
    const rows = what.rows.map((row, place) => this.row(row, ROW.top + step * place, step, width));
    this.surface.replaceChildren(this.axis(bottom), ...rows);
  }

  /** The height of a row: rows spread where the panel is higher than they need. */
  step(rows) {
    // forty rows, the answer and the legend fit on one sheet of paper
    const isSheet = document.body.classList.contains("sheet");
    const least = this.narrow ? ROW.narrow : isSheet ? ROW.printed : ROW.wide;
    this.surface.style.height = `${ROW.top + least * rows + ROW.bottom}px`;
    const room = (this.surface.getBoundingClientRect().height - ROW.top - ROW.bottom) / Math.max(1, rows);
    return Math.max(least, Math.min(room, ROW.spread * least));
  }

  range({ rows: all, zero, margin }) {
    const placesOf = (rows) => rows.flatMap((row) => [row.mean, ...row.seeds]).concat(zero ? [0] : []);
    const endsOf = (rows) =>
      rows.filter((row) => isNumber(row.half)).flatMap((row) => [row.mean - row.half, row.mean + row.half]);
    const length = (rows) => extent([...placesOf(rows), ...endsOf(rows)], false).reduce((low, high) => high - low);
    const tested = all.filter((row) => !row.aside);
    const most = LENGTHENED * length(tested);
    const rows = tested.length ? all.filter((row) => !row.aside || length([...tested, row]) <= most) : all;
    const places = placesOf(rows);
    const [low, high] = extent(places, false);
    const room = ((REACH - 1) * (high - low)) / 2;
    const [first, last] = extent([...places, ...endsOf(rows), ...(zero ? [-margin, margin] : [])], false);
    return [Math.max(first, low - room), Math.min(last, high + room)];
  }

  axis(bottom) {
    const { title, zero, margin, heading, brief } = this.what;
    const { scale } = this;
    const parts = [];
    if (zero) {
      const [left, right] = [-margin, margin].map((end) => scale.pixel(Math.max(scale.low, Math.min(scale.high, end))));
      parts.push(svg("rect", { class: "margin", x: left, y: ROW.top, width: right - left, height: bottom - ROW.top }));
    }
    for (const tick of ticks(scale.low, scale.high, (scale.end - scale.start) / 90, false)) {
      const at = scale.pixel(tick);
      parts.push(svg("line", { x1: at, x2: at, y1: ROW.top, y2: bottom }));
      parts.push(svg("text", { x: at, y: bottom + 15, "text-anchor": "middle" }, short(tick)));
    }
    if (zero) {
      const at = scale.pixel(0);
      parts.push(svg("line", { class: "zero", x1: at, x2: at, y1: ROW.top - 4, y2: bottom }));
      const side = (x, anchor, text) => svg("text", { x, y: ROW.top - 11, "text-anchor": anchor }, text);
      if (at - this.names > SIDE) parts.push(side(at - 8, "end", "◂ better"));
      if (this.texts - at > SIDE) parts.push(side(at + 8, "start", "worse ▸"));
    }
    parts.push(
      svg(
        "text",
        { class: "title", x: (scale.start + scale.end) / 2, y: bottom + 33, "text-anchor": "middle" },
        this.narrow ? brief : title,
      ),
    );
    if (!this.narrow) {
      heading.forEach((text, place) =>
        parts.push(svg("text", { x: this.texts + TEXTS[place], y: ROW.top - 11 }, text)),
      );
    }
    return svg("g", { class: "axes" }, ...parts);
  }

  row(row, top, step, width) {
    const { scale, narrow } = this;
    const { colour, symbol } = look(row.group);
    const middle = top + (narrow ? 30 : step / 2);
    const within = (value) => Math.max(scale.low, Math.min(scale.high, value));
    const kind = `row${row.selected ? " selected" : ""}`;
    const group = svg("g", {
      class: kind,
      tabindex: 0,
      role: "listitem",
      "aria-label": row.text().join(", "),
      "data-name": row.name,
    });
    group.append(svg("rect", { class: "back", x: 0, y: top, width, height: step }));
    const base = narrow ? top + 15 : middle + 4;
    group.append(svg("path", { d: symbol, transform: `translate(9 ${base - 4})`, style: `fill:${colour}` }));
    const room = narrow ? width - 34 - BOLD * this.size * row.word.length : this.names - 24;
    const letters = Math.floor(room / (WIDE * this.size));
    group.append(svg("text", { class: "name", x: 20, y: base }, cut(row.name, Math.max(12, letters))));
    const isInside = (value) => value >= scale.low && value <= scale.high;
    for (const seed of row.seeds.filter(isInside))
      group.append(
        svg("circle", { class: "seed", cx: scale.pixel(seed), cy: middle + SEEDS, r: 2.2, style: `fill:${colour}` }),
      );
    const ends = [row.mean - (row.half ?? 0), row.mean + (row.half ?? 0)];
    const [x1, x2] = ends.map((end) => scale.pixel(within(end)));
    group.append(svg("line", { class: "interval", x1, x2, y1: middle, y2: middle, style: `stroke:${colour}` }));
    group.append(...this.arrows(ends, middle, colour));
    const style = row.hollow ? `fill:var(--sheet);stroke:${colour}` : `fill:${colour}`;
    if (isInside(row.mean))
      group.append(
        svg("path", {
          class: `symbol${row.hollow ? " hollow" : ""}`,
          d: "M0,-6L6,0L0,6L-6,0z",
          transform: `translate(${scale.pixel(row.mean)} ${middle})`,
          style,
        }),
      );
    const verdict = `verdict ${row.word.replaceAll(" ", "-")}`;
    if (narrow) {
      const [difference, ...others] = row.numbers;
      const said = [difference, ...others.map((text, place) => `${this.what.heading[place + 1]} ${text}`)].join("; ");
      group.append(svg("text", { class: verdict, x: width - 4, y: base, "text-anchor": "end" }, row.word));
      group.append(svg("text", { class: "numbers", x: 20, y: middle + 25 }, said));
    } else {
      row.numbers.forEach((text, place) => group.append(svg("text", { x: this.texts + TEXTS[place], y: base }, text)));
      group.append(svg("text", { class: verdict, x: this.texts + TEXTS[2], y: base }, row.word));
    }
    this.listen(group, row, middle);
    return group;
  }

  /** Arrows at the ends of the axis that an interval goes beyond. */
  arrows([low, high], middle, colour) {
    const { scale } = this;
    const arrow = (x, along) => svg("path", { class: "beyond", d: `M${x},${middle}l${along},-4.5v9z`, style: `fill:${colour}` });
    return [
      ...(low < scale.low ? [arrow(scale.start - 2, 7)] : []),
      ...(high > scale.high ? [arrow(scale.end + 2, -7)] : []),
    ];
  }

  listen(group, row, middle) {
    const show = (at) => {
      this.tip.replaceChildren(...row.text().map((line) => html("div", {}, line)));
      this.tip.hidden = false;
      const [box, frame] = [this.surface, this.figure].map((element) => element.getBoundingClientRect());
      this.tip.style.left = `${Math.max(0, Math.min(at, box.width - this.tip.offsetWidth - 8))}px`;
      this.tip.style.top = `${box.top - frame.top + middle + 16}px`;
    };
    const hide = () => (this.tip.hidden = true);
    group.addEventListener("pointermove", (event) =>
      show(event.clientX - this.figure.getBoundingClientRect().left + 12),
    );
    group.addEventListener("pointerleave", hide);
    group.addEventListener("focus", () => show(this.names + 20));
    group.addEventListener("blur", hide);
    group.addEventListener("click", () => this.onSelect(row.key));
    group.addEventListener("keydown", (event) => {
      if (isForBrowser(event)) return;
      const next = { ArrowDown: group.nextElementSibling, ArrowUp: group.previousElementSibling }[event.key];
      if (next?.classList.contains("row")) next.focus();
      else if (event.key === "Enter") this.onSelect(row.key);
      else return;
      event.preventDefault();
    });
  }
}
