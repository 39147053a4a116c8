import pytest

from official_bert.data.records.manifest import expand_records
from official_bert.errors import InputError


def test_a_glob_skips_the_manifest(tmp_path):
    for name in ("a-00000-of-00002", "a-00001-of-00002", "a.manifest.json"):
        (tmp_path / name).touch()
    shards = [str(tmp_path / f"a-0000{number}-of-00002") for number in range(2)]
    assert expand_records([f"{tmp_path}/a*"], "input_file") == shards
    assert expand_records([f"{tmp_path}/a-?????-of-?????"], "input_file") == shards
    manifest = f"{tmp_path}/a.manifest.json"
    assert expand_records([manifest], "input_file") == [
        manifest
    ]  # who names it hears that it holds no records
    with pytest.raises(InputError, match="--input_file: no file of records matches"):
        expand_records([f"{tmp_path}/a.*"], "input_file")
