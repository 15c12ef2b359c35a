/* The frontier: lines of code against agreement, one series for each result. */

/** Steps of a logarithmic axis from 1 upwards, as many as are read easily. */
function lineTicks(low, high) {
  const ticks = [1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 300, 500, 1000, 2000, 5000].filter(
    (tick) => tick >= low && tick <= high,
  );
  const step = Math.ceil(ticks.length / 8);
  return ticks.filter((_, i) => i % step === 0);
}

function matchTicks(low) {
  const step = 1 - low > 0.5 ? 0.2 : 1 - low > 0.2 ? 0.1 : 1 - low > 0.08 ? 0.05 : 0.01;
  const ticks = [];
  for (let tick = 1; tick >= low - 1e-9; tick -= step) ticks.push(tick);
  return ticks;
}

/** `series`: { name, points: [{ lines, match, interval }], pick, about }; `about` says what the pick is. */
function frontierChart(series, { width = 520, height = 260, minMatch = null } = {}) {
  const points = series.flatMap((one) => one.points);
  const lows = points.map((point) => Math.min(point.match, point.interval ? point.interval[0] : 1));
  const low = Math.max(0, Math.floor((Math.min(...lows, minMatch ?? 1) - 0.015) * 20) / 20);
  const [fewest, most] = [Math.min(...points.map((p) => p.lines)), Math.max(...points.map((p) => p.lines))];
  const [first, last] = [Math.max(0.7, fewest * 0.8), Math.max(most * 1.2, fewest + 2)];
  const area = { left: 52, right: width - 14, top: 12, bottom: height - 40 };
  const x = (lines) => area.left + ((area.right - area.left) * Math.log(lines / first)) / Math.log(last / first);
  const y = (match) => area.bottom - ((area.bottom - area.top) * (match - low)) / (1.005 - low);
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img" });
  chart.append(svg("title", {}, "Agreement with the model against lines of the program"));
  for (const tick of matchTicks(low)) {
    chart.append(svg("line", { class: "grid", x1: area.left, x2: area.right, y1: y(tick), y2: y(tick) }));
    chart.append(svg("text", { x: area.left - 8, y: y(tick) + 4, "text-anchor": "end" }, tick.toFixed(2)));
  }
  for (const tick of lineTicks(first, last)) {
    chart.append(svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: area.bottom, y2: area.bottom + 4 }));
    chart.append(svg("text", { x: x(tick), y: area.bottom + 18, "text-anchor": "middle" }, String(tick)));
  }
  const middle = (area.left + area.right) / 2;
  chart.append(svg("text", { class: "axis", x: middle, y: height - 4, "text-anchor": "middle" }, "lines of code"));
  if (minMatch !== null && minMatch > low) {
    chart.append(svg("line", { class: "limit", x1: area.left, x2: area.right, y1: y(minMatch), y2: y(minMatch) }));
  }
  for (const one of series) chart.append(drawSeries(one, x, y));
  return chart;
}

function drawSeries(one, x, y) {
  const group = svg("g", { class: "series", "data-name": one.name });
  const sorted = [...one.points].sort((a, b) => a.lines - b.lines);
  const path = sorted.map((point, i) => `${i ? "L" : "M"}${x(point.lines)},${y(point.match)}`).join("");
  group.append(svg("path", { class: "curve", d: path }));
  for (const point of sorted) {
    const [cx, cy] = [x(point.lines), y(point.match)];
    if (point.interval) {
      group.append(svg("line", { class: "bar", x1: cx, x2: cx, y1: y(point.interval[0]), y2: y(point.interval[1]) }));
    }
    const picked = point.lines === one.pick;
    const text = `${one.name ? `${one.name}: ` : ""}${plural(point.lines, "line")}, agreement ${point.match.toFixed(3)}`;
    const dot = svg("circle", { class: picked ? "dot pick" : "dot", cx, cy, r: picked ? 6.5 : 4 });
    dot.append(svg("title", {}, picked ? `${text} (${one.about})` : text));
    group.append(dot);
  }
  return group;
}

/** The frontier of a result as pruning left it, and its program where naming has changed its length or agreement. */
function frontierSeries(
  { frontier, lines, match_accuracy: match, match_interval: interval, pruned_lines: pruned },
  name = "",
) {
  const points = frontier.map((one) => ({ lines: one.lines, match: one.match_accuracy, interval: one.match_interval }));
  const before = pruned ?? lines;
  // Another program of the frontier may have the length and the agreement that the pick has got by naming.
  const isThere = points.some((one) => one.lines === before && one.lines === lines && one.match === match);
  if (isThere || match == null) return [{ name, points, pick: before, about: "the pick" }];
  return [
    { name, points, pick: before, about: "the pick, before naming" },
    { name: `${name} with names`.trim(), points: [{ lines, match, interval }], pick: lines, about: "the pick" },
  ];
}
