"""The page in a real browser: headless Chromium, where it is installed."""

import re

from official_bert.extensions.report.command import run
from official_bert.extensions.report.options import ReportOptions
from tests.browser import dump_page, needs_chromium
from tests.extensions.report import folders

# A machine for continuous integration rarely has a browser, so CI does not require it.
pytestmark = needs_chromium

# After the page has loaded, its own script has run. This one sorts a table twice by clicks, and
# writes what it saw into the title.
PROBE = """
<script>
const seen = [];
for (const svg of document.querySelectorAll("svg")) {
  const box = svg.getBoundingClientRect();
  if (box.width < 100 || box.height < 100) seen.push("small picture");
}
seen.push(document.querySelectorAll("svg").length + " pictures");
seen.push(document.querySelectorAll("figure button").length + " buttons");
const heads = [...document.querySelectorAll("th")];
const head = heads.find((one) => one.textContent === "examples" && one.closest("table")
  .tHead.textContent.startsWith("label"));
const column = [...head.parentNode.children].indexOf(head);
const read = () => [...head.closest("table").tBodies[0].rows]
  .map((row) => row.children[column].textContent).join(" ");
head.click();
seen.push("up " + read());
head.click();
seen.push("down " + read());
seen.push(head.getAttribute("aria-sort"));
document.title = seen.join("; ");
</script>
"""


def test_the_page_opens_and_its_tables_sort(tmp_path):
    labels = ["two", "ten", "<b>nine</b>"]
    counts = {"two": 2, "ten": 10, "<b>nine</b>": 9}
    predictions = []
    for label, count in counts.items():
        predictions += [
            {"label": label, "prediction": label, "probability": 0.9, "raw_probability": 0.9}
        ] * count
    folder = folders.write_run(tmp_path / "run", predictions, labels)
    run(ReportOptions(folders=(str(folder),)))
    page = (folder / "report.html").read_text(encoding="utf-8")
    probed = tmp_path / "probed.html"
    probed.write_text(page.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    dump = dump_page(probed)
    (title,) = re.findall(r"<head>.*?<title>(.*?)</title>", dump, re.DOTALL)
    num_pictures = page.count("<svg ")
    assert title.split("; ") == [
        f"{num_pictures} pictures",
        f"{num_pictures} buttons",
        "up 2 9 10",
        "down 10 9 2",
        "descending",
    ]
