/* The report: reads the page's data, computes the program on every change of the input, and draws. */

const data = JSON.parse(byId("data").textContent);
const { program, record } = data;

// -------------------------------------------------------------------------------------------------- input

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

const inputKey = (ids, offset) => `${offset}:${ids.join(",")}`;

// -------------------------------------------------------------------------------------------------- answer

function isCounted(example, ids, position) {
  if (example) return position >= example.counted[0] && position < example.counted[1];
  const separator = program.vocabulary.indexOf("SEP");
  if (program.output !== "softmax" || separator < 0 || !record.task || !ids.includes(separator)) return true;
  return position >= ids.indexOf(separator);
}

function answerCell(tokens, classes) {
  const some = tokens.slice(0, 8).map((token) => el("bdi", {}, shown(program.vocabulary[token])));
  if (tokens.length > 8) some.push(el("bdi", {}, `+${tokens.length - 8}`));
  return el("td", { class: classes }, some.length ? some : "∅");
}

function showAnswers(run, example) {
  const known = run.values.get("prediction");
  const size = program.vocabulary.length;
  const rows = { position: [], token: [], program: [], model: [] };
  let [same, counted] = [0, 0];
  run.ids.forEach((id, i) => {
    const counts = isCounted(example, run.ids, i);
    const answer = known ? answerOf(known.data, i, size, program.output) : [];
    const model = example?.model?.[i];
    const agrees = !model || String(model) === String(answer);
    counted += counts;
    same += counts && agrees;
    const classes = counts ? (agrees ? "counts" : "counts differs") : "aside";
    rows.position.push(el("td", {}, String(run.offset + i)));
    rows.token.push(el("td", {}, el("bdi", {}, run.labels[i])));
    rows.program.push(answerCell(answer, classes));
    rows.model.push(model ? answerCell(model, classes) : el("td", { class: "aside" }, "–"));
  });
  const head = (text) => el("th", { scope: "row" }, text);
  // Columns of one width spare the browser to measure hundreds of them.
  const widest = rows.program
    .concat(rows.token)
    .reduce((most, cell) => Math.max(most, ...Array.from(cell.children, (child) => child.textContent.length)), 2);
  const column = Math.min(14, widest) + 1.6;
  byId("strip").style.width = `calc(8.5rem + ${run.length * column}ch)`;
  byId("strip").replaceChildren(
    el("tr", { class: "positions" }, head("position"), rows.position),
    el("tr", { class: "tokens" }, head("input"), rows.token),
    el(
      "tr",
      { class: "answers" },
      head(program.output === "softmax" ? "program: next" : "program: may follow"),
      rows.program,
    ),
    el("tr", { class: "answers" }, head("model"), rows.model),
  );
  const agreement = byId("agreement");
  agreement.classList.toggle("differs", Boolean(example?.model) && same < counted);
  agreement.textContent = !example?.model
    ? "The model's answers are known for the examples and draws."
    : same === counted
      ? `Program and model agree at all ${plural(counted, "position")} that count${counted === 1 ? "s" : ""}.`
      : `Program and model differ at ${counted - same} of the ${plural(counted, "position")} that count.`;
}

// ----------------------------------------------------------------------------------------------- the page

class Report {
  constructor(interpreter) {
    this.interpreter = interpreter;
    this.examples = data.examples.steps;
    this.known = new Map();
    for (const list of Object.values(data.examples))
      for (const example of list) this.known.set(inputKey(example.ids, example.offset), example);
    this.place = 0;
    this.tensorPanel = new TensorPanel(interpreter.tensors);
    this.listing = new Listing(byId("listing"), program, (i) => this.pick(i, true));
    const variables = new Set(["token", "pos", "one", ...program.statements.map((line) => line.name)]);
    this.cards = program.statements.map(
      (line, i) => new Card(line, i + 1, variables, (index) => this.pick(index, false)),
    );
    byId("variables").append(...this.cards.map((card) => card.node), this.rowsSwitch());
    this.listing.also(this.cards.map((card) => card.node));
    this.pick(
      Math.max(
        0,
        program.statements.findIndex((line) => tensorsOf(line).length),
      ),
      false,
    );
    this.connect();
    this.step(0);
    this.effects = new Effects(interpreter, data.examples, data.effects ?? {});
    showEffects(this.effects, byId("effects"));
  }

  connect() {
    byId("form").addEventListener("submit", (event) => event.preventDefault());
    byId("input").addEventListener("input", () => this.later());
    byId("offset").addEventListener("input", () => this.later());
    byId("previous").addEventListener("click", () => this.step(-1));
    byId("next").addEventListener("click", () => this.step(1));
    byId("draw").addEventListener("click", () =>
      this.choose(data.examples.draws[Math.floor(Math.random() * data.examples.draws.length)]),
    );
    byId("draw").hidden = !data.examples.draws.length;
    const differing = data.examples.differing;
    byId("differ").hidden = !differing.length;
    let shownLast = -1;
    byId("differ").addEventListener("click", () =>
      this.choose(differing[(shownLast = (shownLast + 1) % differing.length)]),
    );
  }

  rowsSwitch() {
    const box = el("input", {
      type: "checkbox",
      onchange: () => {
        allRows = box.checked;
        this.update();
      },
    });
    return el("label", { class: "all-rows" }, box, " show every row of every variable");
  }

  pick(index, scroll) {
    this.listing.pick(index);
    this.tensorPanel.show(program.statements[index], index + 1);
    if (scroll && innerWidth >= 1080) this.cards[index].node.scrollIntoView({ block: "nearest" });
  }

  step(by) {
    if (!this.examples.length) return;
    this.place = (this.place + by + this.examples.length) % this.examples.length;
    this.choose(this.examples[this.place]);
  }

  choose(example) {
    byId("input").value = example.ids.map((id) => typed(program.vocabulary[id])).join(" ");
    byId("offset").value = example.offset;
    this.update();
  }

  /** At most one redraw a frame, however fast the keys come. */
  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.update();
    });
  }

  readInput() {
    const ids = tokenised(byId("input").value);
    const offset = Number(byId("offset").value);
    if (!ids.length) throw new Error(`Type an input: tokens with spaces between them. They are: ${tokenList()}`);
    if (!Number.isInteger(offset) || offset < 0) throw new Error("The offset is a whole number from 0 on.");
    if (offset + ids.length > program.positions) {
      throw new Error(
        `${plural(ids.length, "token")} at offset ${offset} do not fit the program's ${program.positions} positions.`,
      );
    }
    return { ids, offset };
  }

  update() {
    const start = performance.now();
    let input;
    try {
      input = this.readInput();
    } catch (problem) {
      this.complain(problem.message);
      return;
    }
    this.complain("");
    const run = this.interpreter.run(input.ids, input.offset);
    Object.assign(run, input, { labels: input.ids.map((id) => shown(program.vocabulary[id])) });
    showAnswers(run, this.known.get(inputKey(input.ids, input.offset)));
    for (const card of this.cards) card.show(run);
    byId("which").textContent = this.examples.length ? `example ${this.place + 1} of ${this.examples.length}` : "";
    this.milliseconds = performance.now() - start;
    byId("time").textContent = `${plural(input.ids.length, "token")}, drawn in ${this.milliseconds.toFixed(0)} ms`;
  }

  complain(message) {
    byId("message").textContent = message;
    byId("input").setAttribute("aria-invalid", message !== "");
    document.body.classList.toggle("stale", message !== "");
  }
}

showHead();
showSearch();
unpackTensors(data.tensors).then((tensors) => {
  globalThis.drasp = { data, report: new Report(new Interpreter(program, tensors)) };
  document.body.classList.add("ready");
});
