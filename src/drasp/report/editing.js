/* Editing a line's op=: by a name of the library, or cell by cell; and what that does to agreement on the examples. */

const MOST_TOKENS = 60;
const MOST_EXAMPLES = 120;

class OpEditor {
  /** `answersOfModel` gives what the model says on an example, or null where that is not known. */
  constructor(interpreter, answersOfModel, onChange) {
    this.interpreter = interpreter;
    this.answersOfModel = answersOfModel;
    this.onChange = onChange;
    this.history = [];
    this.libraries = Object.fromEntries(
      ["select", "project"].map((kind) => [
        kind,
        new Library(program.library[kind], { scale: program.library.scale, vocabulary: program.vocabulary }),
      ]),
    );
    byId("op-name").addEventListener("change", () => this.tryName());
    byId("set-cell").addEventListener("click", () => this.setCell());
    byId("undo").addEventListener("click", () => this.undo());
    byId("edit").addEventListener("submit", (event) => event.preventDefault());
  }

  /** Shows the editor for a line, if it has an op= that can be edited. */
  show(line) {
    const editable = line.kind === "select" || line.kind === "project";
    byId("edit").hidden = !editable;
    if (!editable) return;
    this.line = line;
    this.axes = tensorsOf(line)[0];
    byId("op-name").value = "";
    byId("op-name").placeholder = line.edited ?? (line.text.match(/\bop=(.*)\)$/)?.[1] ?? "");
    const { rows, columns } = this.shape;
    const names = this.libraries[line.kind].samples(this.shape);
    byId("op-names").replaceChildren(...names.map((text) => el("option", { value: text })));
    const option = (label, i) => el("option", { value: i }, label);
    byId("cell-row").replaceChildren(...(rows === 1 ? ["always"] : this.axes.rows.labels).map(option));
    byId("cell-column").replaceChildren(...this.axes.columns.labels.slice(0, columns).map(option));
    this.choose(0, 0);
    byId("op-message").textContent = "";
    byId("undo").hidden = !this.history.length;
  }

  /** What a tensor of the line's op= must be like. */
  get shape() {
    const { rows, columns } = this.interpreter.tensors.get(this.line.op);
    const key = this.line.kind === "select" ? program.bases[this.line.key[0]] : { kind: "token" };
    return { rows, columns, byToken: key.kind === "token" };
  }

  /** The cell that a value would go to. */
  choose(row, column) {
    const { columns, data: entries } = this.interpreter.tensors.get(this.line.op);
    byId("cell-row").value = row;
    byId("cell-column").value = column;
    byId("cell-value").value = String(Number(entries[row * columns + column].toPrecision(6)));
  }

  tryName() {
    const text = byId("op-name").value.trim();
    if (!text) return;
    try {
      const written = text.startsWith("(") ? text : `(${text})`;
      this.put(this.libraries[this.line.kind].tensor(written, this.shape), written);
    } catch (problem) {
      byId("op-message").textContent = problem.message;
    }
  }

  setCell() {
    const tensor = this.interpreter.tensors.get(this.line.op);
    const [row, column, value] = ["cell-row", "cell-column", "cell-value"].map((id) => Number(byId(id).value));
    if (!Number.isFinite(value) || byId("cell-value").value === "") {
      byId("op-message").textContent = "A cell holds a number.";
      return;
    }
    const changed = tensor.data.slice();
    changed[row * tensor.columns + column] = value;
    this.put(
      { ...tensor, data: changed },
      `${this.axes.rows.labels[row] ?? 1} → ${this.axes.columns.labels[column]} = ${value}`,
    );
  }

  /** Gives a line a tensor of its own; others that share the old one keep it. */
  put(tensor, what) {
    const before = this.agreement();
    const { line } = this;
    this.history.push({ line, op: line.op, edited: line.edited });
    const name = `edit ${this.history.length} of ${line.name}`;
    this.interpreter.tensors.set(name, tensor);
    Object.assign(line, { op: name, edited: what });
    this.told(before);
  }

  undo() {
    const { line, op, edited: earlier } = this.history.pop();
    const before = this.agreement();
    this.interpreter.tensors.delete(line.op);
    Object.assign(line, { op, edited: earlier });
    this.line = line;
    this.told(before);
  }

  told(before) {
    this.onChange(this.line);
    const after = this.agreement();
    byId("op-message").textContent = after
      ? `Agreement with the model on ${plural(after.of, "example")}: ${percent(before.share)} before, ${percent(after.share)} now.`
      : "The model's answers are not known here.";
  }

  /** The share of the shorter examples on which program and model answer alike wherever it counts. */
  agreement() {
    const all = [...data.examples.steps, ...data.examples.draws].filter((example) => example.ids.length <= MOST_TOKENS);
    const examples = all.slice(0, MOST_EXAMPLES).filter((example) => this.answersOfModel(example));
    if (!examples.length) return null;
    const alike = examples.filter((example) => {
      const model = this.answersOfModel(example);
      const own = programAnswers(this.interpreter.run(example.ids, example.offset));
      return own?.every((tokens, i) => !isCounted(example, example.ids, i) || same(tokens, model[i]));
    });
    return { share: alike.length / examples.length, of: examples.length };
  }
}
