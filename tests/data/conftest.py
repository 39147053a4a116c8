"""What several tests of data share."""

import pytest

from official_bert.tokenization import FullTokenizer
from tests import toy


@pytest.fixture
def tokenizer(tmp_path):
    return FullTokenizer(toy.write_vocabulary(tmp_path))
