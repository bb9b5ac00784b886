// What leaves the page: tables as text, pictures as SVG and PNG.
"use strict";

const PIXELS = 2; // of a PNG for one of the page
const DRAWN = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-linecap",
  "opacity",
  "font-size",
  "font-weight",
  "text-anchor",
  "paint-order",
];

/** Lines of text cells, the first their titles, in a format: csv, md or tex. `units`: of the columns, `numeric`: whether
    a column is of numbers, `notes`: sentences below; csv needs none of them. */
function tableText({ lines, units, numeric, notes }, format) {
  if (format === "csv") return lines.map((cells) => cells.map(csvCell).join(",")).join("\n") + "\n";
  const [titles, ...rest] = lines;
  const note = notes.map((each) => `\n${each}\n`).join("");
  if (format === "md") {
    const line = (cells) => `| ${cells.map((cell) => cell.replace(/\s*\n\s*/g, " ").replaceAll("|", "\\|")).join(" | ")} |\n`;
    const head = line(titles.map((each, place) => (units[place] ? `${each} (${units[place]})` : each)));
    return head + line(numeric.map((is) => (is ? "---:" : "---"))) + rest.map(line).join("") + note;
  }
  const line = (cells) => `${cells.map(texCell).join(" & ")} \\\\\n`;
  const sides = numeric.map((is) => (is ? "r" : "l")).join("");
  const head = line(titles) + (units.some(Boolean) ? line(units) : "");
  const body = `\\toprule\n${head}\\midrule\n${rest.map(line).join("")}\\bottomrule\n`;
  const tabular = `\\begin{tabular}{${sides}}\n${body}\\end{tabular}`;
  // scaled down to the width of the text where it is wider
  const width = "\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi";
  return `% needs \\usepackage{booktabs,graphicx}\n\\par\\medskip\\noindent\\resizebox{${width}}{!}{%\n${tabular}}\\par\\medskip\n${texCell(note)}\n`;
}

// a spreadsheet would take text that begins like a formula for one
const guarded = (cell) => (/^[=@]/.test(cell) ? `'${cell}` : cell);
const quoted = (cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
const csvCell = (cell) => quoted(guarded(cell));
const TEX = {
  "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "$<$", ">": "$>$", "\u00b1": "$\\pm$",
  "\u2212": "$-$", "\u2013": "--", "\u2026": "\\dots{}",
}; // prettier-ignore
// a leading [ would begin an argument of what stands before it
const texCell = (cell) =>
  cell.replace(/[\\~^<>\u00b1\u2212\u2013\u2026&%$#_{}]/g, (sign) => TEX[sign] ?? `\\${sign}`).replace(/^\[/, "{[}");

/** A picture of the page as a file of its own: its colours are written into it, as no style sheet goes with it. */
function pictureText(surface) {
  const copy = surface.cloneNode(true);
  const originals = [surface, ...surface.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, place) => {
    const style = getComputedStyle(originals[place]);
    element.setAttribute("style", DRAWN.map((name) => `${name}:${plain(style.getPropertyValue(name))}`).join(";"));
    if (style.visibility === "hidden") element.setAttribute("visibility", "hidden");
  });
  const { width, height } = surface.getBoundingClientRect();
  for (const [key, value] of Object.entries({
    width,
    height,
    "font-family": "system-ui, sans-serif",
    xmlns: surface.namespaceURI,
  }))
    copy.setAttribute(key, value);
  const sheet = getComputedStyle(document.documentElement).getPropertyValue("--page");
  const background = svg("rect", { width: "100%", height: "100%" });
  background.style.fill =
    getComputedStyle(surface.closest("figure, section") ?? document.body).backgroundColor || sheet;
  copy.prepend(background);
  return new XMLSerializer().serializeToString(copy);
}

const PLAIN = new Map();

/** A colour that was mixed, as red, green and blue, which every program reads; any other value as it is. */
function plain(value) {
  if (!/^(oklab|color)\(/.test(value)) return value;
  if (!PLAIN.has(value)) {
    const brush = html("canvas", { width: 1, height: 1 }).getContext("2d");
    brush.fillStyle = value;
    brush.fillRect(0, 0, 1, 1);
    PLAIN.set(value, `rgb(${[...brush.getImageData(0, 0, 1, 1).data].slice(0, 3).join(", ")})`);
  }
  return PLAIN.get(value);
}

function savePicture(surface, name, kind) {
  const picture = new Blob([pictureText(surface)], { type: "image/svg+xml" });
  if (kind === "svg") return save(`${name}.svg`, picture);
  const image = new Image();
  const address = URL.createObjectURL(picture);
  image.onload = () => {
    const canvas = html("canvas", { width: image.width * PIXELS, height: image.height * PIXELS });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(address);
    canvas.toBlob((blob) => save(`${name}.png`, blob));
  };
  image.src = address;
}

function save(name, blob) {
  const link = html("a", { download: name });
  link.href = URL.createObjectURL(blob);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Small buttons, each [sign, name, act]. */
function toolbar(figure, buttons) {
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
  figure.append(tools);
}

const pictureButtons = (figure, surface) =>
  ["svg", "png"].map((kind) => [kind, `Save as ${kind.toUpperCase()}`, () => savePicture(surface(), figure.id, kind)]);
