/* The evidence: what was measured of each line against the model, and of the program as a whole. */

const WHOLE_MEASURES = [
  ["program", "Agreement", "answers as the model does, on the task's inputs"],
  ["model_cut_down", "Agreement of the model cut down", "the model with nothing but what the program keeps of it"],
  ["edited", "On changed inputs", "answers as the model does where a change of tokens changes the answers"],
  ["attention", "Attention", "heads look where the model's do, before lines were named; the worst line"],
  ["interchange", "Interchange", "a line from another input does what it does in the model; the worst line"],
  ["splice", "Splice", "a line in the place of its head or MLP; the worst line; told, and no part of the verdict"],
  ["complement", "What is left out", "the model's answers stay when all else comes from another input"],
  [
    "mean_ablated",
    "What is left out, at means",
    "the same with all else at its mean; told, and no part of the verdict",
  ],
];

function measureText({ value, n, interval, status }) {
  if (status === "not_applicable") return "not applicable";
  if (value === null) return "never changed an answer";
  const range = interval ? ` [${interval.map((x) => x.toFixed(2)).join(", ")}]` : "";
  return `${value.toFixed(2)}${range} of ${plural(n, "case")}`;
}

/** A line's badge: a mark and a number, and all numbers in its title. Null where nothing was measured. */
function lineBadge(name) {
  const line = evidenceOf(name);
  if (!line) return null;
  const measure = decisive(line);
  const status = measure?.status ?? "not_applicable";
  const { mark, word } = STATUS[status];
  const figure = measure?.value == null || status === "not_applicable" ? "" : ` ${measure.value.toFixed(2)}`;
  const told = LINE_MEASURES.flatMap(([key, about]) => (line[key] ? [`${about}: ${measureText(line[key])}`] : []));
  const title = [`${word}`, ...told].join("\n");
  return el("span", { class: `mark ${status}`, title, "aria-label": `${word}${figure}` }, mark + figure);
}

function evidenceOf(name) {
  return record.causal?.lines?.find((line) => line.line === name) ?? null;
}

const ORIGINS = {
  own: "the model's own numbers",
  approximated: "other numbers: rounded, or fitted to what this part of the model says",
  named: "replaced by a name of the library",
  unknown: "whose numbers these are is not known",
};

function measureCell(measure) {
  if (!measure) return el("td", { class: "none" }, "");
  return el(
    "td",
    {},
    el("span", { class: `mark ${measure.status}` }, STATUS[measure.status].mark),
    ` ${measureText(measure)}`,
  );
}

/** A link to a case in which the line does not do in the program what it does in the model. */
function caseLink({ line, case: found }) {
  if (!found || !data.model?.tensors || !data.model.lines?.[line]) return null;
  const [input, source] = [found.tokens, found.source].map((tokens) => tokens.map(typed).join(" "));
  const href = linkTo({ input, offset: found.offset, from: line, source, "source-offset": found.source_offset });
  return el("small", {}, el("a", { href }, `see a case, at position ${found.offset + found.position}`));
}

function showEvidence() {
  const { causal } = record;
  if (!causal) return;
  byId("evidence").hidden = false;
  byId("whole").append(wholeTable(causal));
  byId("by-line").append(lineTable(causal));
  if (data.model?.left_out) byId("left-out").append(...leftOut(data.model));
  if (record.reasons?.length)
    byId("left-out").append(el("h3", {}, "What speaks against it"), el("ul", {}, reasonItems(record.reasons)));
}

function wholeTable(causal) {
  // Without the model cut down, what would be said of it is said of the program.
  const measures = WHOLE_MEASURES.filter(([key]) => causal[key] && (key !== "model_cut_down" || causal.has_cut_down));
  const rows = measures.map(([key, title, about]) =>
    el("tr", {}, el("th", { scope: "row" }, title, el("small", {}, about)), measureCell(causal[key])),
  );
  return el("table", { class: "table told" }, el("caption", {}, "The program as a whole"), el("tbody", {}, rows));
}

function lineTable(causal) {
  const shownMeasures = LINE_MEASURES.filter(([key]) => causal.lines.some((line) => line[key]));
  const head = ["line", "stands for", ...shownMeasures.map(([, about]) => about)];
  const rows = causal.lines.map((line) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, el("code", {}, line.line), el("small", {}, ORIGINS[line.origin] ?? line.origin)),
      el(
        "td",
        { class: "stands" },
        unbroken(line.stands_for),
        line.part?.dormant ? el("small", {}, "dormant: its whole component changes hardly an answer") : null,
        caseLink(line),
      ),
      shownMeasures.map(([key]) => measureCell(line[key])),
    ),
  );
  return el(
    "table",
    { class: "table told" },
    el("caption", {}, "Line by line: the share of cases in which program and model then answer alike"),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        head.map((title) => el("th", { scope: "col" }, title)),
      ),
    ),
    el("tbody", {}, rows),
  );
}

/** Heads and MLPs without a line, and how many answers change when each stays at its mean. */
function leftOut({ left_out: gone, changes }) {
  const share = (component) => `${percent(changes.shares[component], 0)} of ${plural(changes.inputs, "input")}`;
  const items = gone.components.map((component) =>
    el(
      "li",
      {},
      el("code", {}, component),
      `: with it switched off (at its mean), the model answers ${share(component)} otherwise.`,
    ),
  );
  for (const [component, into] of Object.entries(gone.folded))
    items.push(
      el(
        "li",
        {},
        el("code", {}, component),
        ` has no line of its own: what it does has gone into those that read ${into.join(", ")}.`,
      ),
    );
  const edges = `The program keeps ${gone.edges.heard} of the ${gone.edges.all} connections between the model's parts.`;
  const none = gone.components.length
    ? null
    : el("p", { class: "about" }, "Every head and MLP of the model has a part in the program.");
  return [
    el("h3", {}, "Left out"),
    el("p", { class: "about" }, edges),
    none,
    items.length ? el("ul", {}, items) : null,
  ].filter(Boolean);
}
