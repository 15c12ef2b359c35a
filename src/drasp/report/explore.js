/* The index over many results: a table to sort and filter, and all frontiers in one chart. */

const data = JSON.parse(byId("data").textContent);

const COLUMNS = [
  { title: "task", value: (row) => row.task ?? row.folder, text: true },
  { title: "model", value: (row) => row.model ?? "", text: true },
  { title: "agreement", value: (row) => row.match ?? null, show: (x) => percent(x) },
  { title: "lines", value: (row) => row.lines ?? null, show: (x) => (x === null ? "–" : x.toLocaleString("en")) },
  { title: "named", value: (row) => row.named ?? null, show: (x) => percent(x, 0) },
  { title: "verdict", value: (row) => row.verdict?.replace("_", " ") ?? row.method ?? "", text: true },
  { title: "grade", value: (row) => row.grade ?? "", text: true },
  {
    title: "lines passed",
    value: passedShare,
    show: (x, row) => (x === null ? "–" : `${passed(row)} of ${row.evidence.lines.length}`),
  },
  {
    title: "on changed inputs",
    value: (row) => row.evidence?.edited.value ?? null,
    show: (_, row) => told(row.evidence?.edited),
  },
  {
    title: "left out",
    value: (row) => row.evidence?.complement.value ?? null,
    show: (_, row) => told(row.evidence?.complement),
  },
  { title: "time", value: (row) => row.seconds ?? null, show: (x) => (x === null ? "–" : `${x.toFixed(1)} s`) },
  ...data.bins.map((bin) => ({
    title: `model right, ${bin}`,
    value: (row) => row.accuracies?.[bin] ?? null,
    show: (x) => percent(x),
  })),
  { title: "folder", value: (row) => row.folder, text: true },
];

/** How many lines pass what decides of them. */
function passed(row) {
  return row.evidence.lines.filter((line) => decisive(line)?.status === "passed").length;
}

function passedShare(row) {
  return row.evidence?.lines.length ? passed(row) / row.evidence.lines.length : null;
}

/** A measure as a mark and its number. */
function told(measure) {
  if (!measure) return "–";
  const { mark } = STATUS[measure.status];
  return measure.value === null ? mark : `${mark} ${measure.value.toFixed(2)}`;
}

let sorting = { column: 0, down: false };

function compare(a, b) {
  const [x, y] = [COLUMNS[sorting.column].value(a), COLUMNS[sorting.column].value(b)];
  // What is not known comes last, whichever way the rest goes.
  if (x === null || y === null) return Number(x === null) - Number(y === null);
  const order = typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
  return sorting.down ? -order : order;
}

function matching(row) {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const verdict = byId("verdict").value;
  const text = [row.task, row.model, row.folder, row.verdict, row.grade].join(" ").toLowerCase();
  return words.every((word) => text.includes(word)) && (!verdict || row.verdict === verdict);
}

function cell(column, row, index) {
  const value = column.value(row);
  const text = column.show ? column.show(value, row) : String(value);
  const content = index === 0 && row.report ? el("a", { href: row.report }, el("bdi", {}, text)) : el("bdi", {}, text);
  return el("td", { class: column.text ? "text" : null }, content);
}

function showHeader() {
  const titles = COLUMNS.map((column, i) => {
    const here = sorting.column === i;
    const sort = () => {
      sorting = { column: i, down: here ? !sorting.down : !column.text };
      show();
    };
    const arrow = here ? (sorting.down ? " ↓" : " ↑") : "";
    const state = here ? (sorting.down ? "descending" : "ascending") : null;
    const button = el("button", { type: "button", onclick: sort }, column.title + arrow);
    return el("th", { scope: "col", class: column.text ? "text" : null, "aria-sort": state }, button);
  });
  document.querySelector("#results thead").replaceChildren(el("tr", {}, titles));
}

function light(folder) {
  byId("chart").classList.toggle("lit-chart", folder !== null);
  const nodes = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".series, #results tbody tr"));
  for (const node of nodes) {
    node.classList.toggle("lit", folder !== null && node.dataset.folder === folder);
  }
}

function followed(node, folder) {
  node.dataset.folder = folder;
  node.addEventListener("pointerenter", () => light(folder));
  node.addEventListener("pointerleave", () => light(null));
  return node;
}

function show() {
  showHeader();
  const rows = data.rows.filter(matching).sort(compare);
  const made = rows.map((row) =>
    followed(
      el(
        "tr",
        {},
        COLUMNS.map((column, i) => cell(column, row, i)),
      ),
      row.folder,
    ),
  );
  document.querySelector("#results tbody").replaceChildren(...made);
  byId("count").textContent = `${rows.length} of ${plural(data.rows.length, "result")}`;
  showChart(rows.filter((row) => row.series.frontier.length));
}

function showChart(rows) {
  const drawn = rows.flatMap((row) => frontierSeries(row.series, row.task ?? row.folder).map((one) => ({ row, one })));
  const chart = rows.length
    ? frontierChart(
        drawn.map(({ one }) => one),
        { width: 900, height: 340 },
      )
    : el("p", { class: "note" }, "No frontier to show.");
  chart.querySelectorAll(".series").forEach((group, i) => {
    const { row } = drawn[i];
    followed(group, row.folder);
    group.classList.toggle("bad", (row.verdict ?? "decompiled") !== "decompiled");
  });
  byId("chart").replaceChildren(chart);
}

byId("title").textContent = data.title;
const decompiled = data.rows.filter((row) => row.verdict === "decompiled");
const complete = decompiled.filter((row) => row.grade === "complete").length;
byId("summary").textContent =
  `${plural(data.rows.length, "result")}, ${decompiled.length} decompiled, of these ${complete} complete.`;
for (const verdict of new Set(data.rows.map((row) => row.verdict).filter(Boolean))) {
  byId("verdict").append(el("option", { value: verdict }, verdict.replace("_", " ")));
}
byId("form").addEventListener("submit", (event) => event.preventDefault());
byId("form").addEventListener("input", show);
show();
document.body.classList.add("ready");
