/* What stands above and below the program: its figures, the frontier, the passes. */

const VERDICTS = {
  decompiled: "✓ decompiled",
  answers_only: "answers alike, by other means",
  not_decompilable: "not decompilable",
};

function showHead() {
  const name = record.task || record.model || "A D-RASP program";
  byId("title").textContent = name;
  if (record.verdict) {
    byId("verdict").textContent = VERDICTS[record.verdict] + (record.grade ? `: ${record.grade}` : "");
    byId("verdict").classList.add(record.verdict === "decompiled" ? "good" : "bad");
  } else {
    byId("verdict").remove();
  }
  byId("summary").textContent = summary();
  byId("reasons").replaceChildren(...(record.reasons ?? []).map((reason) => el("li", {}, reason)));
  const facts = [];
  const fact = (term, value, more = "") =>
    value && facts.push(el("div", {}, el("dt", {}, term), el("dd", {}, value, more ? el("small", {}, more) : null)));
  if (record.match_accuracy != null) {
    const [low, high] = record.match_interval ?? [];
    const count = plural(record.samples ?? 0, "input");
    fact("Agreement", percent(record.match_accuracy), `95 %: ${percent(low)} to ${percent(high)}, ${count}`);
  }
  fact("Lines", String(program.statements.length), namedCounts());
  if (record.task_accuracy != null)
    fact("Right on its task", percent(record.task_accuracy), "the program itself");
  if (record.largest_logit_difference != null)
    fact("Exact translation", record.largest_logit_difference.toExponential(1), "largest logit difference");
  if (record.task) fact("Task", record.task, data.about.task);
  if (record.model) fact("Model", shortName(record.model), data.about.model);
  if (record.seconds)
    fact(
      "Time",
      `${record.seconds.toFixed(1)} s`,
      [record.method, record.seed != null ? `seed ${record.seed}` : ""].filter(Boolean).join(", "),
    );
  byId("facts").replaceChildren(...facts);
  const notes = ["Made by drasp. The page needs no network."];
  if (data.rounding.bits)
    notes.push(
      `To keep it small its tensors are rounded: logits differ by at most ${data.rounding.difference.toExponential(1)} on the examples.`,
    );
  byId("foot").textContent = notes.join(" ");
}

function summary() {
  const size = plural(program.statements.length, "line");
  if (record.match_accuracy == null)
    return `A program of ${size} for ${plural(program.vocabulary.length, "token")} and ${plural(program.positions, "position")}.`;
  const alike = `answers as the model does on ${percent(record.match_accuracy)} of inputs that the search has not seen`;
  if (record.verdict === "answers_only")
    return `This program of ${size} ${alike}, but not by the same means: interventions tell the two apart.`;
  if (record.verdict !== "decompiled")
    return `No short program does what this transformer does. The best one found has ${size} and ${alike}.`;
  const what = {
    complete: "does what the transformer does, and what it leaves out does not matter",
    sufficient: "is enough to give the transformer's answers, by its own means",
  };
  // Results of before interventions were made say nothing of means.
  return `This program of ${size} ${what[record.grade] ? `${what[record.grade]}; it ` : ""}${alike}.`;
}

function namedCounts() {
  const counts = Object.values(record.primitives ?? {});
  const total = sum(counts.map((count) => count.total));
  return total ? `${sum(counts.map((count) => count.named))} of ${plural(total, "operation")} named` : "";
}

function shortName(path) {
  return path.split(/[\\/]/).filter(Boolean).pop() ?? path;
}

function showSearch() {
  const frontier = record.frontier ?? [];
  if (!frontier.length && !record.passes?.length) return;
  byId("search").hidden = false;
  if (frontier.length) {
    byId("frontier").append(
      el(
        "figcaption",
        {},
        "Programs found, by length and agreement; the pick is filled, the broken line is what was asked for.",
      ),
      frontierChart(frontierSeries(frontier), { minMatch: record.min_match ?? null }),
    );
  }
  if (record.passes?.length) byId("passes").append(passTable(record.passes));
}

/** The frontier as pruning left it, and the program of this page where naming has changed its length or agreement. */
function frontierSeries(frontier) {
  const point = (one) => ({ lines: one.lines, match: one.match_accuracy, interval: one.match_interval });
  const lines = program.statements.length;
  const series = [{ name: "", points: frontier.map(point), pick: record.pruned_lines ?? lines }];
  const there = frontier.some((one) => one.lines === lines && one.match_accuracy === record.match_accuracy);
  if (!there) series.push({ name: "with names", points: [point({ ...record, lines })], pick: lines });
  return series;
}

/** Steps of the same pass that follow each other are one row. */
function groupedPasses(passes) {
  const groups = [];
  let before = 0;
  for (const step of passes) {
    const last = groups.at(-1);
    if (last && last.name === step.name)
      Object.assign(last, { steps: last.steps + 1, left: step.left, unit: step.unit, match: step.match_accuracy });
    else groups.push({ ...step, steps: 1, match: step.match_accuracy, seconds: 0 });
    groups.at(-1).seconds += Math.max(0, step.seconds - before);
    before = Math.max(before, step.seconds);
  }
  return groups;
}

function passTable(passes) {
  const rows = groupedPasses(passes).map((group) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, group.name),
      el("td", {}, String(group.steps)),
      el("td", {}, `${group.left} ${group.unit ?? ""}`),
      el("td", {}, group.match == null ? "–" : group.match.toFixed(3)),
      el("td", {}, `${group.seconds.toFixed(1)} s`),
    ),
  );
  const titles = ["pass", "steps kept", "left", "agreement", "time"].map((title) => el("th", { scope: "col" }, title));
  return el(
    "table",
    { class: "table" },
    el("caption", {}, "What was taken away, pass by pass"),
    el("thead", {}, el("tr", {}, titles)),
    el("tbody", {}, rows),
  );
}
