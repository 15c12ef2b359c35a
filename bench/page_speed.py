"""How long the report page takes to recompute and redraw, in headless Chromium.

    python bench/page_speed.py REPORT... [--rounds N]

Each report is opened from disk and given inputs of 50, 150 and 300 tokens (as far as its positions go). The time is the
page's own, from the keystroke to the last drawing command (`report.milliseconds`), and after that until the browser has
laid out and painted the frame; the median of several rounds, and the fastest, since other work on a machine only adds.
"""

import argparse
from pathlib import Path
from statistics import median

from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
LENGTHS = (50, 150, 300)
ROUND = """async (length) => {
    const { report, data } = drasp;
    const { vocabulary, positions, special } = data.program;
    const words = vocabulary.filter((token) => !special.includes(token));
    const typed = Array.from({ length }, () => JSON.stringify(words[Math.floor(Math.random() * words.length)]));
    document.getElementById("input").value = typed.join(" ");
    document.getElementById("offset").value = 0;
    await new Promise(requestAnimationFrame);
    const start = performance.now();
    report.update();
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    return [report.milliseconds, performance.now() - start];
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=11)
    arguments = parser.parse_args()
    print("| report | kB | tokens | redraw ms (median) | fastest | with painting (median) | fastest |")
    print("|---|---|---|---|---|---|---|")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        for file in arguments.reports:
            page.goto(file.resolve().as_uri())
            page.wait_for_selector("body.ready")
            positions = page.evaluate("drasp.data.program.positions")
            for length in (n for n in LENGTHS if n <= positions):
                page.evaluate(ROUND, length)  # the first one also compiles
                times = [page.evaluate(ROUND, length) for _ in range(arguments.rounds)]
                own, painted = zip(*times, strict=True)
                figures = (median(own), min(own), median(painted), min(painted))
                size = file.stat().st_size / 1000
                print(f"| {file.parent.name} | {size:.0f} | {length} | {' | '.join(f'{x:.0f}' for x in figures)} |")
        browser.close()


if __name__ == "__main__":
    main()
