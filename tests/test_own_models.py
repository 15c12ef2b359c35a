"""The table of models of one's own: it is of its figures, and those of one model leave the others' as they are."""

import json
import shutil

import own_models


def test_the_table_is_of_its_figures_and_only_new_ones_change(tmp_path, monkeypatch):
    page, figures = tmp_path / "page.md", tmp_path / "figures.json"
    shutil.copy(own_models.PAGE, page)
    shutil.copy(own_models.FIGURES, figures)
    before, known = page.read_text(), json.loads(figures.read_text())
    for name, place in {"PAGE": page, "FIGURES": figures}.items():
        monkeypatch.setattr(own_models, name, place)
    own_models.document(tmp_path / "own")
    assert (page.read_text(), json.loads(figures.read_text())) == (before, known)
    made = tmp_path / "own" / "two_back"
    made.mkdir(parents=True)
    (made / "training.json").write_text(json.dumps(known["two_back"]["training"]))
    own_models.document(tmp_path / "own")  # trained, and not decompiled yet
    assert page.read_text() == before
    new = known["two_back"]["figures"] | {"lines": 7, "commit": "other", "reasons": ["a1 is not all there is: 0.2"]}
    (made / "figures.json").write_text(json.dumps(new))
    own_models.document(tmp_path / "own")
    lines = [line for line in page.read_text().splitlines() if line not in before.splitlines()]
    seconds = str(round(new["seconds"]))
    assert [line.split(" | ")[4:] for line in lines] == [["7", "1.000 [0.998, 1.000] of 2000", "1", seconds, "other |"]]


def test_what_a_stopped_run_has_made_is_not_made_again(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(own_models, "train", lambda plan, folder: done.append("trained") or {})
    monkeypatch.setattr(own_models, "decompiled", lambda plan, folder: done.append("decompiled") or {})
    folder = tmp_path / "two_back"
    folder.mkdir()
    own_models.make(own_models.PLANS[0], folder, only_train=True)
    own_models.make(own_models.PLANS[0], folder, only_train=False)
    own_models.make(own_models.PLANS[0], folder, only_train=False)
    assert done == ["trained", "decompiled"]
