/* Matrices as pictures: labelled axes that stay in view, zoom, and every cell readable by mouse, finger or keys.

   A canvas as large as the view is drawn from the part of the matrix that is scrolled to, so that size costs nothing.

   Longer than 400 lines: one class, since what is drawn, read and scrolled to is one state. */

const FONT = '11px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace';
const measuring = document.createElement("canvas").getContext("2d");
const WIDTHS = new Map();

function textWidth(text) {
  if (!WIDTHS.has(text)) {
    measuring.font = FONT;
    WIDTHS.set(text, measuring.measureText(text).width);
  }
  return WIDTHS.get(text);
}

function shortened(text, room) {
  if (textWidth(text) <= room) return text;
  const letters = Array.from(text);
  while (letters.length > 1 && textWidth(`${letters.join("")}…`) > room) letters.pop();
  return `${letters.join("")}…`;
}

const onScreen = new IntersectionObserver(
  (entries) => entries.forEach((entry) => HEATMAPS.get(entry.target).visibility(entry.isIntersecting)),
  { rootMargin: "200px" },
);
const resized = new ResizeObserver((entries) => entries.forEach((entry) => HEATMAPS.get(entry.target).resize()));
/** By the element that each is drawn in.
    @type {Map<Element, Heatmap>} */
const HEATMAPS = new Map();
const SMALL = document.createElement("canvas");

class Heatmap {
  /** `square`: cells as wide as high, as many as fit (a tensor); else rows of one height (a variable). */
  constructor(host, { square = false, maxHeight = 420, maxCell = 46, labelRoom = 110, onCell = null } = {}) {
    this.square = square;
    this.maxHeight = maxHeight;
    this.maxCell = maxCell;
    this.labelRoom = labelRoom;
    this.onCell = onCell;
    /** @type {Grid | null} */
    this.grid = null;
    this.zoom = 1;
    /** @type {[number, number] | null} */
    this.cursor = null;
    this.dirty = false;
    // Asked of the browser only when they change: asking on every drawing would make it lay out the page each time.
    this.roomWidth = 0;
    this.scrolled = [0, 0];
    this.near = false;
    this.view = el("div", { class: "heat-view" });
    this.sizer = el("div", { class: "heat-sizer" });
    this.canvas = el("canvas", { tabindex: "0", role: "img" });
    this.bar = el("canvas", { class: "heat-scale", "aria-hidden": "true" });
    this.low = el("span");
    this.high = el("span");
    this.sizer.append(this.canvas);
    this.view.append(this.sizer);
    this.tools = el(
      "span",
      { class: "heat-tools" },
      el("button", { type: "button", title: "Smaller cells", onclick: () => this.scale(1 / 1.6) }, "−"),
      el("button", { type: "button", title: "Fit", onclick: () => this.scale(0) }, "fit"),
      el("button", { type: "button", title: "Larger cells", onclick: () => this.scale(1.6) }, "+"),
    );
    host.classList.add("heat");
    host.append(this.view, el("div", { class: "heat-foot" }, this.low, this.bar, this.high, this.tools));
    HEATMAPS.set(this.view, this);
    this.view.addEventListener("scroll", () => {
      this.scrolled = [this.view.scrollLeft, this.view.scrollTop];
      this.draw();
    });
    this.view.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => {
      this.point(event);
      if (this.cursor) this.onCell?.(...this.cursor);
    });
    this.canvas.addEventListener("pointerleave", () => this.select(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => this.select(null));
    onScreen.observe(this.view);
    resized.observe(this.view);
  }

  /** `grid`: name; rows, columns and their values row by row; whether causal (what is right of the diagonal is not
      seen); labels and titles of both axes; a text for a cell; and which cells are marked. */
  show(/** @type {Grid} */ grid) {
    const same = this.grid && this.grid.rows === grid.rows && this.grid.columns === grid.columns;
    if (!same) this.cursor = null;
    this.grid = grid;
    this.range();
    this.canvas.setAttribute("aria-label", `${grid.name}, ${grid.rows} × ${grid.columns}; arrow keys read the cells`);
    this.layout();
    this.draw();
  }

  range() {
    const { rows, columns, values, causal } = this.grid;
    let [low, high] = [0, 0];
    for (let r = 0; r < rows; r++) {
      const end = r * columns + (causal ? r + 1 : columns);
      for (let i = r * columns; i < end; i++) {
        const x = values[i];
        if (x < low && x > -Infinity) low = x;
        else if (x > high && x < Infinity) high = x;
      }
    }
    // Rounding is no sign.
    this.signed = low < -1e-9 * Math.max(1, high);
    this.largest = Math.max(-low, high) || 1;
    const ends = [number(this.signed ? -this.largest : 0), number(this.largest)];
    this.numberRoom = 6 + Math.max(24, ...ends.map(textWidth));
    [this.low.textContent, this.high.textContent] = ends;
  }

  visibility(near) {
    this.near = near;
    if (near && this.dirty) this.draw();
  }

  resize() {
    this.roomWidth = this.view.clientWidth;
    this.layout();
    this.draw();
  }

  // --------------------------------------------------------------------------------------------- geometry

  layout() {
    const { grid } = this;
    const width = this.roomWidth;
    if (!width || !grid) return;
    const longest = (labels) => labels.reduce((most, label) => Math.max(most, textWidth(label)), 0);
    const rowRoom = Math.min(longest(grid.rowLabels), this.labelRoom, Math.max(70, width * 0.3));
    const columnRoom = Math.min(longest(grid.columnLabels), 70);
    this.left = Math.ceil(rowRoom) + 10 + (grid.rowTitle ? 16 : 0);
    const room = width - this.left - 2;
    const fit = room / grid.columns;
    // A small tensor has room for its numbers.
    const small = !grid.causal && grid.rows <= 20 && fit >= this.numberRoom;
    if (this.square && !small) {
      const down = (this.maxHeight - 60) / grid.rows;
      this.cellWidth = this.cellHeight = Math.max(0.5, Math.min(fit, down, 26)) * this.zoom;
    } else {
      const cell = Math.min(fit, this.maxCell);
      this.cellWidth = (cell >= 4 ? Math.floor(cell) : Math.max(2, cell)) * this.zoom;
      this.cellHeight = Math.min(19, Math.max(4, (this.maxHeight * 1.4) / grid.rows)) * Math.min(2, this.zoom);
    }
    this.upright = columnRoom <= this.cellWidth - 2;
    this.top = (grid.columnTitle ? 17 : 0) + (this.upright ? 17 : Math.ceil(columnRoom) + 8);
    this.width = this.left + this.cellWidth * grid.columns + 2;
    this.height = this.top + this.cellHeight * grid.rows + 2;
    const scrolls = this.width > width + 1;
    this.viewWidth = Math.min(width, Math.ceil(this.width));
    this.viewHeight = Math.min(Math.ceil(this.height), this.maxHeight);
    this.sizer.style.width = `${Math.floor(scrolls ? this.width : this.viewWidth)}px`;
    this.sizer.style.height = `${Math.floor(this.height)}px`;
    this.view.style.height = `${this.viewHeight + (scrolls ? 14 : 0)}px`;
    this.tools.hidden = !(scrolls || this.height > this.maxHeight || this.zoom !== 1 || this.cellWidth < 14);
  }

  scale(factor) {
    this.zoom = factor === 0 ? 1 : Math.min(40, Math.max(1, this.zoom * factor));
    this.layout();
    this.draw();
  }

  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.scale(event.deltaY < 0 ? 1.2 : 1 / 1.2);
  }

  // ---------------------------------------------------------------------------------------------- drawing

  draw(always = false) {
    if (!this.grid || !this.viewWidth) return;
    this.dirty = !this.near && !always;
    if (this.dirty) {
      drawTheRest();
      return;
    }
    const { canvas, grid, left, top, cellWidth, cellHeight } = this;
    const ratio = devicePixelRatio || 1;
    canvas.width = this.viewWidth * ratio;
    canvas.height = this.viewHeight * ratio;
    canvas.style.width = `${this.viewWidth}px`;
    canvas.style.height = `${this.viewHeight}px`;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const [x0, y0] = this.scrolled;
    /** @returns {[number, number]} */
    const span = (scrolled, cell, room, count) => [
      Math.max(0, Math.floor(scrolled / cell)),
      Math.min(count, Math.ceil((scrolled + room) / cell)),
    ];
    const columns = span(x0, cellWidth, this.viewWidth - left, grid.columns);
    const rows = span(y0, cellHeight, this.viewHeight - top, grid.rows);
    const place = { x: (c) => left + c * cellWidth - x0, y: (r) => top + r * cellHeight - y0 };
    context.save();
    context.beginPath();
    context.rect(left, top, this.viewWidth - left, this.viewHeight - top);
    context.clip();
    this.drawCells(context, rows, columns, place);
    context.restore();
    this.drawLabels(context, rows, columns, place);
    this.drawScale();
  }

  colour(x, table, missing) {
    if (x !== x) return missing;
    const share = x / this.largest;
    return table[share >= 1 ? 510 : share <= -1 ? 0 : 255 + Math.round(share * 255)];
  }

  drawCells(context, [r0, r1], [c0, c1], place) {
    const { grid, cellWidth, cellHeight } = this;
    const colours = palette();
    const [width, height] = [c1 - c0, r1 - r0];
    if (width < 1 || height < 1) return;
    const image = new ImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const table = colourTable(colours);
    const [masked, missing] = [pixel(channels(colours.masked)), pixel(channels(colours.missing))];
    for (let r = r0, at = 0; r < r1; r++) {
      const seen = grid.causal ? r : grid.columns;
      for (let c = c0; c < c1; c++, at++) {
        pixels[at] = c > seen ? masked : this.colour(grid.values[r * grid.columns + c], table, missing);
      }
    }
    SMALL.width = width;
    SMALL.height = height;
    SMALL.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = cellWidth < 1;
    context.drawImage(SMALL, place.x(c0), place.y(r0), width * cellWidth, height * cellHeight);
    if (cellWidth >= 7 && cellHeight >= 7) this.drawGrid(context, [r0, r1], [c0, c1], place, colours);
    if (grid.marked) this.drawMarks(context, [r0, r1], [c0, c1], place, colours);
    if (cellHeight >= 15 && cellWidth >= this.numberRoom) this.drawNumbers(context, [r0, r1], [c0, c1], place);
    context.strokeStyle = colours.masked;
    context.strokeRect(place.x(0) + 0.5, place.y(0) + 0.5, grid.columns * cellWidth - 1, grid.rows * cellHeight - 1);
    if (this.cursor) {
      context.strokeStyle = colours.cursor;
      context.lineWidth = 1.5;
      const [r, c] = this.cursor;
      context.strokeRect(place.x(c) + 0.5, place.y(r) + 0.5, Math.max(2, cellWidth - 1), Math.max(2, cellHeight - 1));
    }
  }

  drawGrid(context, [r0, r1], [c0, c1], place, colours) {
    context.strokeStyle = colours.grid;
    context.lineWidth = 1;
    context.beginPath();
    for (let c = c0; c <= c1; c++) {
      context.moveTo(Math.round(place.x(c)) - 0.5, place.y(r0));
      context.lineTo(Math.round(place.x(c)) - 0.5, place.y(r1));
    }
    for (let r = r0; r <= r1; r++) {
      context.moveTo(place.x(c0), Math.round(place.y(r)) - 0.5);
      context.lineTo(place.x(c1), Math.round(place.y(r)) - 0.5);
    }
    context.stroke();
  }

  drawMarks(context, [r0, r1], [c0, c1], place, colours) {
    const { grid, cellWidth, cellHeight } = this;
    context.strokeStyle = colours.mark;
    context.fillStyle = colours.mark;
    context.lineWidth = 1.5;
    for (let r = r0; r < r1; r++) {
      for (let c = c0; c < Math.min(c1, grid.causal ? r + 1 : c1); c++) {
        if (!grid.marked(r, c)) continue;
        if (cellWidth < 5) context.fillRect(place.x(c), place.y(r), Math.max(1, cellWidth), Math.max(1, cellHeight));
        else context.strokeRect(place.x(c) + 1, place.y(r) + 1, cellWidth - 3, cellHeight - 3);
      }
    }
  }

  drawNumbers(context, [r0, r1], [c0, c1], place) {
    const { grid, cellWidth, cellHeight } = this;
    const table = colourTable(palette());
    context.font = FONT;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let r = r0; r < r1; r++) {
      for (let c = c0; c < Math.min(c1, grid.causal ? r + 1 : c1); c++) {
        const x = grid.values[r * grid.columns + c];
        if (Math.abs(x) < 0.005 && this.largest > 0.005) continue;
        context.fillStyle = brightness(this.colour(x, table, 0)) > 150 ? "#10161f" : "#ffffff";
        context.fillText(number(x), place.x(c) + cellWidth / 2, place.y(r) + cellHeight / 2 + 0.5);
      }
    }
  }

  drawLabels(context, [r0, r1], [c0, c1], place) {
    const { grid, left, top, cellWidth, cellHeight } = this;
    const colours = palette();
    context.font = FONT;
    context.fillStyle = colours.text;
    context.textBaseline = "middle";
    context.textAlign = "right";
    const rowStep = Math.ceil(11 / cellHeight);
    for (let r = Math.ceil(r0 / rowStep) * rowStep; r < r1; r += rowStep) {
      const y = place.y(r) + cellHeight / 2;
      if (y > top - 2) context.fillText(shortened(grid.rowLabels[r], left - 8 - (grid.rowTitle ? 16 : 0)), left - 6, y);
    }
    const columnStep = this.upright ? 1 : Math.ceil(11 / cellWidth);
    const base = top - 5;
    for (let c = Math.ceil(c0 / columnStep) * columnStep; c < c1; c += columnStep) {
      const x = place.x(c) + cellWidth / 2;
      if (x < left) continue;
      if (this.upright) {
        context.textAlign = "center";
        context.fillText(grid.columnLabels[c], x, base - 5);
        continue;
      }
      context.save();
      context.translate(x, base);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(shortened(grid.columnLabels[c], 70), 0, 0);
      context.restore();
    }
    this.drawTitles(context, colours);
  }

  drawTitles(context, colours) {
    const { grid, left, top } = this;
    context.fillStyle = colours.faint;
    if (grid.columnTitle) {
      context.textAlign = "left";
      context.fillText(`${grid.columnTitle} →`, left, 7);
    }
    if (grid.rowTitle && this.viewHeight - top > 30) {
      context.save();
      context.translate(7, Math.min(this.viewHeight, this.height) - 2);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(shortened(`← ${grid.rowTitle}`, Math.max(20, this.viewHeight - top + 12)), 0, 0);
      context.restore();
    }
  }

  drawScale() {
    const colours = palette();
    this.bar.width = 96;
    this.bar.height = 1;
    const context = this.bar.getContext("2d");
    const table = colourTable(colours);
    const image = new ImageData(96, 1);
    const pixels = new Uint32Array(image.data.buffer);
    for (let x = 0; x < 96; x++) {
      const share = this.signed ? (x / 95) * 2 - 1 : x / 95;
      pixels[x] = table[255 + Math.round(share * 255)];
    }
    context.putImageData(image, 0, 0);
  }

  // --------------------------------------------------------------------------------------- reading a cell

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left - this.left + this.view.scrollLeft;
    const y = event.clientY - box.top - this.top + this.view.scrollTop;
    const cell = [Math.floor(y / this.cellHeight), Math.floor(x / this.cellWidth)];
    const inside = event.clientX - box.left >= this.left && event.clientY - box.top >= this.top;
    this.select(inside ? cell : null, event.clientX, event.clientY);
  }

  key(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Escape") this.select(null);
    if (event.key === "+" || event.key === "-") this.scale(event.key === "+" ? 1.6 : 1 / 1.6);
    if (!step || !this.grid) return;
    event.preventDefault();
    const [row, column] = this.cursor ?? [-step[0] + 0, -step[1] + 0].map((x) => Math.max(0, x));
    const clamp = (x, count) => Math.min(count - 1, Math.max(0, x));
    /** @type {[number, number]} */
    const cell = [clamp(row + step[0], this.grid.rows), clamp(column + step[1], this.grid.columns)];
    this.reveal(cell);
    const box = this.canvas.getBoundingClientRect();
    const x = box.left + this.left + (cell[1] + 1) * this.cellWidth - this.view.scrollLeft;
    this.select(cell, x, box.top + this.top + (cell[0] + 1) * this.cellHeight - this.view.scrollTop);
  }

  /** Scrolls as far as a cell needs to be seen. */
  reveal([row, column]) {
    const [x, y] = [column * this.cellWidth, row * this.cellHeight];
    const [across, down] = [this.viewWidth - this.left - this.cellWidth, this.viewHeight - this.top - this.cellHeight];
    this.view.scrollLeft = Math.min(x, Math.max(this.view.scrollLeft, x - across));
    this.view.scrollTop = Math.min(y, Math.max(this.view.scrollTop, y - down));
  }

  select(cell, x, y) {
    const { grid } = this;
    const known = cell && grid && cell[0] >= 0 && cell[1] >= 0 && cell[0] < grid.rows && cell[1] < grid.columns;
    const before = String(this.cursor);
    this.cursor = known ? cell : null;
    if (String(this.cursor) !== before) this.draw();
    if (!known) tip.hide();
    else tip.show(this.describe(...cell), x, y);
  }

  describe(row, column) {
    const { grid } = this;
    const where = grid.cell ? grid.cell(row, column) : `${grid.rowLabels[row]}, ${grid.columnLabels[column]}`;
    const hidden = grid.causal && column > row;
    const value = hidden ? "not seen (it comes later)" : preciseNumber(grid.values[row * grid.columns + column]);
    return `${where}: ${value}${grid.marked?.(row, column) ? " (the program's line differs here)" : ""}`;
  }
}

function preciseNumber(x) {
  return Number.isFinite(x) ? String(Number(x.toPrecision(6))) : String(x);
}

/** What is out of view is drawn when there is time, so that it is there in a picture of the whole page. */
const drawTheRest = whenIdle(() => {
  for (const heatmap of HEATMAPS.values()) if (heatmap.dirty) heatmap.draw(true);
});

function redrawAll() {
  for (const heatmap of HEATMAPS.values()) heatmap.draw(printing);
}

darkMode.addEventListener("change", redrawAll);
addEventListener("beforeprint", () => {
  printing = true;
  redrawAll();
});
addEventListener("afterprint", () => {
  printing = false;
  redrawAll();
});
