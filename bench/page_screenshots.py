"""Pictures of a report as a reader sees it: light, dark and narrow.

    python bench/page_screenshots.py REPORT OUT_PREFIX

writes OUT_PREFIX-light.png, -dark.png and -narrow.png.
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
    arguments = parser.parse_args()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for name, look in LOOKS.items():
            page = browser.new_page(**look)
            page.goto(arguments.report.resolve().as_uri())
            page.wait_for_selector("body.ready")
            page.wait_for_timeout(300)
            page.screenshot(path=f"{arguments.prefix}-{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
