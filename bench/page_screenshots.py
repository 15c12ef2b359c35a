"""Pictures of a report as a reader sees it: light, dark, narrow and printed.

    python bench/page_screenshots.py REPORT OUT_PREFIX [--link "#input=BOS+0+1+SEP&off=layer+0+mlp"]

writes OUT_PREFIX-light.png, -dark.png, -narrow.png, -whole.png (the whole page) and -printed.pdf.
"""

import argparse
from pathlib import Path

from playwright.sync_api import sync_playwright

from page_speed import ARGUMENTS, CHROMIUM

LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 1000}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 1000}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("prefix")
    parser.add_argument("--link", default="", help="what the page's Link adds to its address; else the first example")
    arguments = parser.parse_args()
    address = arguments.report.resolve().as_uri() + arguments.link
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for name, look in LOOKS.items():
            page = browser.new_page(**look)
            page.goto(address)
            page.wait_for_selector("body.ready")
            page.wait_for_timeout(1000)
            # As it is from the second visit on.
            page.evaluate("document.getElementById('intro').open = false")
            page.evaluate("document.getElementById('intervene').open = drasp.report.interventions.active")
            page.wait_for_timeout(300)
            page.screenshot(path=f"{arguments.prefix}-{name}.png")
            if name == "light":
                page.screenshot(path=f"{arguments.prefix}-whole.png", full_page=True)
                page.pdf(path=f"{arguments.prefix}-printed.pdf", format="A4")
        browser.close()


if __name__ == "__main__":
    main()
