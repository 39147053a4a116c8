#!/usr/bin/env bash
# What three new users do in their first hour: the page docs/first_hour.md, command by command as it stands there; the
# original's commands that need no data set, in docs/original_commands.md; and the commands that the quickstart prints
# at its end. It fails at the first command that fails.
#
#   tests/first_hour.sh                    in a clone, with `make` and pip; about 15 minutes on two cores
#   QUICKSTART=short tests/first_hour.sh   with the smaller quickstart
set -euo pipefail
cd "$(dirname "$0")/.."
export QUICKSTART=${QUICKSTART:-full}
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

# The shell blocks of a page, with the folder of the quickstart's setting.
commands_of() {
    awk '/^```shell$/ {inside = 1; next} /^```$/ {inside = 0} inside' "$1" |
        sed "s#quickstart_output/full#quickstart_output/$QUICKSTART#g"
}

rm -rf /tmp/first_hour
mkdir -p /tmp/first_hour
commands_of docs/first_hour.md >"$work/page.sh"
grep -q 'make quickstart' "$work/page.sh"
bash -xeuo pipefail "$work/page.sh" | tee "$work/page.log"

# The answers agree: the run, both models over REST, and the model that was to Hugging Face and back. REST ends no lines.
answers=$(grep -oE '"label": ?"debugger"' "$work/page.log" | wc -l)
((answers == 4)) || { echo "$answers of 4 answers are 'debugger': the folder, two over REST, the converted model" >&2; exit 1; }
test -s /tmp/first_hour/topics/report.html
(($(wc -l </tmp/first_hour/answers.csv) > 100))

# The original's commands, from the records to the features.
source .venv/bin/activate
commands_of docs/original_commands.md | sed '/run_classifier.py/,$d' | sed 's#/tmp/#/tmp/first_hour/#g' >"$work/original.sh"
if [[ $QUICKSTART == short ]]; then
    sed -i 's#--layers=-1,-2,-3,-4#--layers=-1,-2#' "$work/original.sh" # the small model has two layers
fi
grep -q 'extract_features.py' "$work/original.sh"
BERT_BASE_DIR=quickstart_output/$QUICKSTART/bert bash -xeuo pipefail "$work/original.sh"
test -s /tmp/first_hour/output.jsonl

# The second quickstart trains nothing and prints its commands again.
make quickstart | tee "$work/quickstart.log"
grep -q 'holds a trained model already' "$work/quickstart.log"
sed -n '/Use it:/,/^Read on:/p' "$work/quickstart.log" | sed '1d;$d' >"$work/printed.sh"
grep -q 'run_classifier.py' "$work/printed.sh"
# The server answers until the script ends, and the request waits for it.
sed -i 's#^\(official-bert serve.*\)$#\1 \&\nuntil curl -sf http://localhost:8501/ready >/dev/null; do sleep 1; done#' \
    "$work/printed.sh"
echo 'echo; kill %1' >>"$work/printed.sh"
bash -xeuo pipefail "$work/printed.sh" | tee "$work/printed.log"
(($(grep -oE '"label": ?"debugger"' "$work/printed.log" | wc -l) >= 2))

echo "The first hour went well."
