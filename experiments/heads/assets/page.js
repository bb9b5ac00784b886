"use strict";
// each viewer: {words: [N], stages: {title: [layer][head][N * N]}}
for (const viewer of document.querySelectorAll(".maps")) {
  const { words, stages } = JSON.parse(viewer.querySelector("script").textContent);
  const N = words.length;
  const make = (name, parent, text) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };
  let stage = Object.keys(stages)[0], layer = 0, head = 0;

  // from white to dark blue; what is negative, from white to dark orange
  const colour = (share) => {
    const [r, g, b] = share < 0 ? [140, 52, 0] : [0, 60, 110], s = Math.min(1, Math.abs(share)) ** 0.7;
    return [255 + (r - 255) * s, 255 + (g - 255) * s, 255 + (b - 255) * s];
  };
  const paint = (map) => {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = N;
    const context = canvas.getContext("2d"), image = context.createImageData(N, N);
    const top = Math.max(...map.map(Math.abs), 1e-9);
    map.forEach((value, index) => image.data.set([...colour(value / top), 255], 4 * index));
    context.putImageData(image, 0, 0);
    return canvas;
  };

  const choice = make("div", viewer), grid = make("div", viewer), big = make("canvas", viewer), told = make("output", viewer);
  choice.className = "choice"; grid.className = "grid"; big.className = "big";

  const longest = Math.min(12, Math.max(...words.map((word) => word.length)));
  const label = 14 + 6.6 * longest, cell = Math.max(14, Math.floor(560 / N)), size = label + N * cell;
  const tell = (weight = "") => {
    const most = Math.max(...stages[stage][layer][head].map(Math.abs)).toFixed(3);
    told.textContent = `layer ${layer + 1}, head ${head + 1}${weight || `: the darkest is ${most}`}`;
  };
  const enlarge = () => {
    const scale = window.devicePixelRatio || 1;
    big.width = big.height = size * scale;
    const context = big.getContext("2d"), ink = getComputedStyle(viewer).color;
    context.scale(scale, scale);
    context.imageSmoothingEnabled = false;
    context.drawImage(paint(stages[stage][layer][head]), label, label, N * cell, N * cell);
    context.fillStyle = ink;
    context.font = `${Math.min(12, cell - 2)}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    const short = (word) => (word.length > 12 ? word.slice(0, 11) + "\u2026" : word);
    words.forEach((word, index) => {
      const place = label + (index + 0.5) * cell;
      context.textAlign = "right";
      context.fillText(short(word), label - 5, place);
      context.save();
      context.translate(place, label - 5);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(short(word), 0, 0);
      context.restore();
    });
    tell();
    for (const each of grid.querySelectorAll("canvas")) each.classList.toggle("chosen", each.dataset.at === `${layer}-${head}`);
  };
  big.onmousemove = (event) => {
    const box = big.getBoundingClientRect(), [m, n] = [event.clientX - box.left, event.clientY - box.top]
      .map((at) => Math.floor((at * size / box.width - label) / cell));
    const inside = n >= 0 && m >= 0 && n < N && m < N;
    tell(inside ? `: ${words[n]} \u2192 ${words[m]}  ${stages[stage][layer][head][n * N + m].toFixed(3)}` : "");
  };
  big.onmouseleave = () => tell();
  const show = () => {
    const layers = stages[stage], heads = Math.max(...layers.map((each) => each.length));
    grid.replaceChildren();
    grid.style.gridTemplateColumns = `22px repeat(${heads}, minmax(0, ${Math.max(1, Math.floor(640 / heads))}px))`;
    make("span", grid);
    for (let h = 0; h < heads; h++) make("span", grid, h + 1);
    layers.forEach((row, l) => {
      make("span", grid, l + 1).title = `layer ${l + 1}`;
      for (let h = 0; h < heads; h++) {
        if (h >= row.length) { make("span", grid); continue; }
        const canvas = paint(row[h]);
        canvas.dataset.at = `${l}-${h}`;
        canvas.tabIndex = 0;
        canvas.setAttribute("role", "button");
        canvas.setAttribute("aria-label", `layer ${l + 1}, head ${h + 1}`);
        const choose = () => { [layer, head] = [l, h]; enlarge(); };
        canvas.onclick = choose;
        canvas.onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } };
        grid.append(canvas);
      }
    });
    [layer, head] = [Math.min(layer, layers.length - 1), 0];
    enlarge();
  };
  if (Object.keys(stages).length > 1) for (const title of Object.keys(stages)) {
    const button = make("button", choice, title);
    button.setAttribute("aria-pressed", title === stage);
    button.onclick = () => {
      stage = title;
      for (const each of choice.children) each.setAttribute("aria-pressed", each === button);
      show();
    };
  }
  show();
}
