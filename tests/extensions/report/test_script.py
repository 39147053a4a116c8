"""The script of the page in Node.js, with a table that has only what the script reads."""

import json
import shutil
import subprocess

import pytest

from official_bert.extensions.report.command import run
from official_bert.extensions.report.options import ReportOptions
from tests.extensions.report import folders

# Continuous integration does not require it.
pytestmark = pytest.mark.skipif(not shutil.which("node"), reason="Node.js is not installed")

TABLE = """
class Element {
  constructor(text, value) {
    this.textContent = text;
    this.dataset = value === undefined ? {} : {value};
    this.attributes = {};
    this.handlers = {};
  }
  getAttribute(name) { return this.attributes[name] ?? null; }
  setAttribute(name, value) { this.attributes[name] = value; }
  removeAttribute(name) { delete this.attributes[name]; }
  addEventListener(name, handler) { this.handlers[name] = handler; }
}
const cells = [["b", "10.0%", "0.1"], ["a", "9.0%", "0.09"], ["c", "", undefined]];
const rows = cells.map(([name, text, value]) => (
  {children: [new Element(name), new Element(text, value)]}
));
const body = {rows, append(...sorted) { this.rows = sorted; }};
const heads = [new Element("label"), new Element("share")];
const headRow = {children: heads};
for (const head of heads) {
  head.parentNode = headRow;
  head.closest = () => ({tBodies: [body]});
}
const document = {querySelectorAll: (selector) => selector.startsWith("table") ? heads : []};
const read = () => body.rows.map((row) => row.children[0].textContent).join("");
const seen = [];
"""
CLICKS = """
heads[1].handlers.click();
seen.push([read(), heads[1].attributes["aria-sort"]]);
heads[1].handlers.click();
seen.push([read(), heads[1].attributes["aria-sort"]]);
heads[0].handlers.keydown({key: "Enter"});
seen.push([read(), heads[0].attributes["aria-sort"]]);
seen.push(["", heads[1].attributes["aria-sort"] ?? "unsorted"]);
console.log(JSON.stringify(seen));
"""


def test_a_click_sorts_by_value_and_a_second_one_reverses(tmp_path):
    """Shares are sorted as numbers, and an empty cell is before them."""
    folders.write_run(tmp_path)
    run(ReportOptions(folders=(str(tmp_path),)))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    script = page.partition("<script>")[2].partition("</script>")[0]
    program = tmp_path / "program.js"
    program.write_text(f"{TABLE}\n{script}\n{CLICKS}")
    finished = subprocess.run(
        ["node", str(program)], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(finished.stdout) == [
        ["cab", "ascending"],
        ["bac", "descending"],
        ["abc", "ascending"],
        ["", "unsorted"],
    ]
