"use strict";
// each viewer: {title: {rows: [N], columns: [M], layers: [layer][head]}}; a map: {largest, shares: base64 of [N * M]}
const SHARES = 32767, THUMBNAIL = 128;
for (const viewer of document.querySelectorAll(".maps")) {
  const stages = JSON.parse(viewer.querySelector("script").textContent);
  const append = (name, parent, text) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };
  let stage = Object.keys(stages)[0], layer = 0, head = 0;

  // the weights of a map as shares of its largest absolute weight, from -SHARES to SHARES
  const sharesOf = (map) => {
    if (typeof map.shares !== "string") return map.shares;
    const bytes = atob(map.shares), numbers = new Int16Array(bytes.length / 2);
    for (let i = 0; i < numbers.length; i++) numbers[i] = bytes.charCodeAt(2 * i) | (bytes.charCodeAt(2 * i + 1) << 8);
    return (map.shares = numbers);
  };

  // from white to dark blue; what is negative, from white to dark orange
  const colour = (share) => {
    const [r, g, b] = share < 0 ? [140, 52, 0] : [0, 60, 110], strength = Math.min(1, Math.abs(share)) ** 0.7;
    return [255 + (r - 255) * strength, 255 + (g - 255) * strength, 255 + (b - 255) * strength];
  };
  // a pixel for each weight; if these are more than `most` in a direction, for the largest of a square of weights
  const paint = (map, most = Infinity) => {
    const canvas = document.createElement("canvas"), shares = sharesOf(map);
    const { rows: { length: N }, columns: { length: M } } = stages[stage];
    const side = Math.max(1, Math.ceil(Math.max(N, M) / most));
    canvas.width = Math.ceil(M / side);
    canvas.height = Math.ceil(N / side);
    const strongest = new Int16Array(canvas.width * canvas.height);
    for (let n = 0; n < N; n++) for (let m = 0; m < M; m++) {
      const share = shares[n * M + m], pixel = Math.floor(n / side) * canvas.width + Math.floor(m / side);
      if (Math.abs(share) > Math.abs(strongest[pixel])) strongest[pixel] = share;
    }
    const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
    // a pixel is an integer, whose highest byte is its opacity
    const pixels = new Uint32Array(image.data.buffer);
    strongest.forEach((share, pixel) => {
      const [r, g, b] = colour(share / SHARES).map(Math.round);
      pixels[pixel] = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
    });
    context.putImageData(image, 0, 0);
    return canvas;
  };

  const stageButtons = append("div", viewer), grid = append("div", viewer), enlarged = append("canvas", viewer), caption = append("output", viewer);
  stageButtons.className = "stages"; grid.className = "grid"; enlarged.className = "enlarged";

  // the scale of the colours below the map: its pixels, and those of its surroundings
  const BAR = { width: 200, high: 10, height: 40 };
  // the height of a written word
  const WORD = 14;
  // where the map stands beside its tokens, in pixels
  const measures = () => {
    const { rows, columns } = stages[stage];
    const longest = Math.min(12, Math.max(...[...rows, ...columns].map((word) => word.length)));
    const size = Math.max(rows.length, columns.length);
    // above 64 tokens, a cell is narrower than a word, and not every word is written
    const cell = Math.max(1, Math.floor(560 / size), Math.min(WORD, Math.floor(64 * WORD / size)));
    const label = 14 + 6.6 * longest, width = label + columns.length * cell;
    return { rows, columns, label, cell, width: Math.max(width, label + BAR.width), height: label + rows.length * cell + BAR.height };
  };
  const describe = (weight = "") => {
    const largest = stages[stage].layers[layer][head].largest.toFixed(3);
    caption.textContent = `layer ${layer + 1}, head ${head + 1}${weight || `: the darkest is ${largest}`}`;
  };
  const enlarge = () => {
    const scale = window.devicePixelRatio || 1, { rows, columns, label, cell, width, height } = measures();
    enlarged.width = width * scale;
    enlarged.height = height * scale;
    const context = enlarged.getContext("2d"), ink = getComputedStyle(viewer).color;
    context.scale(scale, scale);
    context.imageSmoothingEnabled = false;
    context.drawImage(paint(stages[stage].layers[layer][head]), label, label, columns.length * cell, rows.length * cell);
    context.fillStyle = ink;
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    const every = Math.ceil(WORD / cell), isWritten = (index) => index % every === 0;
    const short = (word) => (word.length > 12 ? word.slice(0, 11) + "\u2026" : word);
    context.textAlign = "right";
    rows.forEach((word, index) => isWritten(index) && context.fillText(short(word), label - 5, label + (index + 0.5) * cell));
    columns.forEach((word, index) => {
      if (!isWritten(index)) return;
      context.save();
      context.translate(label + (index + 0.5) * cell, label - 5);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(short(word), 0, 0);
      context.restore();
    });
    drawScale(context, Math.round(label), height - BAR.height + 10);
    describe();
    for (const each of grid.querySelectorAll("canvas")) each.classList.toggle("chosen", each.dataset.at === `${layer}-${head}`);
  };
  const drawScale = (context, left, top) => {
    const map = stages[stage].layers[layer][head], { largest } = map;
    const lowest = sharesOf(map).some((share) => share < 0) ? -1 : 0;
    for (let x = 0; x < BAR.width; x++) {
      const share = lowest + ((1 - lowest) * x) / (BAR.width - 1);
      context.fillStyle = `rgb(${colour(share).map(Math.round)})`;
      context.fillRect(left + x, top, 1, BAR.high);
    }
    context.fillStyle = getComputedStyle(viewer).color;
    context.font = "11px system-ui, sans-serif";
    const write = (text, x, side) => { context.textAlign = side; context.fillText(text, x, top + BAR.high + 9); };
    write(lowest ? (-largest).toFixed(3) : "0", left, "left");
    write("weight", left + BAR.width / 2, "center");
    write(largest.toFixed(3), left + BAR.width, "right");
  };
  enlarged.onmousemove = (event) => {
    const { rows, columns, label, cell, width } = measures();
    const bounds = enlarged.getBoundingClientRect(), [m, n] = [event.clientX - bounds.left, event.clientY - bounds.top]
      .map((at) => Math.floor((at * width / bounds.width - label) / cell));
    const isInMap = n >= 0 && m >= 0 && n < rows.length && m < columns.length;
    const map = stages[stage].layers[layer][head];
    const weight = ((sharesOf(map)[n * columns.length + m] / SHARES) * map.largest).toFixed(3);
    describe(isInMap ? `: ${rows[n]} \u2192 ${columns[m]}  ${weight}` : "");
  };
  enlarged.onmouseleave = () => describe();
  const showStage = () => {
    const { layers } = stages[stage], heads = Math.max(...layers.map((each) => each.length));
    grid.replaceChildren();
    grid.style.gridTemplateColumns = `22px repeat(${heads}, minmax(0, ${Math.max(1, Math.floor(640 / heads))}px))`;
    append("span", grid);
    for (let h = 0; h < heads; h++) append("span", grid, h + 1);
    layers.forEach((row, l) => {
      append("span", grid, l + 1).title = `layer ${l + 1}`;
      for (let h = 0; h < heads; h++) {
        if (h >= row.length) { append("span", grid); continue; }
        const canvas = paint(row[h], THUMBNAIL);
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
    const button = append("button", stageButtons, title);
    button.setAttribute("aria-pressed", title === stage);
    button.onclick = () => {
      stage = title;
      for (const each of stageButtons.children) each.setAttribute("aria-pressed", each === button);
      showStage();
    };
  }
  showStage();
}
