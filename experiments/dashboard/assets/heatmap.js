// Heat maps side by side in one SVG; hover and arrow keys read out cells. Colours are the style sheet's.
"use strict";

const TILE = { top: 24, left: 30, bottom: 20, right: 12, letter: 7.2, most: 30, least: 5, roomy: 20 };

/** Heat maps in `figure`. draw(what) shows
    {tiles: [{title, values: [[number or null]]}], range: [low, high], diverging, most: the size of a cell, across: tiles
     that belong into a line, and go on in the next where it is too short, text(tile, row, column): lines}. */
class HeatMap {
  constructor(figure) {
    this.figure = figure;
    this.focus = null;
    this.surface = svg("svg", { class: "heat", tabindex: 0, role: "application", ...describedBy(figure) });
    this.surface.setAttribute("aria-label", `${figure.dataset.name}: arrow keys read cells`);
    this.tip = html("div", { class: "tip", role: "status", hidden: "" });
    toolbar(
      figure,
      pictureButtons(figure, () => this.surface),
    );
    figure.append(this.surface, this.tip);
    this.surface.addEventListener("pointermove", (event) => this.point(event));
    this.surface.addEventListener("pointerdown", (event) => this.point(event));
    whenLeft(this.surface, () => this.show(null));
    this.surface.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.what && this.draw(this.what)).observe(figure);
  }

  draw(what) {
    this.what = what;
    const width = Math.max(240, this.surface.getBoundingClientRect().width);
    const columns = Math.max(...what.tiles.map((tile) => tile.values[0].length));
    const besides = TILE.left + TILE.right;
    const letters = Math.max(...what.tiles.map((tile) => tile.title.length));
    const least = Math.max(TILE.left + TILE.letter * letters, besides + TILE.least * columns);
    // where all fit beside each other, with cells that a finger can meet, they are in one line
    const fits = width / what.tiles.length >= Math.max(least, besides + TILE.roomy * columns);
    const together = fits ? what.tiles.length : (what.across ?? 1);
    // lines of the same length, as far as it goes
    const across = Math.ceil(together / Math.ceil(together / Math.max(1, Math.floor(width / least))));
    const size = Math.min(what.most ?? TILE.most, (width / across - besides) / columns);
    this.cells = [];
    let top = 0;
    const parts = [];
    let number = 0;
    for (const line of parted(what.tiles, together).flatMap((tiles) => parted(tiles, across))) {
      line.forEach((tile, place) =>
        parts.push(...this.tile(tile, number++, (place * width) / across + TILE.left, top + TILE.top, size)),
      );
      top += TILE.top + TILE.bottom + size * Math.max(...line.map((tile) => tile.values.length));
    }
    this.cursor = svg("rect", { class: "cursor", width: size, height: size, visibility: "hidden" });
    this.surface.setAttribute("viewBox", `0 0 ${width} ${top}`);
    this.surface.style.height = `${top}px`;
    this.surface.replaceChildren(...parts, this.cursor);
    this.size = size;
  }

  tile(tile, number, left, top, size) {
    const parts = [svg("text", { class: "title", x: left, y: top - 8 }, tile.title)];
    tile.values.forEach((values, row) => {
      if (row === 0 || row === tile.values.length - 1 || size * 2 > 24)
        parts.push(svg("text", { x: left - 5, y: top + (row + 0.5) * size + 4, "text-anchor": "end" }, String(row + 1)));
      values.forEach((value, column) => {
        const [x, y] = [left + column * size, top + row * size];
        this.cells.push({ x, y, tile: number, row, column });
        const style = `fill:${isNumber(value) ? this.colour(value) : "none"}`;
        parts.push(svg("rect", { class: "cell", x, y, width: size, height: size, style }));
      });
    });
    const bottom = top + tile.values.length * size + 14;
    const count = tile.values[0].length;
    const ends = count > 1 ? [0, count - 1] : [0];
    for (const column of ends)
      parts.push(svg("text", { x: left + (column + 0.5) * size, y: bottom, "text-anchor": "middle" }, String(column + 1)));
    return parts;
  }

  colour(value) {
    const [low, high] = this.what.range;
    if (this.what.diverging) {
      const share = Math.min(1, Math.abs(value) / Math.max(Math.abs(low), Math.abs(high), 1e-12));
      return mixed(value < 0 ? "var(--group0)" : "var(--group1)", share);
    }
    return mixed("var(--group0)", high > low ? (value - low) / (high - low) : 1);
  }

  point(event) {
    const box = this.surface.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    const inside = ({ x, y }) => px >= x && px < x + this.size && py >= y && py < y + this.size;
    this.show(this.cells?.find(inside) ?? null);
  }

  key(event) {
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    if (isForBrowser(event) || !(event.key in steps) || !this.cells?.length) return;
    const [down, right] = steps[event.key];
    const from = this.focus;
    const at = (cell) => !from || (cell.tile === from.tile && cell.row === from.row + down && cell.column === from.column + right);
    // off the edge of a map comes the next one
    const beyond = (cell) => from && cell.tile === from.tile + right + down;
    const next = this.cells.find(at) ?? this.cells.find(beyond);
    if (next) this.show(next);
    event.preventDefault();
    event.stopPropagation();
  }

  show(cell) {
    this.focus = cell;
    this.tip.hidden = !cell;
    this.cursor?.setAttribute("visibility", cell ? "visible" : "hidden");
    if (!cell) return;
    this.cursor.setAttribute("x", cell.x);
    this.cursor.setAttribute("y", cell.y);
    const lines = this.what.text(this.what.tiles[cell.tile], cell.row, cell.column);
    this.tip.replaceChildren(...lines.map((line) => html("div", {}, line)));
    const [box, frame] = [this.surface, this.figure].map((element) => element.getBoundingClientRect());
    const left = Math.max(0, Math.min(cell.x + this.size + 8, box.width - this.tip.offsetWidth - 4));
    const below = cell.y < this.tip.offsetHeight + 12;
    this.tip.style.left = `${box.left - frame.left + left}px`;
    this.tip.style.top = `${box.top - frame.top + cell.y + (below ? this.size + 8 : -this.tip.offsetHeight - 8)}px`;
  }
}

/** Items in lists of so many. */
const parted = (items, size) =>
  Array.from({ length: Math.ceil(items.length / size) }, (_, place) => items.slice(place * size, (place + 1) * size));

/** A colour on the sheet, from none of it to all of it. */
const mixed = (colour, share) => `color-mix(in oklab, ${colour} ${(4 + 96 * share).toFixed(1)}%, var(--sheet))`;
