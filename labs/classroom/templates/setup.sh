#!/usr/bin/env bash
# Gradescope runs this once, when it builds the autograder's image (Ubuntu 22.04 or newer).
set -euo pipefail
apt-get update
apt-get install -y python3 python3-venv git
git clone --depth 1 {repository} /autograder/source/course
cd /autograder/source/course
python3 -m venv /autograder/venv
PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu /autograder/venv/bin/pip install -c constraints.txt -e '.[labs]'
