/* The measures of a line, and which of them decides of it. */

const STATUS = {
  passed: { mark: "✓", word: "passed" },
  failed: { mark: "✗", word: "failed" },
  untested: { mark: "?", word: "untested: too few cases that matter" },
  not_applicable: { mark: "–", word: "not applicable" },
};

/** The measures of a line, in the order in which they are told; the first three decide. */
const LINE_MEASURES = [
  ["interchange", "from another input, as in the model"],
  ["interchange_cut_down", "from another input, as what it replaced"],
  ["attention_cut_down", "looks where the model's heads do, before it was named"],
  ["attention", "looks where the model's heads do"],
  ["splice", "in the head's or the MLP's place"],
];
const DECIDING = 3;

/** What decides of a line: the measure that fails, else that passes, else the first that there is. */
function decisive(line) {
  const found = LINE_MEASURES.slice(0, DECIDING).flatMap(([key]) => (line[key] ? [line[key]] : []));
  const order = ["failed", "passed", "untested", "not_applicable"];
  const rank = (measure) => order.indexOf(measure.status) * 10 + (measure.value ?? 1);
  return found.sort((a, b) => rank(a) - rank(b))[0] ?? null;
}
