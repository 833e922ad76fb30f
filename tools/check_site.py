#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens every page of a site in Chromium and looks for what a reader would stumble over.

    python3 tools/check_site.py <folder of HTML> [page...]

A search for each of a dozen usual words has to give the right section first. Each page is opened 1280 and 390 pixels
wide: light at the one width, dark at the other. A page that scrolls sideways and an error on the console are told with
the page, the width and the widest element; the status is then 1. Wants selenium, Chromium and its driver (Debian:
chromium chromium-driver); CHROMIUM and CHROMEDRIVER may name them.
"""

import os
import pathlib
import shutil
import sys
import time
import urllib.parse

WIDTHS = (1280, 390)
# Words that readers search for, and the section that has to come first.
SEARCHES = {
    "sgd": "docs/recipes.html#sgd",
    "schedule": "docs/recipes.html#a-learning-rate-schedule",
    "clip": "docs/recipes.html#gradient-clipping",
    "resume": "docs/recipes.html#save-and-resume",
    "offload": "README.html#beside-other-libraries",
    "gradient accumulation": "docs/recipes.html#gradient-accumulation",
    "out of memory": "docs/errors.html#errors",
    "ranks": "docs/ranks.html#on-several-ranks",
    "evaluation": "docs/recipes.html#evaluation",
    "hugging face": "docs/checkpoints.html#files-of-other-trainers",
    "lora": "docs/recipes.html#lora",
    "custom kernel": "docs/recipes.html#a-kernel-of-your-own",
}
SECTION = "const it = document.getElementById(arguments[0]); return it && it.closest('section') ? it.closest('section').id : '';"
WIDEST = """
const room = document.documentElement.clientWidth;
const hidden = (it) => { for (let at = it.parentElement; at; at = at.parentElement) {
  if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(at).overflowX) && at !== document.body
      && at !== document.documentElement) return true; } return false; };
let found = null, most = room;
for (const it of document.body.querySelectorAll('*')) {
  const end = it.getBoundingClientRect().right;
  if (end > most + 1 && !hidden(it)) { most = end; found = it; }
}
return found ? found.tagName.toLowerCase() + '.' + found.className + ' ' + found.textContent.trim().slice(0, 60) : 'nothing of its own';
"""


def browser():
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError as failure:
        sys.exit(f"check_site: needs selenium, which this Python does not have: {failure}")
    driver = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not driver or not chromium:
        sys.exit("check_site: needs Chromium and its driver (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


def look_at(window, page, name):
    troubles = []
    for width in WIDTHS:
        window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                               {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
        scheme = "dark" if width == WIDTHS[1] else "light"
        window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        window.get(page.as_uri())
        whole, room = window.execute_script("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        if whole > room:
            troubles.append(f"{name}, {width} px: scrolls sideways, {whole} px wide: {window.execute_script(WIDEST)}")
        for line in window.get_log("browser"):
            if line["level"] == "SEVERE":
                troubles.append(f"{name}, {width} px: {line['message']}")
    return troubles


def search(window, top, words):
    """@return the page and the section of the first result, as from the start page; empty where nothing is found"""
    window.get((top / "search.html").as_uri() + "?q=" + urllib.parse.quote_plus(words))
    for _ in range(100):
        first = window.execute_script("const it = document.querySelector('#search-results ul.search li a'); return it ? it.href : null;")
        if first:
            address, _, place = first.partition("#")
            page = address.partition("?")[0].removeprefix(top.as_uri() + "/")
            if not place:
                return page
            window.get((top / page).as_uri())
            return f"{page}#{window.execute_script(SECTION, place)}"
        time.sleep(0.1)
    return ""


def main(arguments):
    if not arguments:
        sys.exit("usage: check_site.py <folder of HTML> [page...]")
    top = pathlib.Path(arguments[0]).resolve()
    pages = [top / each for each in arguments[1:]] or sorted(each for each in top.rglob("*.html") if "_static" not in each.parts)
    if not pages:
        sys.exit(f"check_site: there is no page in {top}")
    window = browser()
    try:
        troubles = [trouble for page in pages for trouble in look_at(window, page, page.relative_to(top))]
        for words, wanted in SEARCHES.items() if not arguments[1:] else ():
            first = search(window, top, words)
            if first != wanted:
                troubles.append(f"a search for '{words}' gives {first or 'nothing'} first, not {wanted}")
    finally:
        window.quit()
    print("\n".join(troubles) if troubles else f"check_site: {len(pages)} pages, {len(WIDTHS)} widths, no trouble found")
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
