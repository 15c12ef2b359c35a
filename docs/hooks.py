"""What `make docs` adds to the pages of this folder, as hooks of mkdocs.

README.md, CONTRIBUTING.md and CHANGELOG.md become pages, and so do notebooks and all that `drasp` exports. Files
outside this folder that a page links to become files of the site: links work there as where the repository is shown.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
_LINK = re.compile(r"(\]\()([^)#\s]+)([^)\s]*\))")
_REAL = {source: page for page, source in PAGES.items()}
_LOADED = re.compile(r'<(?:script|link rel="stylesheet")[^>]* (?:src|href)="(https?:[^"]+)"')


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages and files that are not in this folder."""
    for page, source in PAGES.items():
        files.append(File.generated(config, page, content=_relinked((ROOT / source).read_text("utf-8"), ROOT)))
    files.append(File.generated(config, "api.md", content=api_page()))
    docs = Path(config["docs_dir"])
    for notebook in sorted(docs.glob("notebooks/*.ipynb")):
        name = f"notebooks/{notebook.stem}.md"
        files.append(File.generated(config, name, content=notebook_page(json.loads(notebook.read_text("utf-8")))))
    for place in sorted({place for text, folder in _texts(docs) for place in _outside(text, folder)}):
        if place.name not in _REAL:
            name = place.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(place)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Turns links that leave this folder to where their files are on the site."""
    own = page.file.src_uri not in {*PAGES, "api.md"} and not page.file.src_uri.startswith("notebooks/")
    return _relinked(markdown, Path(config["docs_dir"])) if own else markdown


def on_post_page(output: str, page: Any, **_: Any) -> None:
    """Ends the build where a page would load a script or a style from the network."""
    if found := _LOADED.search(output):
        raise PluginError(f"{page.file.dest_uri} loads {found[1]}; pages must open from disk, without a network")


def api_page() -> str:
    """What `drasp` exports, in the order of its home modules, for mkdocstrings to fill in."""
    sys.path.insert(0, str(ROOT / "src"))
    import drasp

    homes: dict[str, list[str]] = {}
    for name in drasp.__all__:
        homes.setdefault(drasp._HOMES[name], []).append(name)
    parts = ["# API", "All of it can be imported from `drasp`; [From Python](python.md) shows how it is used."]
    for home in sorted(homes, key=lambda home: min(homes[home], key=str.lower).lower()):
        parts += [f"## `drasp.{home}`", *(f"::: drasp.{home}.{name}" for name in homes[home])]
    return "\n\n".join(parts) + "\n"


def notebook_page(notebook: dict[str, Any]) -> str:
    """A notebook with what is stored of its outputs; pictures are part of the page."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```{'text' if source.startswith('!') else 'python'}\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", [])})
            if "image/png" in data:
                parts.append(f"![what the cell draws](data:image/png;base64,{data['image/png'].strip()})")
            else:
                parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _texts(docs: Path) -> list[tuple[str, Path]]:
    pages = [(file.read_text("utf-8"), docs) for file in sorted(docs.glob("*.md"))]
    return [*pages, *(((ROOT / source).read_text("utf-8"), ROOT) for source in PAGES.values())]


def _outside(text: str, folder: Path) -> set[Path]:
    """The files that a text links to which are not in docs/."""
    found = {(folder / link[2]).resolve() for link in _LINK.finditer(text) if "://" not in link[2]}
    return {place for place in found if place.is_file() and ROOT / "docs" not in place.parents}


def _relinked(text: str, folder: Path) -> str:
    """A text whose links are from the root of the site, where docs/ is."""

    def relinked(link: re.Match[str]) -> str:
        place = (folder / link[2]).resolve()
        if "://" in link[2] or not place.is_relative_to(ROOT):
            return link[0]
        path = place.relative_to(ROOT).as_posix()
        path = _REAL.get(path, path.removeprefix("docs/"))
        return link[1] + path.replace(".ipynb", ".md") + link[3]

    return _LINK.sub(relinked, text)
