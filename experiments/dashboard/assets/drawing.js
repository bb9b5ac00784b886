// What all panels draw with: how groups look, elements, scales.
"use strict";

const SYMBOLS = [
  "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", "M-3.6,-3.6h7.2v7.2h-7.2z", "M0,-5L4.8,3.6H-4.8z", "M0,-5.2L5.2,0L0,5.2L-5.2,0z",
  "M0,5L4.8,-3.6H-4.8z", "M-5,-1.7h3.3v-3.3h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3z",
]; // prettier-ignore
const DASHES = ["", "7 4", "4 2", "10 3 2 3", "14 5"];
const COLOURS = 7;
const ROOM = 0.04; // share of the axis left free at its ends
const WIDE = 0.53; // width of a letter, as a share of the size of the font
const DIGITS = 1e-5; // means are rounded to six digits, so values that differ by a smaller share are one

/** How group number `index` looks: its own colour, dash and symbol; -1 is all the rest together, in grey. */
function look(index) {
  if (index < 0) return { colour: "var(--rest)", dash: "", symbol: SYMBOLS[0] };
  return {
    colour: `var(--group${index % COLOURS})`,
    dash: DASHES[index % DASHES.length],
    symbol: SYMBOLS[index % SYMBOLS.length],
  };
}

function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function html(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Whether a key is for the browser, which zooms the page and goes back by such keys. */
const isForBrowser = (event) => event.ctrlKey || event.metaKey || event.altKey;

/** Call `act` when a pointer or the focus leaves a picture. A finger that is lifted leaves nothing, because what it has
    pointed at is still to be read: it leaves when it scrolls, or meets something else. */
function whenLeft(picture, act) {
  picture.addEventListener("pointerleave", (event) => event.pointerType === "touch" || act());
  for (const kind of ["pointercancel", "blur"]) picture.addEventListener(kind, act);
  document.addEventListener("pointerdown", (event) => picture.contains(event.target) || act());
}

/** The size of the letters of a picture in pixels; the style sheet has larger ones for wide screens. */
const fontSize = (picture) => parseFloat(getComputedStyle(picture).fontSize);

/** What a screen reader says of a picture after its name: the note above it. */
function describedBy(figure) {
  const note = figure.closest("figure")?.querySelector(".note");
  if (!note) return {};
  note.id ||= `note-${figure.closest("figure").id}`;
  return { "aria-describedby": note.id };
}

class Scale {
  constructor([low, high], [start, end], logarithmic) {
    this.of = logarithmic ? Math.log : (value) => value;
    this.back = logarithmic ? Math.exp : (value) => value;
    Object.assign(this, { low, high, start, end, logarithmic });
  }

  pixel(value) {
    const [low, high] = [this.of(this.low), this.of(this.high)];
    return this.start + ((this.of(value) - low) / (high - low)) * (this.end - this.start);
  }

  value(pixel) {
    const [low, high] = [this.of(this.low), this.of(this.high)];
    return this.back(low + ((pixel - this.start) / (this.end - this.start)) * (high - low));
  }
}

/** The range of values with a little room at its ends. */
function extent(values, logarithmic) {
  const known = values.filter((value) => isNumber(value) && (!logarithmic || value > 0));
  if (!known.length) return [1, 2];
  let low = known[0],
    high = known[0];
  for (const value of known) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const same = high - low <= DIGITS * Math.max(Math.abs(low), Math.abs(high));
  if (logarithmic) {
    const room = same ? 1.3 : (high / low) ** ROOM;
    return [low / room, high * room];
  }
  const room = same ? Math.abs(low) * 0.1 || 1 : (high - low) * ROOM;
  return [low - room, high + room];
}
