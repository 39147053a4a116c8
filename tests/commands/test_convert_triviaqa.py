"""convert_triviaqa.py: run_squad.py's reader accepts the output."""

import json

from official_bert.tasks.squad.examples import read_squad_examples
from tests.scripts import flag_list, run_here

DOCUMENT = "The Moon is a satellite. Its seas are plains of lava. " + "They are dry. " * 200


def write_triviaqa(folder):
    """Three questions about two documents, of which one is there."""
    (folder / "evidence").mkdir()
    (folder / "evidence" / "Moon.txt").write_text(DOCUMENT, encoding="utf-8")
    pages = [{"DocSource": "TagMe", "Filename": name, "Title": name[:-4]} for name in ("Moon.txt", "Mars.txt")]
    answers = {"lava": ["Lava", "molten rock"], "plain": ["plain", "plains"], "water": ["water"]}
    entries = [
        {
            "Answer": {"Value": value, "Aliases": aliases, "Type": "WikipediaEntity"},
            "EntityPages": pages[: 1 + (value == "lava")],
            "Question": f"What is {value} there?",
            "QuestionId": f"tc_{number}",
        }
        for number, (value, aliases) in enumerate(answers.items())
    ]
    (folder / "wikipedia-train.json").write_text(json.dumps({"Data": entries, "Version": 1.0}))
    return flag_list(
        input_file=folder / "wikipedia-train.json", data_dir=folder / "evidence",
        output_file=folder / "squad.json",
    )  # fmt: skip


def test_questions_become_squads(tmp_path):
    log = run_here("convert_triviaqa.py", *write_triviaqa(tmp_path)).stderr
    assert (
        "squad.json: 2 questions with a document; left out: 1 whose document begins without an answer, 1 without" in log
    )
    examples = read_squad_examples(str(tmp_path / "squad.json"), is_training=True)
    found = {
        example.qas_id: example.doc_tokens[example.start_position : example.end_position + 1] for example in examples
    }
    assert found == {"tc_0--Moon.txt": ["lava."], "tc_1--Moon.txt": ["plains"]}
    assert {len(example.doc_tokens) for example in examples} == {400}
