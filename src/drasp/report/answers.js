/* The input as typed, and what program and model say at each of its positions. */

/** Tokens of a typed text: words, JSON's quotes around what is no plain word; "0110" where only 0 and 1 are tokens. */
function tokenised(text) {
  const ids = new Map(program.vocabulary.map((token, i) => [token, i]));
  return (text.match(/"(?:[^"\\]|\\.)*"|\S+/g) ?? []).flatMap((word) => {
    let token = word;
    try {
      if (word.startsWith('"') && word.length > 1) token = JSON.parse(word);
    } catch {
      // a quotation mark that is itself a token
    }
    if (ids.has(token)) return [ids.get(token)];
    if (ids.has(word)) return [ids.get(word)];
    const letters = Array.from(word);
    if (letters.every((letter) => ids.has(letter))) return letters.map((letter) => ids.get(letter));
    throw new Error(`${isolated(token)} is not one of the program's tokens. They are: ${tokenList()}`);
  });
}

function tokenList() {
  const { vocabulary } = program;
  const some = vocabulary.length > 24 ? [...vocabulary.slice(0, 16), null, ...vocabulary.slice(-4)] : vocabulary;
  return some.map((token) => (token === null ? "…" : isolated(token))).join(" ");
}

function typed(token) {
  return /[\s"]/.test(token) || token === "" ? JSON.stringify(token) : token;
}

/** Ids as they would be typed. */
function asTyped(ids) {
  return ids.map((id) => typed(program.vocabulary[id])).join(" ");
}

/** What stands in two fields, { ids, offset }; an error says what is wrong with it. */
function readInput(text, place) {
  const ids = tokenised(text);
  const offset = Number(place);
  if (!ids.length) throw new Error(`Type an input: tokens with spaces between them. They are: ${tokenList()}`);
  if (!Number.isInteger(offset) || offset < 0) throw new Error("The offset is a whole number from 0 on.");
  if (offset + ids.length > program.positions) {
    throw new Error(
      `${plural(ids.length, "token")} at offset ${offset} do not fit the program's ${program.positions} positions.`,
    );
  }
  return { ids, offset };
}

/** An address that opens this page as `parts` say; what is empty is left out. */
function linkTo(parts) {
  return `#${new URLSearchParams(Object.entries(parts).filter(([, value]) => value !== ""))}`;
}

const inputKey = (ids, offset) => `${offset}:${ids.join(",")}`;

// ------------------------------------------------------------------------------------------------- answers

/** Whether an answer is measured; of an input that is no example, as the tasks of drasp have it. */
function isCounted(example, ids, position) {
  if (example) return example.counted.some(([first, end]) => position >= first && position < end);
  // Nothing follows the end of an input.
  const token = program.vocabulary[ids[position]];
  if (["EOS", "PAD"].includes(token) && program.special.includes(token)) return false;
  const separator = program.vocabulary.indexOf("SEP");
  if (program.output !== "softmax" || separator < 0 || !record.task || !ids.includes(separator)) return true;
  return position >= ids.indexOf(separator);
}

/** What logits say at every position: lists of tokens. */
function answersOf(logits, length) {
  const size = program.vocabulary.length;
  return Array.from({ length }, (_, i) => answerOf(logits, i, size, program.output));
}

/** The program's answers in a run; none where its prediction cannot be computed in the page. */
function programAnswers(run) {
  const known = run.values.get("prediction");
  return known ? answersOf(known.data, run.length) : null;
}

function answerCell(tokens, classes) {
  const some = tokens.slice(0, 8).map((token) => el("bdi", {}, shown(program.vocabulary[token])));
  if (tokens.length > 8) some.push(el("bdi", {}, `+${tokens.length - 8}`));
  return el("td", { class: classes }, some.length ? some : "∅");
}

const same = (a, b) => String(a) === String(b);

/** `answers`: { program, model } and, where something is intervened in, `before` with the same; model may be null. */
function showAnswers(run, example, answers) {
  const counts = run.ids.map((_, i) => isCounted(example, run.ids, i));
  const differs = run.ids.map(
    (_, i) => answers.program && answers.model && !same(answers.program[i], answers.model[i]),
  );
  const row = (title, own, before) => {
    const cells = run.ids.map((_, i) => {
      if (!own) return el("td", { class: "aside" }, "–");
      const classes = [counts[i] ? "counts" : "aside"];
      if (differs[i] && counts[i]) classes.push("differs");
      if (before && !same(own[i], before[i])) classes.push("changed");
      return answerCell(own[i], classes.join(" "));
    });
    return el("tr", { class: "answers" }, el("th", { scope: "row" }, title), cells);
  };
  const pale = (title, own) =>
    el(
      "tr",
      { class: "before" },
      el("th", { scope: "row" }, title),
      own.map((tokens) => answerCell(tokens, "aside")),
    );
  const { before } = answers;
  const rows = [
    row(program.output === "softmax" ? "program: next" : "program: may follow", answers.program, before?.program),
    row("model", answers.model, before?.model),
  ];
  if (before?.program) rows.push(pale("program, before", before.program));
  if (before?.model) rows.push(pale("model, before", before.model));
  setColumns(run, rows);
  byId("strip").replaceChildren(
    el(
      "tr",
      { class: "positions" },
      el("th", { scope: "row" }, "position"),
      run.ids.map((_, i) => el("td", {}, String(run.offset + i))),
    ),
    el(
      "tr",
      { class: "tokens" },
      el("th", { scope: "row" }, "input"),
      run.labels.map((label) => el("td", {}, el("bdi", {}, label))),
    ),
    ...rows,
  );
  showAgreement(counts, differs, answers);
}

/** Columns of one width spare the browser to measure hundreds of them. */
function setColumns(run, rows) {
  const widths = rows.flatMap((row) => Array.from(row.querySelectorAll("td bdi"), (cell) => cell.textContent.length));
  const widest = Math.max(2, ...run.labels.map((label) => label.length), ...widths.slice(0, 4000));
  byId("strip").style.width = `calc(8.5rem + ${run.length * (Math.min(14, widest) + 1.6)}ch)`;
}

function showAgreement(counts, differs, answers) {
  const counted = counts.filter(Boolean).length;
  const unlike = counts.filter((counts_, i) => counts_ && differs[i]).length;
  const agreement = byId("agreement");
  agreement.classList.toggle("differs", unlike > 0);
  const those = counted === 1 ? "the one position that counts" : `the ${counted} positions that count`;
  agreement.textContent = !answers.model
    ? data.model
      ? "The model is too large for the page: its answers are known for the examples and draws."
      : "The model was not at hand when this page was made: its answers are not known."
    : unlike
      ? `Program and model differ at ${counted === 1 ? "" : `${unlike} of `}${those}.`
      : `Program and model agree at ${counted === 1 ? "" : "all of "}${those}.`;
  if (answers.before) agreement.textContent += ` ${changedText(answers)}`;
}

/** At how many positions the interventions changed what program and model say. */
function changedText({ before, ...after }) {
  const changes = (side) => after[side]?.filter((tokens, i) => !same(tokens, before[side][i])).length ?? 0;
  const [own, theirs] = [changes("program"), changes("model")];
  if (!own && !theirs) return "The interventions change no answer.";
  return `The interventions change (underlined) ${plural(own, "answer")} of the program and ${theirs} of the model.`;
}
