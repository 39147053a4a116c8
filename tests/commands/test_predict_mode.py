"""The modes of official-bert predict that extensions add, and the methods of Predictor: by
made-up ones.
"""

import types

import pytest

from official_bert import catalog
from official_bert.commands import predict
from official_bert.commands.predict_mode import PredictMode
from official_bert.io.errors import InputError
from official_bert.options.serving import PredictOptions
from official_bert.serving import predictor


class Shouting(PredictMode):
    flag = "--shout"
    log = ()

    def start(self, predictor):
        self.predictor = types.SimpleNamespace(
            columns=("text_a",), num_required=1, is_cut=lambda texts: len(texts[0]) > 3
        )

    def check(self, texts):
        if texts[0].isupper():
            raise InputError("it is loud already")

    def answers(self, requests):
        return ({"loud": text.upper()} for (text,) in requests)

    def finish(self):
        self.log = (*self.log, "finished")


class Counting(Shouting):
    flag = "--count"
    writes_answers = False

    def consume(self, windows):
        self.log = tuple(request for window in windows for request in window.requests)


@pytest.fixture
def use_hook(monkeypatch):
    """A function that replaces the functions of the hook that is named."""
    hooks = {}
    monkeypatch.setattr(catalog, "hooks", lambda name: hooks.get(name, ()))
    monkeypatch.setattr(predict, "Predictor", lambda *args, **settings: None)

    def use(name: str, *functions):
        hooks[name] = functions
        catalog.members.cache_clear()

    yield use
    monkeypatch.undo()
    catalog.members.cache_clear()


def options(tmp_path, data: str, **others) -> PredictOptions:
    (tmp_path / "in").write_text(data)
    files = {"input_file": str(tmp_path / "in"), "output_file": str(tmp_path / "out")}
    return PredictOptions(model=str(tmp_path / "model"), **files | others)


def test_a_mode_answers_lines(tmp_path, use_hook):
    modes = []
    use_hook(
        "predict_mode", lambda given: None, lambda given: modes.append(Shouting(given)) or modes[-1]
    )
    predict.run(options(tmp_path, "cat\nDOG\nlong\n", on_error="report"))
    assert (tmp_path / "out").read_text().splitlines() == [
        '{"loud": "CAT"}',
        '{"error": "it is loud already"}',
        '{"truncated": true, "loud": "LONG"}',
    ]
    assert modes[0].log == ("finished",)
    with pytest.raises(InputError, match="line 2: it is loud already; correct it, or give --on_e"):
        predict.run(options(tmp_path, "cat\nDOG\n"))


def test_a_mode_reads_the_whole_input(tmp_path, use_hook):
    modes = []
    use_hook("predict_mode", lambda given: modes.append(Counting(given)) or modes[-1])
    predict.run(options(tmp_path, "cat\ndog\n"))
    assert modes[0].log == (["cat"], ["dog"], "finished")
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match=r"in: line 2: it is loud already; correct it$"):
        predict.run(options(tmp_path, "cat\nDOG\n"))


def test_two_modes_are_refused(tmp_path, use_hook):
    use_hook("predict_mode", Shouting, Counting)
    message = "^--count: does not go with --shout; leave one of them out$"
    with pytest.raises(InputError, match=message):
        predict.run(options(tmp_path, "cat\n"))


def test_extensions_add_methods(use_hook):
    def shout(self, text: str) -> str:
        """Shouts."""
        return f"{self.path}: {text.upper()}"

    use_hook("predictor_methods", lambda: {"shout": shout})
    one = object.__new__(predictor.Predictor)
    one.path = "model"
    assert one.shout("cat") == "model: CAT"
    assert one.shout.__doc__ == "Shouts."
    assert {"shout", "classify"} <= set(dir(one))
    with pytest.raises(AttributeError, match="'Predictor' object has no attribute 'whisper'"):
        _ = one.whisper
    use_hook("predictor_methods", lambda: {"classify": shout})
    with pytest.raises(ValueError, match="Predictor has a method classify already"):
        _ = one.shout
