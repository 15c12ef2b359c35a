/* What stands above and below the program: its figures, the frontier, the passes. */

/** The introduction is open on the first visit, and folded away after it. */
function showIntroduction() {
  const seen = "drasp has been introduced";
  try {
    byId("intro").open = localStorage.getItem(seen) === null;
    localStorage.setItem(seen, "yes");
  } catch {
    // A browser that remembers nothing shows it every time.
  }
}

/** What was measured, in a few words, and whether that is what one would want. */
function verdict() {
  const { verdict: found, grade, method, causal } = record;
  if (found === "not_decompilable") return ["not decompilable", "bad"];
  if (found === "answers_only") return ["answers alike, by other means", "bad"];
  if (found === "decompiled" && grade === "complete") return ["does what the model does: complete", "good"];
  if (found === "decompiled" && grade === "sufficient")
    return ["enough to give the model's answers: sufficient", "good"];
  if (method === "translate") return ["exact translation", "good"];
  return record.match_accuracy == null || causal ? null : ["answers alike; by what means was not measured", "bad"];
}

function reasonItems(reasons) {
  return reasons.map((reason) => el("li", {}, reason));
}

function showHead() {
  const name = record.task || record.model || "A D-RASP program";
  byId("title").textContent = name;
  const [words, look] = verdict() ?? ["", ""];
  byId("verdict").textContent = words;
  if (words) byId("verdict").classList.add(look);
  else byId("verdict").remove();
  byId("summary").textContent = summary();
  // Of many reasons the first few stand here, and all of them with the evidence, where that is shown.
  const reasons = record.reasons ?? [];
  const few = reasonItems(record.causal ? reasons.slice(0, 3) : reasons);
  if (reasons.length > few.length)
    few.push(el("li", {}, el("a", { href: "#evidence" }, `and ${reasons.length - few.length} more`)));
  byId("reasons").replaceChildren(...few);
  const facts = [];
  const fact = (term, value, more = "") =>
    value && facts.push(el("div", {}, el("dt", {}, term), el("dd", {}, value, more ? el("small", {}, more) : null)));
  if (record.match_accuracy != null) {
    // Where it was measured on all inputs that there are, there is no interval.
    const [low, high] = record.match_interval ?? [];
    const count = plural(record.samples ?? 0, "input");
    const interval = record.match_interval ? `95 %: ${percent(low)} to ${percent(high)}, ${count}` : `all ${count}`;
    fact("Agreement", percent(record.match_accuracy), interval);
  }
  fact(...provedFact());
  fact("Lines", String(program.statements.length), namedCounts());
  const tested = (record.causal?.lines ?? []).map((line) => decisive(line)?.status ?? "not_applicable");
  const count = (status) => tested.filter((one) => one === status).length;
  if (tested.length)
    fact(
      "Evidence",
      `${count("passed")} of ${plural(tested.length, "line")} passed`,
      `${count("failed")} failed, ${count("untested")} untested, ${count("not_applicable")} not applicable`,
    );
  if (record.task_accuracy != null) fact("Right on its task", percent(record.task_accuracy), "the program itself");
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
  if (data.model?.precision === "half")
    notes.push("The model's weights are rounded to 16 bits, which changes none of its answers on the examples.");
  byId("foot").textContent = notes.join(" ");
}

function summary() {
  const size = plural(program.statements.length, "line");
  if (record.match_accuracy == null)
    return `A program of ${size} for ${plural(program.vocabulary.length, "token")} and ${plural(program.positions, "position")}.`;
  const which = record.match_interval ? "inputs that the search has not seen" : "all inputs that there are";
  const alike = `answers as the model does on ${percent(record.match_accuracy)} of ${which}`;
  if (record.verdict === "answers_only")
    return `This program of ${size} ${alike}, but was not shown to do so by the same means: interventions tell the two apart, or find too little to compare.`;
  if (record.verdict !== "decompiled")
    return `No short program does what this transformer does. The best one found has ${size} and ${alike}.`;
  const stays = "and the model's answers stay when all that the program leaves out comes from another input";
  const what = {
    complete: `does what the model does: a line from another input has the effect that it has in the model${
      record.causal?.complement.status === "passed" ? `, ${stays}` : ""
    }`,
    sufficient:
      "is enough to give the model's answers, by the model's own means; that it is all that the model does was not shown",
  };
  // Results of before interventions were made say nothing of means.
  return `This program of ${size} ${what[record.grade] ? `${what[record.grade]}. It ` : ""}${alike}.`;
}

/** What is known of all inputs up to a length, beside the model, or, without one, the task. */
function provedFact() {
  const certificate = record.certificate;
  const found = certificate?.against_model ?? certificate?.against_task;
  if (!found) return ["All inputs", ""];
  const words = { proved: `proved up to length ${found.length}`, refuted: "refuted", undecided: "too close to call" };
  return ["All inputs", words[found.status], certificate.line];
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
      frontierChart(frontierSeries({ ...record, lines: program.statements.length }), {
        minMatch: record.min_match ?? null,
      }),
    );
  }
  if (record.passes?.length) byId("passes").append(passTable(record.passes));
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
